"""A toy task, calls of it, a backend with scripted outcomes, and a clock that runs only when something sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from memfly.errors import BackendError
from memfly.llm.base import Call, Reply
from memfly.tasks.base import Task, TaskOutput, Tool, ToolOutput
from memfly.types import Usage


@dataclass(frozen=True)
class ToyInput:
    text: str


class Item(TaskOutput):
    id: int
    score: float = Field(ge=0, le=1)


class ToyOutput(TaskOutput):
    words: list[str] = Field(max_length=4, description="some words")
    note: str = Field(default="", max_length=40)
    items: list[Item] = Field(default_factory=list, max_length=3)


class Search(BaseModel):
    query: str = Field(max_length=50)


TOY = Task("toy", 1, "parse", ToyInput, ToyOutput, "Reply with a JSON object.", lambda value: value.text, max_tokens=50)
AGENT = Task(
    "agent", 1, "reflect", ToyInput, ToolOutput, "Use the functions. Reply with a JSON object.", lambda v: v.text, 50,
    tools=(Tool("search", "look something up", Search),),
)  # fmt: skip


def toy_call(text: str = "hello", task: Task[Any, Any] = TOY, **changes: Any) -> Call:
    fields: dict[str, Any] = {
        "task": task, "input": ToyInput(text), "messages": (("system", task.system), ("user", text)),
        "temperature": 0.0, "max_tokens": 50, "seed": 1, "attempt": 0,
    }  # fmt: skip
    return Call(**{**fields, **changes})


def transient(kind: str = "server", retry_after: float | None = None) -> BackendError:
    return BackendError(f"{kind} trouble", transient=True, retry_after=retry_after, kind=kind)


Outcome = Reply | Exception
GOOD = Reply('{"words": ["ok"]}', usage=Usage(100, 20), model="toy-1", latency_s=0.5)


class Inner:
    """A backend whose outcomes are a list (the last one repeats) or a function of the call."""

    def __init__(
        self,
        outcomes: Sequence[Outcome] | Callable[[Call], Outcome] = (GOOD,),
        *,
        identity: Mapping[str, Any] | None = None,
        delay: Callable[[], Any] | None = None,
    ) -> None:
        self.identity: Mapping[str, Any] = identity or {"kind": "toy", "model": "a"}
        self.calls: list[Call] = []
        self.now = self.most_at_once = 0
        self.closed = False
        self._outcomes = outcomes
        self._delay = delay or (lambda: asyncio.sleep(0))

    async def complete(self, call: Call) -> Reply:
        number = len(self.calls)
        self.calls.append(call)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await self._delay()
        finally:
            self.now -= 1
        outcomes = self._outcomes
        outcome = outcomes(call) if callable(outcomes) else outcomes[min(number, len(outcomes) - 1)]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        self.closed = True


class Clock:
    """Time for layers: stands still except while something sleeps through it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


def numbered(prefix: str = "call") -> Iterator[Call]:
    """Calls that differ in their text."""
    number = 0
    while True:
        yield toy_call(f"{prefix} {number}")
        number += 1
