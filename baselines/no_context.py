"""No context: the answerer sees the question alone. The floor of every table, and a check for answers known by heart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from baselines.storage import load_state, save_state
from memfly.system import MemorySystem, Services
from memfly.types import Evidence, Question, Turn


class NoContext(MemorySystem):
    """Forgets everything. No options, no calls."""

    recall_options: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, services: Services) -> None:
        self.services = services
        self.turns = 0

    async def observe(self, turn: Turn) -> None:
        self.turns += 1

    async def recall(self, question: Question) -> Evidence:
        return Evidence(())

    def stats(self) -> Mapping[str, int]:
        return {"turns": self.turns}

    def save(self, folder: Path) -> None:
        save_state(folder, {"turns": self.turns})

    def load(self, folder: Path) -> None:
        self.turns = load_state(folder)["turns"]
