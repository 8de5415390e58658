"""`LLM.run(task, input) -> output`: renders a task, asks the backend, parses, and retries an unusable reply with feedback.

What it does not do: transport retries, caching, limits (layers do that), and inventing an answer: after the last attempt
it raises ParseError, and the caller decides on a counted fallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from memfly.errors import BackendError, ParseError
from memfly.llm.base import Backend, Call, Message, Reply, capped, derive_seed
from memfly.llm.budget import Budget
from memfly.llm.ledger import Tally, current_scope
from memfly.llm.parse import FINAL, parse_reply
from memfly.llm.prices import FREE, Price, cost
from memfly.llm.startup import Startup
from memfly.tasks.base import Task, TaskOutput

In = TypeVar("In")
Out = TypeVar("Out", bound=TaskOutput)


class LLM:
    """A backbone as systems see it. `attempts` is how often one task is asked before ParseError (default 3);
    `startup` is the backend's own preparation, where it has one. `most_tokens` and `reasoning_tokens` are the backend's
    cap on a call's token limit and what it adds to it, so that a larger limit really is one. `budget` and `price` are
    what `spent_before` counts in."""

    def __init__(
        self,
        backend: Backend,
        *,
        seed: int = 0,
        attempts: int = 3,
        startup: Startup | None = None,
        most_tokens: int | None = None,
        reasoning_tokens: int = 0,
        budget: Budget | None = None,
        price: Price = FREE,
    ) -> None:
        self.backend = backend
        self.seed = seed
        self.attempts = attempts
        self.startup = startup
        self.most_tokens = most_tokens
        self.reasoning_tokens = reasoning_tokens
        self.budget = budget
        self.price = price

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

    def spent_before(self, run: str, tally: Tally) -> None:
        """Tell the budget what the run named `run` paid in earlier processes, so that the limit holds for all of them
        together. Asked again for the same run in one process, or without a budget, it does nothing."""
        if self.budget is not None:
            tokens = sum(c.billed_prompt_tokens + c.billed_completion_tokens for c in tally.roles.values())
            self.budget.spent_before(run, sum(cost(tally, self.price).values()), tokens)

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
        limit = capped(max_tokens or task.max_tokens, self.most_tokens)
        heat = task.temperature if temperature is None else temperature
        error = ParseError("no attempt was made")
        asked = messages
        attempt = 0
        while attempt < self.attempts:
            call = Call(task, value, asked, heat, limit, seed, attempt)
            attempt += 1
            try:
                reply = await self.backend.complete(call)
            except BackendError as failed:
                here.tally.failed(task.role, failed)
                raise
            here.tally.record(task.role, reply)
            try:
                return parse_reply(task, value, reply)
            except ParseError as failed:
                here.tally.role(task.role).parse_failures += 1
                error = failed
            if reply.finish in FINAL:
                break
            if reply.finish in ("length", "unclosed_think"):
                larger = self._larger(limit)
                if larger == limit:
                    error = ParseError(f"truncated at llm.max_tokens: {error}", reply=error.reply)
                    break
                asked, limit = messages, larger
            else:
                asked = _with_feedback(messages, reply, error)
        raise ParseError(f"{task.name}: no usable reply in {attempt} attempts: {error}", reply=error.reply)

    def _larger(self, limit: int) -> int:
        """The limit that gives a cut reply twice the room it had, room for reasoning included; no more than the cap."""
        return capped(2 * (limit + self.reasoning_tokens) - self.reasoning_tokens, self.most_tokens)

    async def aclose(self) -> None:
        await self.backend.aclose()


def _with_feedback(messages: tuple[Message, ...], reply: Reply, error: ParseError) -> tuple[Message, ...]:
    """The question again, with the reply and the validator's message."""
    shown: list[Any] = [*messages]
    if reply.text.strip():
        shown.append(("assistant", reply.text[:2000]))
    shown.append(("user", f"That reply could not be used: {error}. Reply again with only the JSON object asked for."))
    return tuple(shown)
