"""The baselines' tasks without a model: one module per system, each with its FUNCTIONS by task name, merged here.

They are the baselines' part of the extractive backbone (`memfly.llm.extractive`) and follow its rules: deterministic, from
the task's input alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from baselines.extractive import agentic_rag, amem, mem0, memgpt, memorybank, rag, readagent
from memfly.llm.extractive.base import Function

FUNCTIONS: Mapping[str, Function] = {
    name: function
    for system in (rag, readagent, memorybank, memgpt, amem, mem0, agentic_rag)
    for name, function in system.FUNCTIONS.items()
}
"""Task name -> function."""
