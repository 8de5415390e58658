"""MemGPT's agent loop on one state: step, run the function, go on while there is cause, keep the window from overflowing.

Order of causes to go on (MemGPT 0.2.9): pressure alert just raised, a failed function, a requested heartbeat. The window
counts as full when the prompt and the longest reply no longer fit, which is where a server would refuse or cut the reply.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from baselines.memgpt_functions import Functions, Outcome
from baselines.memgpt_memory import Archival, Core, Recall
from baselines.memgpt_queue import Message, event, evictable, package, result, summary
from baselines.tasks.memgpt import (
    MEMGPT_STEP,
    MEMGPT_SUMMARISE,
    PRESSURE,
    THOUGHT,
    RecallSearch,
    StepBlock,
    StepInput,
    SummariseInput,
    render_header,
)
from memfly.errors import ParseError
from memfly.llm.client import LLM
from memfly.tasks.base import ToolOutput
from memfly.text import count_tokens, cut_tokens
from memfly.types import Passage

PRESSURE_SHARE = 0.75
SUMMARY_INPUT_SHARE = 0.75
ALERT = (
    f"{PRESSURE}: your window is nearly full. Its oldest messages will soon be replaced by a summary. "
    "Save now what you would miss to core or archival memory."
)


@dataclass
class State:
    """All of an agent that lives on between events."""

    core: Core
    recall: Recall
    archival: Archival
    queue: list[Message] = field(default_factory=list)
    hidden: int = 0
    """Messages the summary at the head of the queue stands for."""
    warned: bool = False
    """The pressure alert was given since the last summary."""

    def fork(self) -> State:
        """A copy a question may change; recall memory is shared, because questions do not add to it."""
        return State(self.core.fork(), self.recall, self.archival.fork(), list(self.queue), self.hidden, self.warned)


@dataclass(frozen=True)
class Limits:
    window: int = 8192
    max_steps: int = 10
    page_size: int = 5
    return_limit: int = 2000
    recall_search: RecallSearch = "substring"


@dataclass
class Agent:
    """Runs events on a state. `now` carries the date and time of the event at hand; `log` gets what goes wrong."""

    state: State
    llm: LLM
    limits: Limits
    now: Passage
    log: Callable[..., None]
    counts: Counter[str] = field(default_factory=Counter)
    retrieved: list[Passage] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    question: bool = False
    """The event is a question, on a copy of the state: thoughts are not remembered, and once the answer is sent nothing is
    worth saving, so no pressure alert may follow it."""
    unusable: ParseError | None = None
    """What ended the burst, where it was a reply that stayed unusable."""

    async def run(self, message: Message, purpose: str) -> None:
        """One burst: at most `max_steps` steps. An unusable reply ends it, counted."""
        queue = self.state.queue
        queue.append(message)
        for number in range(1, self.limits.max_steps + 1):
            await self._make_room(f"{purpose} {number}")
            try:
                reply = await self.llm.run(MEMGPT_STEP, self._input(), purpose=f"{purpose} {number}")
            except ParseError as error:
                self._count("step_fallback", purpose)
                self.unusable = error
                return
            self.counts["steps"] += 1
            outcome = await self._act(reply)
            queue = self.state.queue
            if self._presses():
                self.state.warned = True
                self.counts["pressure_alerts"] += 1
                queue.append(event("system_alert", ALERT, self.now.date))
            elif not outcome.ok:
                queue.append(event("heartbeat", "the function failed; you run again", self.now.date))
            elif outcome.heartbeat:
                queue.append(event("heartbeat", "you asked to run again", self.now.date))
            else:
                return
        self.counts["step_cap"] += 1

    def _presses(self) -> bool:
        """An alert is due: the window is three quarters full, and none was given since the last summary."""
        if self.state.warned or (self.question and self.sent):
            return False
        return self.tokens() > PRESSURE_SHARE * self.limits.window

    def tokens(self) -> int:
        """Tokens of the next step's prompt: instructions, functions, core memory and queue."""
        header = count_tokens(render_header(self._input()))
        return _fixed_tokens() + header + sum(message.tokens for message in self.state.queue)

    def _input(self) -> StepInput:
        state = self.state
        blocks = tuple(StepBlock(name, text, state.core.limit) for name, text in state.core.blocks.items())
        messages = tuple(message.shown() for message in state.queue)
        return StepInput(
            blocks, len(state.recall.entries), len(state.archival.entries), self.limits.recall_search, messages
        )

    async def _act(self, reply: ToolOutput) -> Outcome:
        """Run the calls of a reply in order, up to the first that fails; without a call the burst ends."""
        state, thought = self.state, reply.content[:THOUGHT]
        calls = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
        state.queue.append(Message("assistant", package(thought=thought, calls=calls)))
        if thought.strip() and not self.question:
            state.recall.add(Passage(thought, (), self.now.date, self.now.time))
        limits = self.limits
        visible = tuple(passage for message in state.queue for passage in message.passages if passage.turns)
        functions = Functions(
            state.core, state.recall, state.archival, limits.recall_search, limits.page_size, limits.return_limit,
            self.now, visible, self.sent, self.retrieved,
        )  # fmt: skip
        heartbeat = False
        for call in reply.calls:
            outcome = await functions.call(call)
            state.queue.append(result(call.name, outcome.ok, outcome.message, self.now.date, outcome.passages))
            self.counts["functions"] += 1
            if not outcome.ok:
                self._count("failed_functions", call.name)
                return outcome
            heartbeat = heartbeat or outcome.heartbeat
        return Outcome(True, "", heartbeat=heartbeat)

    async def _make_room(self, purpose: str) -> None:
        """Summarise the oldest messages until the prompt and a reply fit, or until nothing more can go."""
        state = self.state
        while self.tokens() + MEMGPT_STEP.max_tokens > self.limits.window:
            count = evictable(state.queue)
            if count < 2:  # the original gives up here; ours takes what may go at all
                count = max(len(state.queue) - 3, 0)
            if count == 0 or (count == 1 and state.queue[0].is_summary):
                self._count("over_window", purpose)
                return
            gone, kept = state.queue[:count], state.queue[count:]
            text = await self._summarise(gone, purpose)
            state.hidden += sum(not message.is_summary for message in gone)
            state.queue = [summary(text, state.hidden, self.now.date), *kept]
            state.warned = False
            self.counts["evictions"] += 1
            self.log("evict", at=purpose, messages=count)

    async def _summarise(self, messages: list[Message], purpose: str) -> str:
        """At most 100 words. What exceeds 0.75 of the window is summarised head first, each summary heading the rest."""
        room = int(SUMMARY_INPUT_SHARE * self.limits.window)
        head: list[Message] = []
        text, done = "", 0
        while done < len(messages):
            count = _fitting(messages[done:], room - sum(message.tokens for message in head))
            part = messages[done : done + count]
            if count == 1 and part[0].tokens > room:
                part = [Message(part[0].role, cut_tokens(part[0].text, room))]
            text = await self._summary_of([*head, *part], f"{purpose} {done}")
            done += count
            head = [summary(text, done, self.now.date)]
        return text

    async def _summary_of(self, messages: list[Message], purpose: str) -> str:
        try:
            value = SummariseInput(tuple(message.shown() for message in messages))
            return (await self.llm.run(MEMGPT_SUMMARISE, value, purpose=purpose)).summary
        except ParseError:
            self._count("summary_fallback", purpose)
            return "(no summary could be written)"

    def _count(self, kind: str, where: str) -> None:
        self.counts[kind] += 1
        self.log(kind, at=where)


def _fitting(messages: list[Message], room: int) -> int:
    """How many of the first messages fit into `room` tokens; at least one."""
    used = 0
    for count, message in enumerate(messages):
        used += message.tokens
        if used > room:
            return max(count, 1)
    return len(messages)


@cache
def _fixed_tokens() -> int:
    """Instructions and function declarations, the same in every prompt."""
    return count_tokens(MEMGPT_STEP.system) + count_tokens(json.dumps(MEMGPT_STEP.schema()))
