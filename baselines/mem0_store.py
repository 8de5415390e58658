"""One speaker's memories in Mem0: entries with vectors, search, and the application of an update reply.

The model sees ids "0", "1", ... instead of the store's own, so it cannot invent one that exists (mem0's
mem0/memory/main.py). What a reply gets wrong is skipped and counted, entry by entry. Makes no LLM call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from baselines.storage import stack
from baselines.tasks.mem0 import UpdateEntry
from memfly.embed import Embedder, Vectors
from memfly.index import VectorIndex

NO_CHANGE = frozenset({"NOOP", "NONE"})
SKIPS = ("skipped_empty_text", "skipped_integer_id", "skipped_unknown_id", "skipped_unknown_event")


@dataclass
class Entry:
    """`created` is the session date of the first fact; `date` and `time` are those of the last change."""

    text: str
    turns: list[str]
    created: str
    date: str
    time: datetime


@dataclass(frozen=True)
class Origin:
    """Where new facts come from: source turn ids and the session's date."""

    turns: tuple[str, ...]
    date: str
    time: datetime


class Store:
    """Entries under ids that are never used twice."""

    def __init__(self, owner: str, dim: int) -> None:
        self.owner = owner
        self.entries: dict[int, Entry] = {}
        self.counts: Counter[str] = Counter()
        self._next = 0
        self._dim = dim
        self._vectors: dict[int, npt.NDArray[np.float32]] = {}
        self._index = VectorIndex(dim)

    def search(self, vector: npt.NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Up to k (id, cosine), best first."""
        return self._index.search(vector, k)

    def similar(self, vectors: Vectors, s: int) -> list[int]:
        """Ids of the `s` nearest entries of each vector, united in order of first appearance."""
        return list(dict.fromkeys(item for vector in vectors for item, _ in self.search(vector, s)))

    async def apply(
        self, reply: Sequence[UpdateEntry], shown: Sequence[int], origin: Origin, embedder: Embedder
    ) -> None:
        """Carry out the entries in order; id "i" of a reply stands for `shown[i]`."""
        numbered = {str(number): item for number, item in enumerate(shown)}
        for change in reply:
            event, text = change.event.strip().upper(), change.text.strip()
            target = numbered.get(change.id) if isinstance(change.id, str) else None
            if not text:
                self.counts["skipped_empty_text"] += 1
            elif event == "ADD":
                await self._put(
                    self._next, Entry(text, list(origin.turns), origin.date, origin.date, origin.time), embedder
                )
                self._next += 1
                self.counts["added"] += 1
            elif event in NO_CHANGE:
                self.counts["unchanged"] += 1
            elif event not in ("UPDATE", "DELETE"):
                self.counts["skipped_unknown_event"] += 1
            elif isinstance(change.id, int):
                self.counts["skipped_integer_id"] += 1
            elif target is None or target not in self.entries:
                self.counts["skipped_unknown_id"] += 1
            elif event == "DELETE":
                self._remove(target)
                self.counts["deleted"] += 1
            else:
                await self._update(target, text, origin, embedder)
                self.counts["updated"] += 1

    async def _update(self, item: int, text: str, origin: Origin, embedder: Embedder) -> None:
        """New text and vector; `created` stays, the date shown becomes the new session's, source turns are united."""
        old = self.entries[item]
        turns = list(dict.fromkeys([*old.turns, *origin.turns]))
        await self._put(item, Entry(text, turns, old.created, origin.date, origin.time), embedder)

    async def _put(self, item: int, entry: Entry, embedder: Embedder) -> None:
        vector = (await embedder.embed([entry.text]))[0]
        self.entries[item], self._vectors[item] = entry, vector
        self._index.set(item, vector)

    def _remove(self, item: int) -> None:
        del self.entries[item], self._vectors[item]
        self._index.remove(item)

    def to_json(self) -> dict[str, Any]:
        entries = [asdict(e) | {"id": item, "time": e.time.isoformat()} for item, e in self.entries.items()]
        return {"owner": self.owner, "next": self._next, "entries": entries, "counts": dict(self.counts)}

    def vectors(self) -> Vectors:
        """Rows in the order of `entries`."""
        return stack([self._vectors[item] for item in self.entries], self._dim)

    @classmethod
    def from_json(cls, data: dict[str, Any], vectors: Vectors, dim: int) -> Store:
        store = cls(data["owner"], dim)
        store._next, store.counts = data["next"], Counter(data["counts"])
        for stored, vector in zip(data["entries"], vectors, strict=True):
            item, time = stored["id"], datetime.fromisoformat(stored["time"])
            store.entries[item] = Entry(stored["text"], stored["turns"], stored["created"], stored["date"], time)
            store._vectors[item] = vector
            store._index.set(item, vector)
        return store
