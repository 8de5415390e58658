"""RAG: units of the conversation in an index, the best k as evidence (docs/systems/rag.md).

Units are turns, observations, session summaries (as the data file ships them, or made by a model) or mem0's token chunks;
retrieval is BM25, dense, their rank fusion (hybrid) or their weighted sum. Nothing here reads a question but `recall`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from baselines.checks import check_choices, check_least
from baselines.rag_units import Unit, UnitKind, chunk_units, note_units, turn_units
from baselines.storage import load_state, passage_from_json, passage_to_json, save_state
from baselines.tasks.rag import RAG_OBSERVATIONS, RAG_SUMMARY
from memfly.index import Bm25Index, VectorIndex, rrf
from memfly.system import MemorySystem, Services
from memfly.tasks.base import Task
from memfly.text import content_stems
from memfly.types import Evidence, Question, Turn

Retriever = Literal["bm25", "dense", "hybrid", "sum"]
Source = Literal["auto", "file", "made"]
Order = Literal["time", "score"]
Scores = npt.NDArray[np.float64]
"""One number per unit, shape (units,)."""


@dataclass(frozen=True)
class _Index:
    sparse: Bm25Index
    dense: VectorIndex | None


class Rag(MemorySystem):
    """Top `k` units. Every option but `unit`, `source` and `chunk_tokens` is read by `recall` only.

    `context_turns`: a unit's BM25 terms include those of that many units before it in its session, and its own
    `own_weight` times. `dense_weight`: of the z-scored cosine added to the BM25 score (`sum` only).
    `smooth`: weight of the two neighbouring units of the session in the mean a unit's score is replaced by.
    """

    recall_options: ClassVar[frozenset[str]] = frozenset(
        "retriever k order embed_date k1 b context_turns own_weight depth rrf_constant dense_weight smooth".split()
    )
    tasks: ClassVar[tuple[Task[Any, Any], ...]] = (RAG_OBSERVATIONS, RAG_SUMMARY)

    def __init__(
        self,
        services: Services,
        *,
        unit: UnitKind = "turns",
        source: Source = "auto",
        chunk_tokens: int = 500,
        retriever: Retriever = "bm25",
        k: int = 20,
        order: Order = "time",
        embed_date: bool = False,
        k1: float = 1.2,
        b: float = 0.5,
        context_turns: int = 0,
        own_weight: int = 2,
        depth: int = 100,
        rrf_constant: float = 60.0,
        dense_weight: float = 0.4,
        smooth: float = 0.0,
    ) -> None:
        check_choices(unit=(unit, UnitKind), source=(source, Source), retriever=(retriever, Retriever))
        check_choices(order=(order, Order))
        check_least(chunk_tokens=(chunk_tokens, 16), k=(k, 1), depth=(depth, 1), own_weight=(own_weight, 1))
        check_least(context_turns=(context_turns, 0), k1=(k1, 0), b=(b, 0), smooth=(smooth, 0))
        check_least(rrf_constant=(rrf_constant, 0), dense_weight=(dense_weight, 0))
        self.services, self.unit, self.source, self.chunk_tokens = services, unit, source, chunk_tokens
        self.retriever, self.k, self.order, self.embed_date = retriever, k, order, embed_date
        self.k1, self.b, self.context_turns, self.own_weight = k1, b, context_turns, own_weight
        self.depth, self.rrf_constant, self.dense_weight, self.smooth = depth, rrf_constant, dense_weight, smooth
        self.turns: list[Turn] = []
        self.units: list[Unit] = []
        self.counts: Counter[str] = Counter()
        self._index: _Index | None = None
        self._indexing = asyncio.Lock()

    # -- building ------------------------------------------------------------------------------------------------

    async def observe(self, turn: Turn) -> None:
        self.turns.append(turn)

    async def finish(self) -> None:
        if self.unit == "turns":
            self.units = turn_units(self.turns)
        elif self.unit == "chunks":
            self.units = chunk_units(self.turns, self.chunk_tokens)
        else:
            self.units = await note_units(self.services, self.turns, self.unit, self.source, self.counts)
        self.counts |= Counter(turns=len(self.turns), units=len(self.units))
        self._index = await self._build_index()

    async def _build_index(self) -> _Index:
        """Both indices over all units; the dense one only where the retriever uses it."""
        sparse = Bm25Index(self.k1, self.b)
        terms = [content_stems(self._indexed(unit)) for unit in self.units]
        for position, own in enumerate(terms):
            before = self._before(position)
            repeats = self.own_weight if self.context_turns else 1
            sparse.set(position, [term for i in before for term in terms[i]] + own * repeats)
        dense = None
        if self.retriever != "bm25":
            dense = VectorIndex(self.services.embedder.dim)
            vectors = await self.services.embedder.embed([self._indexed(unit) for unit in self.units])
            for position, vector in enumerate(vectors):
                dense.set(position, vector)
        return _Index(sparse, dense)

    def _indexed(self, unit: Unit) -> str:
        return f"{unit.passage.date}. {unit.indexed}" if self.embed_date and unit.passage.date else unit.indexed

    def _before(self, position: int) -> range:
        """Positions of up to `context_turns` units before this one in its session."""
        low = position
        while position - low < self.context_turns and low > 0 and self._together(low, low - 1):
            low -= 1
        return range(low, position)

    def _together(self, one: int, other: int) -> bool:
        session = self.units[one].session
        return session is not None and session == self.units[other].session

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        scores = self._smoothed(await self._scores(question.text, await self._whole_index()))
        ranked = [int(i) for i in np.argsort(-scores, kind="stable")]
        if self.retriever in ("bm25", "hybrid"):
            ranked = [i for i in ranked if scores[i] > 0]  # neither index found the others
        best = ranked[: self.k]
        turns = tuple(dict.fromkeys(turn for i in best for turn in self.units[i].passage.turns))
        shown = sorted(best) if self.order == "time" else best
        passages = tuple(self.units[i].passage for i in shown)
        ranking = tuple(shown.index(i) for i in best)
        trace: dict[str, object] = {"retriever": self.retriever, "units_found": len(ranked)}
        return Evidence(passages, turns, ranking, traceable=self.unit != "summaries", trace=trace)

    async def _whole_index(self) -> _Index:
        """A loaded memory has none, since only texts are kept (the embedder caches their vectors): the first question
        builds it, and those that come meanwhile wait."""
        async with self._indexing:
            if self._index is None:
                self._index = await self._build_index()
            return self._index

    async def _scores(self, query: str, index: _Index) -> Scores:
        size = len(self.units)
        sparse, dense = np.zeros(size), np.zeros(size)
        for position, score in index.sparse.scores(content_stems(query)).items():
            sparse[position] = score
        if index.dense is None:
            return sparse
        vector = (await self.services.embedder.embed([query]))[0]
        found = index.dense.search(vector, size)
        for position, cosine in found:
            dense[position] = cosine
        if self.retriever == "dense":
            return dense
        if self.retriever == "sum":
            return sparse + self.dense_weight * _z(dense)
        lexical = [int(i) for i in np.argsort(-sparse, kind="stable") if sparse[i] > 0]
        lists = [lexical[: self.depth], [position for position, _ in found[: self.depth]]]
        fused = np.zeros(size)
        for position, score in rrf(lists, self.rrf_constant):
            fused[position] = score
        return fused

    def _smoothed(self, scores: Scores) -> Scores:
        """Weighted mean of each unit's score and its neighbours' in the session."""
        if not self.smooth:
            return scores
        total, weight = scores.copy(), np.ones(len(scores))
        for left in range(len(scores) - 1):
            if self._together(left, left + 1):
                total[left] += self.smooth * scores[left + 1]
                total[left + 1] += self.smooth * scores[left]
                weight[left : left + 2] += self.smooth
        return total / weight

    def stats(self) -> Mapping[str, int]:
        return dict(sorted(self.counts.items()))

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        units = [{"indexed": u.indexed, "session": u.session, **passage_to_json(u.passage)} for u in self.units]
        save_state(folder, {"units": units, "counts": self.counts})

    def load(self, folder: Path) -> None:
        state = load_state(folder)
        self.units = [Unit(passage_from_json(u), u["indexed"], u["session"]) for u in state["units"]]
        self.counts = Counter(state["counts"])
        self._index = None


def _z(values: Scores) -> Scores:
    """Values less their mean, over their standard deviation; zeros where all are equal."""
    spread = values.std() if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)
