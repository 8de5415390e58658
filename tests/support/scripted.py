"""A backbone whose replies are written by the test: one function per task, every call kept. Not a mock of a layer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from memfly.embed import Embedder, Hashing
from memfly.llm.base import Call, Reply
from memfly.llm.client import LLM
from memfly.system import Services
from memfly.types import Usage

Script = Callable[[Any], Any]
"""Typed input of the task -> a mapping (sent as JSON), a text (sent as it is), a Reply, or an error to raise."""


class Scripted:
    """Backend: `Scripted(ingest=lambda value: {...}, ...)`. A task without a script fails the test."""

    identity: Mapping[str, Any] = {"kind": "scripted"}

    def __init__(self, scripts: Mapping[str, Script] | None = None, **more: Script) -> None:
        self.scripts = {**(scripts or {}), **more}
        self.calls: list[Call] = []
        self.turns_to_wait: Callable[[Call], int] = lambda call: 0
        """How often a call lets others run before it is answered: for shuffling the order of replies."""

    @property
    def count(self) -> Counter[str]:
        """Calls by task name."""
        return Counter(call.task.name for call in self.calls)

    def inputs(self, task: str) -> list[Any]:
        return [call.input for call in self.calls if call.task.name == task]

    async def complete(self, call: Call) -> Reply:
        self.calls.append(call)
        for _ in range(self.turns_to_wait(call)):
            await asyncio.sleep(0)
        if call.task.name not in self.scripts:
            raise AssertionError(f"no script for task {call.task.name}")
        said = self.scripts[call.task.name](call.input)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Reply):
            return said
        text = said if isinstance(said, str) else json.dumps(said)
        return Reply(text, usage=Usage(prompt_tokens=10, completion_tokens=5))

    async def aclose(self) -> None:
        return


def services(backend: Scripted, *, attempts: int = 3, seed: int = 0, log: Any = None, dim: int = 64) -> Services:
    """What the harness would hand to a system, with the hashing embedder."""
    extra = {} if log is None else {"log": log}
    return Services(
        LLM(backend, seed=seed, attempts=attempts), Embedder(Hashing(dim)), "ada-ben", ("Ada", "Ben"), seed, **extra
    )


class Log(list[dict[str, Any]]):
    """An event log that keeps everything."""

    def __call__(self, kind: str, **fields: Any) -> None:
        self.append({"kind": kind, **fields})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self if event["kind"] == kind]
