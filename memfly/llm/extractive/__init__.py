"""The extractive backbone: every MemFly task and the shared answerer done by rules, counts and embeddings; no model.

Deterministic and free, it is a reference row that shows what a method's structure earns without a language model; tables
label it so. Each task has one function (`Function`), which sees the task's typed input and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memfly.embed import Embedder
from memfly.errors import ConfigError
from memfly.llm.base import Call, Reply
from memfly.llm.extractive import answer, keywords, merge, overlap, refine, restate
from memfly.llm.extractive.base import Function, Tools
from memfly.text import count_tokens
from memfly.types import Usage

__all__ = ["FUNCTIONS", "Extractive", "Function", "Tools"]

VERSION = 6
"""Raise it whenever a function's output changes: it is part of the cache key."""

FUNCTIONS: Mapping[str, Function] = {
    "ingest": restate.ingest,
    "question": keywords.question,
    "gate": overlap.gate,
    "gate_merge": overlap.gate_merge,
    "gate_one_strength": overlap.gate_one_strength,
    "merge": merge.merge,
    "sufficiency": refine.sufficiency,
    "subquery": refine.subquery,
    "answer": answer.answer,
    "interim_answer": answer.answer,
}
"""Task name -> function, for MemFly's tasks and the shared answerer."""


class Extractive:
    """A backend without a model. `extra` adds or replaces functions by task name (the baselines' own tasks)."""

    def __init__(self, embedder: Embedder, extra: Mapping[str, Function] | None = None) -> None:
        self._tools = Tools(embedder)
        self._functions = {**FUNCTIONS, **(extra or {})}

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"kind": "extractive", "version": VERSION, "embedder": dict(self._tools.embedder.identity)}

    async def complete(self, call: Call) -> Reply:
        """The task's output as JSON. Raises ConfigError for a task without a function."""
        function = self._functions.get(call.task.name)
        if function is None:
            raise ConfigError(
                f"task {call.task.name!r}: llm=extractive cannot do it; choose another llm, such as llm=openai"
            )
        output = await function(call.input, self._tools)
        text = output.model_dump_json()
        usage = Usage(
            prompt_tokens=sum(count_tokens(content) for _, content in call.messages),
            completion_tokens=count_tokens(text),
            estimated=True,
        )
        return Reply(text=text, finish="stop", model="extractive", usage=usage)

    async def aclose(self) -> None:
        """Nothing to close: the embedder belongs to whoever made it."""
