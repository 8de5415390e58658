"""A-MEM (arXiv 2502.12110): one note per turn, links and evolution by a joint call, linked notes shown with each hit.

Follows the authors' A-mem code; `conf/method/amem_legacy.yaml` is their earlier AgenticMemory. The index is stale by
design: a note that evolves keeps its old vector until every `evo_threshold`-th evolution rebuilds all of them
(so in memory_layer.py). k per question category is not offered: a system never learns the category.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from baselines.checks import check_choices, check_least
from baselines.storage import load_state, load_vectors, save_state, stack
from baselines.tasks.amem import (
    AMEM_ANALYSE,
    AMEM_EVOLVE,
    AMEM_KEYWORDS,
    AMEM_LINK,
    AnalyseInput,
    AnalyseOutput,
    EvolveInput,
    EvolveOutput,
    KeywordsInput,
    LinkOutput,
    Neighbour,
)
from memfly.errors import ParseError
from memfly.index import VectorIndex
from memfly.system import MemorySystem, Services
from memfly.types import Evidence, Passage, Question, Turn

EmbeddedText = Literal["labelled", "plain", "context_keywords"]
LinkLimit = Literal["per_hit", "shared"]
Evolution = Literal["full", "links", "none"]


@dataclass
class Note:
    """One turn as A-MEM keeps it; content and keywords never change, context and tags may. `links` are positions."""

    turn: str
    content: str
    date: str
    time: datetime
    keywords: list[str]
    context: str
    tags: list[str]
    links: list[int] = field(default_factory=list)

    def shown(self) -> str:
        """All fields, as the answerer reads them (the original runs them together without separators)."""
        return f"{self.content}\n{self.context}\n[keywords: {', '.join(self.keywords)} | tags: {', '.join(self.tags)}]"

    def embedded(self, form: EmbeddedText) -> str:
        """The text whose vector is stored when the note is inserted."""
        keywords, tags = ", ".join(self.keywords), ", ".join(self.tags)
        if form == "context_keywords":
            return f"{self.context} keywords: {keywords}"
        if form == "plain":
            return " ".join([self.content, *self.keywords, *self.tags, self.context])
        return f"content: {self.content} context: {self.context} keywords: {keywords} tags: {tags}"

    def embedded_at_rebuild(self) -> str:
        """The third format, used for every note when the whole index is rebuilt."""
        return f"{self.content} , {self.context} {' '.join(self.keywords)} {' '.join(self.tags)}"


class AMem(MemorySystem):
    """A-MEM on one conversation. Options and their sources are in conf/method/amem.yaml."""

    recall_options: ClassVar[frozenset[str]] = frozenset({"k", "link_limit", "linked_notes", "repeat_notes"})
    tasks = (AMEM_ANALYSE, AMEM_EVOLVE, AMEM_LINK)
    recall_tasks = (AMEM_KEYWORDS,)

    def __init__(
        self,
        services: Services,
        *,
        k: int = 10,
        neighbours: int = 5,
        evolution: Evolution = "full",
        evo_threshold: int = 100,
        embedded_text: EmbeddedText = "labelled",
        check_links: bool = True,
        link_limit: LinkLimit = "per_hit",
        linked_notes: int | None = None,
        repeat_notes: bool = True,
    ) -> None:
        check_choices(evolution=(evolution, Evolution), link_limit=(link_limit, LinkLimit))
        check_choices(embedded_text=(embedded_text, EmbeddedText))
        self.linked_notes = k if linked_notes is None else linked_notes
        check_least(k=(k, 1), neighbours=(neighbours, 0), evo_threshold=(evo_threshold, 0))
        check_least(linked_notes=(self.linked_notes, 0))
        self.services = services
        self.k, self.neighbours, self.evolution, self.evo_threshold = k, neighbours, evolution, evo_threshold
        self.embedded_text, self.check_links = embedded_text, check_links
        self.link_limit, self.repeat_notes = link_limit, repeat_notes
        self.notes: list[Note] = []
        self.evolutions = 0
        self.counts: Counter[str] = Counter()
        self._vectors: list[npt.NDArray[np.float32]] = []
        self._index = VectorIndex(services.embedder.dim)
        self._started: dict[str, asyncio.Task[AnalyseOutput | None]] = {}

    # -- building ------------------------------------------------------------------------------------------------

    def prefetch(self, turn: Turn) -> None:
        """Start the analyse call: it depends on the turn alone."""
        if turn.id not in self._started:
            self._started[turn.id] = asyncio.create_task(self._analyse(turn))

    def started(self) -> Iterable[asyncio.Task[Any]]:
        return self._started.values()

    async def observe(self, turn: Turn) -> None:
        self.prefetch(turn)
        found = await self._started.pop(turn.id)
        if found is None:
            self._fallback("analyse_fallback", turn)
            found = AnalyseOutput(keywords=[], context=turn.text[:2000], tags=[])
        note = Note(turn.id, turn.render(), turn.date, turn.time, found.keywords, found.context, found.tags)
        evolved = self.evolution != "none" and await self._evolve(note, turn)
        self.notes.append(note)
        vector = (await self.services.embedder.embed([note.embedded(self.embedded_text)]))[0]
        self._vectors.append(vector)
        self._index.set(len(self.notes) - 1, vector)
        if evolved:
            self.evolutions += 1
            if self.evo_threshold and self.evolutions % self.evo_threshold == 0:
                await self._rebuild()

    async def _analyse(self, turn: Turn) -> AnalyseOutput | None:
        """Keywords, context and tags of a turn; None when no reply could be used. The vector `_evolve` will ask for is
        made on the way, in company with other turns'."""
        try:
            reply = await self.services.llm.run(AMEM_ANALYSE, AnalyseInput(turn.render()), purpose=turn.id)
            if self.evolution != "none":
                await self.services.embedder.embed([turn.render()])
            return reply
        except ParseError:
            return None

    async def _evolve(self, note: Note, turn: Turn) -> bool:
        """The joint call on the new note and its nearest notes; True when the reply evolves the memory."""
        vector = (await self.services.embedder.embed([note.content]))[0]
        near = [position for position, _ in self._index.search(vector, self.neighbours)]
        value = EvolveInput(note.content, note.context, tuple(note.keywords), tuple(self._neighbour(i) for i in near))
        reply: LinkOutput
        try:
            if self.evolution == "links":
                reply = await self.services.llm.run(AMEM_LINK, value, purpose=turn.id)
            else:
                full = await self.services.llm.run(AMEM_EVOLVE, value, purpose=turn.id)
                reply = full
        except ParseError:
            self._fallback("evolve_fallback", turn)
            return False
        if not reply.should_evolve:
            return False
        allowed = {"strengthen"} if self.evolution == "links" else {"strengthen", "update_neighbor"}
        self.counts["unknown_actions"] += sum(action not in allowed for action in reply.actions)
        if "strengthen" in reply.actions:
            self._strengthen(note, reply)
        if "update_neighbor" in reply.actions and isinstance(reply, EvolveOutput):
            self._update_neighbours(near, reply)
        return True

    def _neighbour(self, position: int) -> Neighbour:
        note = self.notes[position]
        return Neighbour(position, note.date, note.content, note.context, tuple(note.keywords), tuple(note.tags))

    def _strengthen(self, note: Note, reply: LinkOutput) -> None:
        """Links and tags of the new note. Links go one way; what does not name an earlier note, or repeats, is
        counted and dropped (the original stores it, and fails at query time)."""
        position = len(self.notes)
        for target in reply.suggested_connections:
            problem = _link_problem(target, position, note.links)
            if problem:
                self.counts[problem] += 1
                if self.check_links:
                    continue
            note.links.append(target)
            self.services.log("link", note=position, target=target)
        note.tags = list(reply.tags_to_update)

    def _update_neighbours(self, near: list[int], reply: EvolveOutput) -> None:
        """Tags of as many neighbours as there are tag lists, and contexts as far as those are given."""
        for entry, position in enumerate(near[: len(reply.new_tags_neighborhood)]):
            self.notes[position].tags = list(reply.new_tags_neighborhood[entry])
            if entry < len(reply.new_context_neighborhood):
                self.notes[position].context = reply.new_context_neighborhood[entry]
            self.counts["neighbour_updates"] += 1
            self.services.log("update_neighbour", note=position, by=len(self.notes))

    async def _rebuild(self) -> None:
        vectors = await self.services.embedder.embed([note.embedded_at_rebuild() for note in self.notes])
        self._vectors, self._index = list(vectors), VectorIndex(self.services.embedder.dim)
        for position, vector in enumerate(vectors):
            self._index.set(position, vector)
        self.counts["rebuilds"] += 1

    def _fallback(self, kind: str, turn: Turn) -> None:
        self.counts[kind] += 1
        self.services.log(kind, turn=turn.id)

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        """Hits by cosine to the question's keywords, each followed by its linked notes (A-MEM's own order, not time)."""
        keywords, fallback = question.text, False
        try:
            reply = await self.services.llm.run(AMEM_KEYWORDS, KeywordsInput(question.text), purpose="keywords")
            keywords = reply.keywords.strip() or question.text
        except ParseError:
            fallback = True
            self.services.log("keywords_fallback", question=question.id)
        vector = (await self.services.embedder.embed([keywords]))[0]
        hits = [position for position, _ in self._index.search(vector, self.k)]
        shown = list(self._with_links(hits))
        ranked = dict.fromkeys(self.notes[position].turn for position in [*hits, *shown])
        order = shown if self.repeat_notes else list(dict.fromkeys(shown))
        ranking = tuple(order.index(position) for position in hits)  # the notes found, then those linked to them
        trace: dict[str, object] = {"keywords": keywords, "hits": len(hits), "linked": len(shown) - len(hits)}
        if fallback:
            trace["keywords_fallback"] = True
        return Evidence(tuple(self._passage(position) for position in order), tuple(ranked), ranking, trace=trace)

    def _with_links(self, hits: list[int]) -> Iterator[int]:
        """Each hit, then its linked notes. The original looks at its counter after printing: `linked_notes` + 1 notes
        pass, and with a shared counter one more for every later hit that has links."""
        used = 0
        for hit in hits:
            yield hit
            if self.link_limit == "per_hit":
                used = 0
            for target in self.notes[hit].links:
                if not -len(self.notes) <= target < len(self.notes):
                    continue  # only with check_links off; the original stops with an IndexError here
                yield target % len(self.notes)
                if used >= self.linked_notes:
                    break
                used += 1

    def _passage(self, position: int) -> Passage:
        note = self.notes[position]
        return Passage(note.shown(), (note.turn,), note.date, note.time)

    def stats(self) -> Mapping[str, int]:
        names = (
            "analyse_fallback evolve_fallback links_out_of_range links_to_self links_repeated unknown_actions "
            "neighbour_updates rebuilds"
        ).split()
        links = sum(len(note.links) for note in self.notes)
        counted = {name: self.counts[name] for name in names}
        return {"notes": len(self.notes), "links": links, "evolutions": self.evolutions} | counted

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        notes = [asdict(note) | {"time": note.time.isoformat()} for note in self.notes]
        state: dict[str, Any] = {"notes": notes, "evolutions": self.evolutions, "counts": dict(self.counts)}
        save_state(folder, state, stack(self._vectors, self.services.embedder.dim))

    def load(self, folder: Path) -> None:
        state = load_state(folder)
        self.notes = [Note(**(note | {"time": datetime.fromisoformat(note["time"])})) for note in state["notes"]]
        self.evolutions, self.counts = state["evolutions"], Counter(state["counts"])
        self._vectors = list(load_vectors(folder))
        for position, vector in enumerate(self._vectors):
            self._index.set(position, vector)


def _link_problem(target: int, position: int, links: list[int]) -> str:
    """Why a suggested link of the note at `position` is dropped; empty when it is good."""
    if target == position:
        return "links_to_self"
    if not 0 <= target < position:
        return "links_out_of_range"
    return "links_repeated" if target in links else ""
