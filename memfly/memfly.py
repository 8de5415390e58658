"""MemFly assembled: ingestion -> gate -> merge / link / append, topics, retrieval, refinement (arXiv 2602.07885).

The ablation switches of the paper's Table 3 live here and nowhere else: `update`, `denoise`, `merge.enabled`,
`link.enabled`, `retrieval.pathways`, `refine.rounds`. What is the paper's and what is ours, step by step, is in
docs/systems/memfly.md; the defaults in short are in the README's fidelity table.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from memfly.embed import Vectors
from memfly.errors import ConfigError, ParseError
from memfly.gate import CandidateOptions, Decision, GateOptions, decide, validate
from memfly.graph import MemoryGraph, Note, Piece
from memfly.index import Bm25Index, VectorIndex, rrf
from memfly.ingest import Draft, IngestOptions, KeywordOptions, draft_note, match_keywords
from memfly.llm.base import derive_seed
from memfly.options import Options, options
from memfly.refine import RefineOptions, Refiner
from memfly.retrieve import RetrievalOptions, Retriever
from memfly.system import MemorySystem, Services
from memfly.tasks.answer import INTERIM
from memfly.tasks.base import Task
from memfly.tasks.gate import GATE, GATE_MERGE, GATE_ONE_STRENGTH, GateCandidate, GateInput
from memfly.tasks.ingest import INGEST
from memfly.tasks.merge import MERGE, MergeInput
from memfly.tasks.question import QUESTION
from memfly.tasks.refine import SUBQUERY, SUFFICIENCY
from memfly.text import stems
from memfly.topics import TopicOptions, Topics
from memfly.types import Evidence, Passage, Question, Turn

Vector = npt.NDArray[np.float32]
NoteView = Literal["context", "raw", "both"]


class MergeOptions(Options):
    enabled: bool = True
    in_gate_reply: bool = False
    """Ask for the merged context inside the gate's reply instead of in a call of its own."""


class LinkOptions(Options):
    enabled: bool = True


