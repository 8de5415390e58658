"""Tri-pathway retrieval: topic, keyword and neighbour lists fused by RRF (MemFly 3.4.1).

Reads the memory and changes nothing. Ours: a list is ordered by cosine(question, h_n), ties by note id (`order` offers BM25
instead); the neighbour list is a third RRF list, or is appended after the fused two; a plain dense pathway is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from memfly.embed import Embedder, Vectors
from memfly.errors import ParseError
from memfly.graph import MemoryGraph
from memfly.index import Bm25Index, rrf
from memfly.keywords import canonical_map
from memfly.llm.client import LLM
from memfly.options import Options
from memfly.tasks.question import QUESTION, QuestionInput
from memfly.text import STOPWORDS, stems, words
from memfly.topics import Topics

Pathway = Literal["topic", "keyword", "neighbour", "dense"]
Vector = npt.NDArray[np.float32]
_NO_SCORES: Mapping[int, float] = MappingProxyType({})


class RetrievalOptions(Options):
    pathways: tuple[Pathway, ...] = ("topic", "keyword", "neighbour")
    k_topic: int = Field(default=3, ge=1)
    k_key: int = Field(default=10, ge=1)
    k_dense: int = Field(default=20, ge=1)
    """Length of the dense list, where `pathways` has it."""
    k_final: int = Field(default=20, ge=1)
    order: Literal["cosine", "bm25", "both"] = "cosine"
    """How notes are ordered inside a list: by cosine or by BM25 to the question, or by the RRF of both orders."""
    rrf_constant: float = Field(default=60.0, gt=0)
    neighbours: Literal["list", "append"] = "list"
    directed: bool = False
    """Follow RELATED edges only from newer to older notes."""

    @field_validator("pathways")
    @classmethod
    def _some(cls, value: tuple[Pathway, ...]) -> tuple[Pathway, ...]:
        if not value or set(value) == {"neighbour"}:
            raise ValueError("needs at least one of topic, keyword, dense (neighbours start from their notes)")
        return value


class MemoryView(Protocol):
    """What retrieval reads of a memory."""

    graph: MemoryGraph
    topics: Topics
    note_vectors: dict[int, Vector]
    sparse: Bm25Index

    @property
    def keyword_names(self) -> list[str]: ...

    def keyword_matrix(self) -> Vectors: ...


@dataclass(frozen=True)
class Retrieved:
    """Fused notes, best first, and what each pathway found, for the record."""

    ranked: tuple[tuple[int, float], ...]
    trace: dict[str, Any]


class Retriever:
    def __init__(self, memory: MemoryView, llm: LLM, embedder: Embedder, options: RetrievalOptions) -> None:
        self.memory, self.llm, self.embedder, self.options = memory, llm, embedder, options

    async def retrieve(self, question: str) -> Retrieved:
        """Read the question (one call), run the pathways, fuse, cut at k_final."""
        fallback = False
        try:
            plan = await self.llm.run(QUESTION, QuestionInput(question), purpose=question)
            topic, keys = plan.topic_desc.strip() or question, list(canonical_map(plan.keywords).values())
        except ParseError:
            fallback = True
            topic, keys = question, [w for w in dict.fromkeys(words(question)) if w not in STOPWORDS][:5]
        vectors = await self.embedder.embed([question, topic, *keys])
        scores = self.memory.sparse.scores(stems(question)) if self.options.order != "cosine" else {}
        lists = self._lists(vectors[0], vectors[1], vectors[2:], scores)
        fused = self._fuse(lists)[: self.options.k_final]
        trace: dict[str, Any] = {"query": question, "topic": topic, "keywords": keys}
        trace.update({f"n_{name}": len(found) for name, found in lists.items()})
        if fallback:
            trace["parse_fallback"] = True
        return Retrieved(tuple(fused), trace)

    def _lists(
        self, question: Vector, topic: Vector, keys: Vectors, scores: Mapping[int, float] = _NO_SCORES
    ) -> dict[str, list[int]]:
        """The pathways' lists; `scores` are the notes' BM25 scores for the question, where `order` uses them."""
        memory, options = self.memory, self.options
        lists: dict[str, list[int]] = {}
        if "topic" in options.pathways:
            members = [k for t in memory.topics.nearest(topic, options.k_topic) for k in memory.topics.members[t]]
            lists["topic"] = self._order(self._carriers(members), question, scores)
        if "keyword" in options.pathways:
            lists["keyword"] = self._order(self._carriers(self._near_keywords(keys)), question, scores)
        if "dense" in options.pathways:
            lists["dense"] = self._order(memory.graph.notes, question, scores)[: options.k_dense]
        if "neighbour" in options.pathways:
            start = {note for found in lists.values() for note in found}
            near = memory.graph.neighbours(start, directed=options.directed)
            lists["neighbour"] = self._order(near, question, scores)
        return lists

    def _fuse(self, lists: dict[str, list[int]]) -> list[tuple[int, float]]:
        if self.options.neighbours == "list":
            return rrf(lists.values(), self.options.rrf_constant)
        main = rrf([found for name, found in lists.items() if name != "neighbour"], self.options.rrf_constant)
        floor = main[-1][1] if main else 1.0
        tail = lists.get("neighbour", [])
        return main + [(note, floor / (1 + rank)) for rank, note in enumerate(tail, 1)]

    def _carriers(self, keywords: Iterable[str]) -> set[int]:
        carriers = self.memory.graph.carriers
        return {note for keyword in keywords for note in carriers.get(keyword, ())}

    def _near_keywords(self, keys: Vectors) -> list[str]:
        names = self.memory.keyword_names
        if not names or not len(keys):
            return []
        matrix = self.memory.keyword_matrix()
        found: dict[str, None] = {}
        for key in keys:
            cosines = matrix @ key
            order = np.lexsort((np.arange(len(names)), -cosines))[: self.options.k_key]
            found.update((names[int(i)], None) for i in order)
        return list(found)

    def _order(self, notes: Iterable[int], question: Vector, scores: Mapping[int, float] = _NO_SCORES) -> list[int]:
        vectors, found, how = self.memory.note_vectors, list(notes), self.options.order
        by_cosine = sorted(found, key=lambda note: (-float(np.dot(vectors[note], question)), note))
        if how == "cosine":
            return by_cosine
        by_bm25 = sorted(by_cosine, key=lambda note: -scores.get(note, 0.0))
        if how == "bm25":
            return by_bm25
        return [note for note, _ in rrf([by_cosine, by_bm25], self.options.rrf_constant)]


def pool(rounds: Sequence[Retrieved], k_final: int) -> list[int]:
    """Notes of several retrievals by accumulated RRF score, best first, cut at k_final; ties by first appearance."""
    total: dict[int, float] = {}
    for found in rounds:
        for note, score in found.ranked:
            total[note] = total.get(note, 0.0) + score
    order = {note: i for i, note in enumerate(total)}
    return sorted(total, key=lambda note: (-total[note], order[note]))[:k_final]
