"""What a memory system is to the harness: observe turns in order, finish, then answer recall requests.

A system owns its state, sees one conversation only, never reads the clock and never learns a question's category.
`recall` must not change what later recalls return, or questions leak into each other. This module holds the contract and
no behaviour.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Task
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from memfly.embed import Embedder
from memfly.llm.client import LLM
from memfly.tasks.base import Task as LLMTask
from memfly.types import Evidence, Question, SessionNotes, Turn


class EventLog(Protocol):
    """Receives the memory steps that matter (merge, link, append, fallback), as they happen."""

    def __call__(self, kind: str, /, **fields: Any) -> None: ...


def _ignore(kind: str, /, **fields: Any) -> None:
    """The default event log: keeps nothing."""


@dataclass(frozen=True)
class Services:
    """What the harness hands to a system for one conversation."""

    llm: LLM
    embedder: Embedder
    conversation: str
    """The conversation's id, for keying random draws and events."""
    speakers: tuple[str, str]
    seed: int = 0
    session_notes: Mapping[int, SessionNotes] = field(default_factory=dict)
    """Observations and summaries the data file ships per session number; only the RAG baselines read them."""
    log: EventLog = _ignore


class MemorySystem(ABC):
    """Base of every system. The constructor takes `services` first and its own options by keyword."""

    recall_options: ClassVar[frozenset[str]] = frozenset()
    """Names of constructor options that only `recall` reads. They are left out of the memory's fingerprint, so runs
    that differ in nothing else share one built memory."""

    tasks: ClassVar[tuple[LLMTask[Any, Any], ...]] = ()
    """All LLM tasks the system may run while it builds its memory (those of `recall`, too, where not told apart); their
    wording and schemas are part of the fingerprint."""

    recall_tasks: ClassVar[tuple[LLMTask[Any, Any], ...]] = ()
    """LLM tasks that only `recall` runs: part of the run's identity, not of the memory's fingerprint."""

    version: ClassVar[int] = 1
    """Raise it when a code change alters what a built memory contains; part of the fingerprint."""

    def prefetch(self, turn: Turn) -> None:  # noqa: B027 - optional hook, most systems have nothing to start early
        """Called in turn order, ahead of `observe`: may start work that does not depend on the memory.

        It must not let a later turn influence an earlier one; the result is the same when it is never called.
        """

    @abstractmethod
    async def observe(self, turn: Turn) -> None:
        """Take in one turn. Called once per turn, in conversation order, never concurrently."""

    async def finish(self) -> None:  # noqa: B027 - optional hook
        """Called once after the last turn (rebuild indices, write global summaries)."""

    def started(self) -> Iterable[Task[Any]]:
        """asyncio tasks that `prefetch` started and `observe` has not taken yet; cancelled when a build fails."""
        return ()

    @abstractmethod
    async def recall(self, question: Question) -> Evidence:
        """Evidence for one question. Read-only; called concurrently, in any order."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the state as JSON or npz (no pickle) into an existing empty folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Restore what `save` wrote; afterwards `recall` answers as it did before saving."""

    def stats(self) -> Mapping[str, int]:
        """Counts that describe the memory (notes, links, merges, fallbacks ...)."""
        return {}
