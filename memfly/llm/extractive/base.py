"""What a task function of the extractive backbone is: typed input and tools in, typed output out, deterministic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from memfly.embed import Embedder
from memfly.tasks.base import TaskOutput


@dataclass(frozen=True)
class Tools:
    """What a task function may use besides its input. No clock, no randomness, no state from call to call."""

    embedder: Embedder


Function = Callable[[Any, Tools], Awaitable[TaskOutput]]
"""Does one task from its input alone (nothing that the prompt would not show)."""
