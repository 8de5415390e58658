"""The baselines' tasks without a model: one module per system, each with its FUNCTIONS by task name, merged here.

They are the baselines' part of the extractive backbone (`memfly.llm.extractive`) and follow its rules: deterministic, from
the task's input alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from memfly.llm.extractive.base import Function

SYSTEMS = ("rag", "readagent", "memorybank", "memgpt", "amem", "mem0", "agentic_rag")
"""Systems with LLM tasks of their own."""


def _collect() -> dict[str, Function]:
    merged: dict[str, Function] = {}
    for system in SYSTEMS:
        name = f"{__name__}.{system}"
        if find_spec(name) is not None:
            merged.update(import_module(name).FUNCTIONS)
    return merged


FUNCTIONS: Mapping[str, Function] = _collect()
"""Task name -> function."""