class MemFly(MemorySystem):
    """One conversation's memory. `tau_m`, `tau_l` in [0, 1] (paper: 0.7, 0.5), compared strictly (Eq. 6)."""

    recall_options: ClassVar[frozenset[str]] = frozenset({"retrieval", "refine", "note_view"})
    tasks: ClassVar[tuple[Task[Any, Any], ...]] = (
        INGEST,
        GATE,
        GATE_MERGE,
        GATE_ONE_STRENGTH,
        MERGE,
    )
    recall_tasks: ClassVar[tuple[Task[Any, Any], ...]] = (QUESTION, SUFFICIENCY, SUBQUERY, INTERIM)
    version: ClassVar[int] = 5

    def __init__(
        self,
        services: Services,
        *,
        tau_m: float = 0.7,
        tau_l: float = 0.5,
        update: bool = True,
        denoise: bool = True,
        ingest: IngestOptions | Mapping[str, Any] | None = None,
        keywords: KeywordOptions | Mapping[str, Any] | None = None,
        candidates: CandidateOptions | Mapping[str, Any] | None = None,
        gate: GateOptions | Mapping[str, Any] | None = None,
        merge: MergeOptions | Mapping[str, Any] | None = None,
        link: LinkOptions | Mapping[str, Any] | None = None,
        topics: TopicOptions | Mapping[str, Any] | None = None,
        retrieval: RetrievalOptions | Mapping[str, Any] | None = None,
        refine: RefineOptions | Mapping[str, Any] | None = None,
        note_view: NoteView = "both",
    ) -> None:
        for name, value in (("tau_m", tau_m), ("tau_l", tau_l)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise ConfigError(f"method.{name}: {value!r} is outside [0, 1]")
        if note_view not in ("context", "raw", "both"):
            raise ConfigError(f"method.note_view: {note_view!r} is none of context, raw, both")
        self.services, self.tau_m, self.tau_l = services, tau_m, tau_l
        self.update, self.denoise, self.note_view = update, denoise, note_view
        self.ingest_options = options(IngestOptions, ingest, "method.ingest")
        self.keyword_options = options(KeywordOptions, keywords, "method.keywords")
        self.candidate_options = options(CandidateOptions, candidates, "method.candidates")
        self.gate_options = options(GateOptions, gate, "method.gate")
        self.merge_options = options(MergeOptions, merge, "method.merge")
        self.link_options = options(LinkOptions, link, "method.link")
        self.topic_options = options(TopicOptions, topics, "method.topics")
        self.retrieval_options = options(RetrievalOptions, retrieval, "method.retrieval")
        self.refine_options = options(RefineOptions, refine, "method.refine")
        if self.merge_options.in_gate_reply and self.gate_options.form != "two_scores":
            raise ConfigError("method.merge.in_gate_reply needs method.gate.form=two_scores")
        self.graph = MemoryGraph()
        self.topics = Topics()
        self.note_vectors: dict[int, Vector] = {}
        self.keyword_vectors: dict[str, Vector] = {}
        self.counts: Counter[str] = Counter()
        self._dense = VectorIndex(services.embedder.dim)
        self.sparse = Bm25Index()
        self._matrix: Vectors | None = None
        self._names: list[str] = []
        self._recent: list[Turn] = []
        self._drafts: dict[str, asyncio.Task[Draft]] = {}

    # -- building ------------------------------------------------------------------------------------------------

    def prefetch(self, turn: Turn) -> None:
        """Start the turn's ingestion call: it depends on the turn and the `ingest.window` before it only."""
        if turn.id in self._drafts:
            return
        preceding = self._recent[-self.ingest_options.window :] if self.ingest_options.window else []
        self._recent.append(turn)
        services = self.services
        work = draft_note(services.llm, services.embedder, turn, preceding, denoise=self.denoise)
        self._drafts[turn.id] = asyncio.create_task(work)

    def started(self) -> Iterable[asyncio.Task[Any]]:
        return self._drafts.values()

    async def observe(self, turn: Turn) -> None:
        self.prefetch(turn)
        draft = await self._drafts.pop(turn.id)
        self.counts["turns"] += 1
        if draft.fallback:
            self.counts["ingest_fallback"] += 1
            self.services.log("ingest_fallback", turn=turn.id)
        decision, merged_context = await self._gate(turn, draft)
        if decision.merge is not None:
            await self._merge(turn, draft, decision.merge, merged_context)
        else:
            self._append(turn, draft, decision)
        if self.counts["turns"] % self.topic_options.every == 0:
            self._rebuild_topics()

    async def finish(self) -> None:
        self._rebuild_topics()

    async def _candidates(self, turn: Turn, draft: Draft) -> list[Note]:
        """Dense and sparse neighbours of the draft, fused by RRF; how and how many is ours (docs/systems/memfly.md)."""
        if not self.update or not self.graph.notes:
            return []
        sizes = self.candidate_options
        dense = [i for i, _ in self._dense.search(draft.vector, sizes.k_dense)]
        sparse = [i for i, _ in self.sparse.search(_terms(draft.context, draft.keywords.values()), sizes.k_sparse)]
        return [self.graph.notes[i] for i, _ in rrf([dense, sparse])[: sizes.n]]

    async def _gate(self, turn: Turn, draft: Draft) -> tuple[Decision, str]:
        """The decision for a draft, and the merged context where the gate's reply brought one."""
        found = await self._candidates(turn, draft)
        if not found:
            return Decision(), ""
        shown = tuple(GateCandidate(n.id, n.date, n.context, tuple(self._phrases(n))) for n in found)
        value = GateInput(turn.date, draft.context, tuple(draft.keywords.values()), shown)
        task: Task[GateInput, Any] = GATE_ONE_STRENGTH if self.gate_options.form == "one_strength" else GATE
        if self.merge_options.in_gate_reply:
            task = GATE_MERGE
        try:
            output = await self.services.llm.run(task, value, purpose=turn.id)
        except ParseError:
            self.counts["gate_fallback"] += 1
            self.services.log("gate_fallback", turn=turn.id)
            return Decision(), ""
        verdicts, dropped = validate(output, {n.id for n in found})
        self.counts["gate_dropped_verdicts"] += dropped
        decision = decide(
            verdicts, self.tau_m, self.tau_l, merge=self.merge_options.enabled, link=self.link_options.enabled
        )
        return decision, _merged_context(output, decision)

    async def _merge(self, turn: Turn, draft: Draft, target: int, merged_context: str) -> None:
        """Eqs. 7-9: pieces and keywords united, context by F_merge (an unusable reply joins both texts, counted)."""
        note = self.graph.notes[target]
        context = merged_context
        if not context:
            value = MergeInput(note.date, note.context, turn.date, draft.context)
            try:
                context = (await self.services.llm.run(MERGE, value, purpose=turn.id)).context.strip()
            except ParseError:
                self.counts["merge_fallback"] += 1
                self.services.log("merge_fallback", turn=turn.id, note=target)
        context = context or f"{note.context} {draft.context}"
        vector = (await self.services.embedder.embed([context]))[0]
        self.graph.merge(target, [Piece.of(turn)], context, self._keywords(draft))
        self._store(note, vector, draft)
        self.counts["merges"] += 1
        self.services.log("merge", turn=turn.id, note=target)

    def _append(self, turn: Turn, draft: Draft, decision: Decision) -> None:
        note = self.graph.add([Piece.of(turn)], draft.context, self._keywords(draft))
        self._store(note, draft.vector, draft)
        for target, relation, strength in decision.links:
            self.graph.link(note.id, target, relation, strength)
            self.services.log("link", turn=turn.id, note=note.id, target=target, relation=relation, strength=strength)
        if not decision.links:
            self.services.log("append", turn=turn.id, note=note.id)

    def _keywords(self, draft: Draft) -> dict[str, str]:
        threshold = self.keyword_options.merge_cosine
        matrix = self.keyword_matrix() if threshold is not None and self._names else np.zeros((0, 0), np.float32)
        return match_keywords(draft, self._names, matrix, self.graph.phrases, threshold)

    def _store(self, note: Note, vector: Vector, draft: Draft) -> None:
        """Bring the indices up to the note's present state."""
        self.note_vectors[note.id] = vector
        self._dense.set(note.id, vector)
        self.sparse.set(note.id, _terms(note.context, self._phrases(note)))
        for key in note.keywords:
            if key not in self.keyword_vectors:
                self.keyword_vectors[key] = draft.keyword_vectors[key]
                self._names.append(key)
                self._matrix = None
                self.topics.place(key, self.graph.cooccur, self.keyword_vectors)

    def _rebuild_topics(self) -> None:
        seed = derive_seed(self.services.seed, self.services.conversation, "topics")
        self.topics.rebuild(self.graph.cooccur, self.keyword_vectors, self.topic_options, seed)

    def _phrases(self, note: Note) -> list[str]:
        return [self.graph.phrases[key] for key in note.keywords]

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def keyword_names(self) -> list[str]:
        return self._names

    def keyword_matrix(self) -> Vectors:
        """Keyword vectors in the order of `keyword_names`, shape (keywords, dim)."""
        if self._matrix is None:
            self._matrix = np.stack([self.keyword_vectors[key] for key in self._names])
        return self._matrix

    async def recall(self, question: Question) -> Evidence:
        services = self.services
        retriever = Retriever(self, services.llm, services.embedder, self.retrieval_options)
        notes, trace = await Refiner(retriever, services.llm, self.refine_options, self._lines).gather(question.text)
        ranked = tuple(dict.fromkeys(turn for i in notes for turn in self.graph.notes[i].turns))
        place = {note: position for position, note in enumerate(sorted(notes))}
        return Evidence(self._passages(notes), ranked, tuple(place[note] for note in notes), trace=trace)

    def _lines(self, notes: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"{p.date} | {p.text}" for p in self._passages(notes))

    def _passages(self, notes: Sequence[int]) -> tuple[Passage, ...]:
        """In time order: ids count up with the notes' first turns, also inside a session, whose turns share one time."""
        return tuple(self._passage(i) for i in sorted(notes))

    def _passage(self, note_id: int) -> Passage:
        """The note as shown: context, raw pieces, or both; a piece from another session carries its own date."""
        note = self.graph.notes[note_id]
        first = note.pieces[0]
        raw = [p.text if p.session == first.session else f"({p.date}) {p.text}" for p in note.pieces]
        lines = [] if self.note_view == "raw" else [note.context]
        if self.note_view != "context":
            lines += [line for line in raw if line not in lines]
        return Passage("\n".join(lines), note.turns, first.date, first.time)

    def stats(self) -> dict[str, int]:
        return {
            "notes": len(self.graph.notes),
            "keywords": len(self._names),
            "topics": len(self.topics.members),
            "links": self.graph.related.number_of_edges(),
            "merges": self.counts["merges"],
            "turns": self.counts["turns"],
            "gate_fallback": self.counts["gate_fallback"],
            "gate_dropped_verdicts": self.counts["gate_dropped_verdicts"],
            "ingest_fallback": self.counts["ingest_fallback"],
            "merge_fallback": self.counts["merge_fallback"],
        }

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        state = {
            "graph": self.graph.to_json(),
            "topics": self.topics.to_json(),
            "keywords": self._names,
            "counts": dict(sorted(self.counts.items())),
        }
        (folder / "memory.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        dim = self.services.embedder.dim
        notes = [self.note_vectors[i] for i in sorted(self.note_vectors)]
        keys = [self.keyword_vectors[key] for key in self._names]
        np.savez(
            folder / "vectors.npz",
            notes=np.stack(notes) if notes else np.zeros((0, dim), np.float32),
            keywords=np.stack(keys) if keys else np.zeros((0, dim), np.float32),
        )

    def load(self, folder: Path) -> None:
        state = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
        with np.load(folder / "vectors.npz", allow_pickle=False) as stored:
            note_rows, keyword_rows = stored["notes"], stored["keywords"]
        self.graph = MemoryGraph.from_json(state["graph"])
        self.counts = Counter(state["counts"])
        self._names = list(state["keywords"])
        self.keyword_vectors = dict(zip(self._names, keyword_rows, strict=True))
        self._matrix = None
        self.topics = Topics.from_json(state["topics"], self.keyword_vectors)
        for note in self.graph.notes.values():
            self.note_vectors[note.id] = note_rows[note.id]
            self._dense.set(note.id, note_rows[note.id])
            self.sparse.set(note.id, _terms(note.context, self._phrases(note)))


def _merged_context(output: Any, decision: Decision) -> str:
    """The gate reply's own merged text, unless it was written about another note: the prompt asks for the one with the
    highest s_red, which is not the target when that one conflicts, ties with another or was dropped."""
    scores = [(verdict.id, verdict.s_red) for verdict in output.verdicts if hasattr(verdict, "s_red")]
    best = max((score for _, score in scores), default=0.0)
    about = {note for note, score in scores if score == best}
    return getattr(output, "merged_context", "").strip() if about == {decision.merge} else ""


def _terms(context: str, phrases: Any) -> list[str]:
    """What the sparse index holds of a note: stems of its context and keywords."""
    return stems(" ".join([context, *phrases]))
