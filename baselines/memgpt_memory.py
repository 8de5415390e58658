"""MemGPT's memory tiers apart from the message queue: core blocks, recall and archival storage.

After MemGPT 0.2.9 (memgpt/memory.py); departures are in docs/systems/memgpt.md. Errors a model can cause are ValueErrors
with a message for it. No LLM call, no clock: times come with the passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import numpy.typing as npt

from baselines.tasks.memgpt import RecallSearch
from memfly.embed import Embedder
from memfly.index import Bm25Index
from memfly.text import content_stems, count_tokens, cut_tokens, stems
from memfly.types import Passage

CHUNK_TOKENS = 300
ARCHIVAL_TOP = 100
SOURCE_SHARE = 0.6
"""A turn is a source of a text the agent wrote if this share of the turn's content words is in it (ours)."""
_WINDOW_CHARS = 2400


@dataclass
class Core:
    """Named blocks that are always in the prompt, each at most `limit` characters."""

    limit: int
    blocks: dict[str, str]

    def append(self, name: str, content: str) -> None:
        text = self._block(name)
        self._set(name, f"{text}\n{content}" if text else content)

    def replace(self, name: str, old: str, new: str) -> None:
        """`old` must occur; an empty `new` deletes it."""
        text = self._block(name)
        if not old:
            raise ValueError("old_content is empty; give the exact text to replace, or use core_memory_append")
        if old not in text:
            raise ValueError(f"old_content does not occur in block {name}; it must match exactly")
        self._set(name, text.replace(old, new))

    def fork(self) -> Core:
        return Core(self.limit, dict(self.blocks))

    def _block(self, name: str) -> str:
        if name not in self.blocks:
            raise ValueError(f"there is no block {name!r}; blocks: {', '.join(self.blocks)}")
        return self.blocks[name]

    def _set(self, name: str, text: str) -> None:
        if len(text) > self.limit:
            raise ValueError(
                f"block {name} would have {len(text)} characters, its limit is {self.limit}; shorten it or use archival memory"
            )
        self.blocks[name] = text


@dataclass
class Recall:
    """Every message of the ingest, eviction or not; those shown while a question is answered are not added (ours)."""

    entries: list[Passage] = field(default_factory=list)
    _bm25: Bm25Index = field(default_factory=Bm25Index)
    _indexed: int = 0

    def add(self, entry: Passage) -> None:
        self.entries.append(entry)

    def search(self, query: str, form: RecallSearch) -> list[Passage]:
        """substring: all that contain the query as a whole, letter case ignored, oldest first; bm25: best first."""
        if not query.strip():
            raise ValueError("the query is empty")
        if form == "substring":
            wanted = query.casefold()
            return [entry for entry in self.entries if wanted in entry.text.casefold()]
        for position in range(self._indexed, len(self.entries)):
            self._bm25.set(position, stems(self.entries[position].text))
        self._indexed = len(self.entries)
        return [self.entries[position] for position, _ in self._bm25.search(stems(query), len(self.entries))]

    def between(self, start: str, end: str) -> list[Passage]:
        """Messages of the days from `start` to `end` (ISO dates, both included), oldest first."""
        try:
            first, last = date.fromisoformat(start.strip()[:10]), date.fromisoformat(end.strip()[:10])
        except ValueError:
            raise ValueError("start_date and end_date must be dates of the form YYYY-MM-DD") from None
        return [entry for entry in self.entries if entry.time is not None and first <= entry.time.date() <= last]


@dataclass
class Archival:
    """Texts with vectors. A fork shares what is there and keeps its own additions to itself."""

    embedder: Embedder
    entries: list[Passage] = field(default_factory=list)
    vectors: list[npt.NDArray[np.float32]] = field(default_factory=list)

    async def insert(self, passages: Sequence[Passage]) -> None:
        self.vectors += list(await self.embedder.embed([f"{p.date} | {p.text}" for p in passages]))
        self.entries += passages

    async def search(self, query: str) -> list[Passage]:
        """The 100 nearest by cosine, best first, older first among equals."""
        if not query.strip():
            raise ValueError("the query is empty")
        if not self.entries:
            return []
        scores = np.stack(self.vectors) @ (await self.embedder.embed([query]))[0]
        order = np.argsort(-scores, kind="stable")[:ARCHIVAL_TOP]
        return [self.entries[position] for position in order]

    def fork(self) -> Archival:
        return Archival(self.embedder, list(self.entries), list(self.vectors))


def split_at_space(text: str, n: int = CHUNK_TOKENS) -> Iterator[str]:
    """Pieces of at most `n` tokens, cut at white space where there is some and without it at either end. Together they
    are the text but for white space."""
    start = 0
    while start < len(text):
        window = text[start : start + _WINDOW_CHARS]
        piece = cut_tokens(window, n) or window[:1]
        if start + len(piece) < len(text):
            at = max(piece.rfind(" "), piece.rfind("\n"))
            piece = piece[: at + 1] if at > 0 else piece
        start += len(piece)
        if piece.strip():
            yield piece.strip()


def pack(passages: Iterable[Passage], n: int = CHUNK_TOKENS) -> list[Passage]:
    """Turns joined to chunks of at most about `n` tokens that never span two sessions; a longer turn is split."""
    chunks: list[Passage] = []
    size = 0
    for passage in passages:
        for piece in split_at_space(passage.text, n):
            tokens = count_tokens(piece)
            last = chunks[-1] if chunks else None
            if last is not None and last.date == passage.date and size + tokens <= n:
                turns = tuple(dict.fromkeys([*last.turns, *passage.turns]))
                chunks[-1] = Passage(f"{last.text}\n{piece}", turns, passage.date, passage.time)
                size += tokens
            else:
                chunks.append(Passage(piece, passage.turns, passage.date, passage.time))
                size = tokens
    return chunks


def sources(text: str, turns: Iterable[Passage]) -> list[Passage]:
    """The turns whose content words the text largely repeats: where an agent's own words come from, as far as known."""
    said = set(content_stems(text))
    found = []
    for turn in dict.fromkeys(turns):
        words = set(content_stems(turn.text))
        if words and len(words & said) >= SOURCE_SHARE * len(words):
            found.append(turn)
    return found
