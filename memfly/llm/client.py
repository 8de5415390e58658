"""`LLM.run(task, input) -> output`: renders a task, asks the backend, parses, and retries an unusable reply with feedback.

What it does not do: transport retries, caching, limits (layers do that), and inventing an answer: after the last attempt
it raises ParseError, and the caller decides on a counted fallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from memfly.errors import BackendError, ParseError
from memfly.llm.base import Backend, Call, Message, Reply, derive_seed
from memfly.llm.ledger import current_scope
from memfly.llm.parse import parse_reply
from memfly.llm.startup import Startup
from memfly.tasks.base import Task, TaskOutput

In = TypeVar("In")
Out = TypeVar("Out", bound=TaskOutput)


class LLM:
    """A backbone as systems see it. `attempts` is how often one task is asked before ParseError (default 3);
    `startup` is the backend's own preparation, where it has one."""

    def __init__(self, backend: Backend, *, seed: int = 0, attempts: int = 3, startup: Startup | None = None) -> None:
        self.backend = backend
        self.seed = seed
        self.attempts = attempts
        self.startup = startup

    @property
    def identity(self) -> Mapping[str, Any]:
        """Every setting that can change an output, for the hashes of runs and memories."""
        return {**self.backend.identity, "attempts": self.attempts}

    async def start(self) -> Mapping[str, Any]:
        """Start and probe the server now instead of at the first call; gives what was found, for the manifest (empty
        for a backbone with no server). Raises ConfigError when the server cannot do what the configuration asks."""
        if self.startup is None:
            return {}
        await self.startup.ready()
        return self.startup.found

    async def run(
        self,
        task: Task[In, Out],
        value: In,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        purpose: str = "",
    ) -> Out:
        """The task's output for `value`.

        The request seed comes from (run seed, conversation, question, task, purpose), so equal work in another run
        with the same seed hits the cache. Raises ParseError after the last unusable reply, BackendError when the call
        itself fails for good, BudgetExceeded at a hard limit.
        """
        here = current_scope()
        seed = derive_seed(self.seed, here.conversation, here.item, task.name, purpose)
        messages: tuple[Message, ...] = (("system", task.system), ("user", task.render(value)))
        budget = max_tokens or task.max_tokens
        heat = task.temperature if temperature is None else temperature
        error = ParseError("no attempt was made")
        asked = messages
        for attempt in range(self.attempts):
            call = Call(task, value, asked, heat, budget, seed, attempt)
            try:
                reply = await self.backend.complete(call)
            except BackendError as failed:
                count = here.tally.role(task.role)
                count.failed_calls += 1
                count.retries += failed.tries - 1
                raise
            here.tally.record(task.role, reply)
            try:
                return parse_reply(task, value, reply)
            except ParseError as failed:
                here.tally.role(task.role).parse_failures += 1
                error = failed
                asked, budget = _next_attempt(messages, budget, reply, failed)
        raise ParseError(f"{task.name}: no usable reply in {self.attempts} attempts: {error}", reply=error.reply)

    async def aclose(self) -> None:
        await self.backend.aclose()


def _next_attempt(
    messages: tuple[Message, ...], budget: int, reply: Reply, error: ParseError
) -> tuple[tuple[Message, ...], int]:
    """What to ask next: a cut reply gets twice the room, any other one gets the validator's message."""
    if reply.finish in ("length", "unclosed_think"):
        return messages, budget * 2
    shown: list[Any] = [*messages]
    if reply.text.strip():
        shown.append(("assistant", reply.text[:2000]))
    shown.append(("user", f"That reply could not be used: {error}. Reply again with only the JSON object asked for."))
    return tuple(shown), budget
