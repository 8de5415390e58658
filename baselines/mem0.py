"""Mem0 (arXiv 2504.19413): facts per speaker, kept up to date by ADD / UPDATE / DELETE / NOOP calls.

`form: paper` gives the extraction a rolling summary and the last `m` messages and compares each fact with `s` = 10
memories; `form: oss` is the open-source code of mid 2025: no summary, no messages, 5 memories. The graph variant and the
hosted platform's undocumented differences are out of scope (docs/systems/mem0.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from baselines.checks import check_choices, check_least
from baselines.mem0_store import SKIPS, Origin, Store
from baselines.storage import load_state, load_vectors, save_state
from baselines.tasks.mem0 import (
    MEM0_EXTRACT,
    MEM0_SUMMARY,
    MEM0_UPDATE,
    ExtractInput,
    SummaryInput,
    UpdateInput,
)
from memfly.errors import ParseError
from memfly.system import MemorySystem, Services
from memfly.together import together
from memfly.types import Evidence, Passage, Question, Turn, shown_in_time_order

Form = Literal["paper", "oss"]
Facts = asyncio.Task[tuple[str, ...] | None]
"""Facts of one pair for one owner; None when no reply could be used."""
Summary = asyncio.Task[tuple[str, bool]]
"""The summary, and whether the call for it failed (it is the summary before, then)."""
Event = tuple[str, dict[str, Any]]


@dataclass
class _Pair:
    """Two messages of one session, or its odd last one, and the extraction calls under way for them."""

    turns: list[Turn]
    facts: tuple[Facts, ...] = ()
    summary: Summary | None = None
    """The summary call that was due after this pair."""


class Mem0(MemorySystem):
    """Two stores per conversation, one for each speaker. Options and their sources are in conf/method/mem0.yaml."""

    version = 2
    recall_options: ClassVar[frozenset[str]] = frozenset({"k"})
    tasks = (MEM0_SUMMARY, MEM0_EXTRACT, MEM0_UPDATE)

    def __init__(
        self,
        services: Services,
        *,
        form: Form = "paper",
        m: int = 10,
        s: int = 10,
        summary_every: int = 10,
        k: int = 10,
        captions: bool = False,
    ) -> None:
        check_choices(form=(form, Form))
        check_least(m=(m, 0), s=(s, 1), k=(k, 1), summary_every=(summary_every, 2))
        self.services = services
        self.form, self.m, self.s, self.summary_every, self.k, self.captions = form, m, s, summary_every, k, captions
        dim = services.embedder.dim
        self.stores = [Store(speaker, dim) for speaker in services.speakers]
        self.counts: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._observed = 0
        self._open: list[Turn] = []
        self._pairs: deque[_Pair] = deque()
        self._recent: list[str] = []
        self._unsummarised: list[str] = []
        self._summary: Summary | None = None

    # -- reading ahead: summary and extraction do not depend on the stores ---------------------------------------

    def prefetch(self, turn: Turn) -> None:
        """Form pairs and start their extraction calls; a session's odd last turn waits for the next session."""
        if turn.id in self._begun:
            return
        self._begun.add(turn.id)
        if self._open and self._open[0].session != turn.session:
            self._close_pair()
        self._open.append(turn)
        if len(self._open) == 2:
            self._close_pair()

    def _close_pair(self) -> None:
        turns, self._open = self._open, []
        lines = [f"({turn.date}) {self._line(turn)}" for turn in turns]
        previous = tuple(self._recent[-self.m :]) if self.form == "paper" and self.m else ()
        facts = tuple(
            asyncio.create_task(self._extract(store.owner, turns, previous, self._summary)) for store in self.stores
        )
        pair = _Pair(turns, facts)
        self._pairs.append(pair)
        if self.form == "paper":
            self._recent = [*self._recent, *lines][-max(self.m, 2) :]
            self._unsummarised += lines
            if len(self._unsummarised) >= self.summary_every:
                work = self._summarise(self._summary, self._unsummarised, turns[-1].id)
                self._summary = pair.summary = asyncio.create_task(work)
                self._unsummarised = []

    def _line(self, turn: Turn) -> str:
        return turn.render() if self.captions else f"{turn.speaker}: {turn.text}"

    async def _summarise(self, before: Summary | None, lines: list[str], upto: str) -> tuple[str, bool]:
        """The summary brought up to date; the one before when no reply could be used."""
        previous = (await before)[0] if before is not None else ""
        try:
            value = SummaryInput(previous, tuple(lines))
            return (await self.services.llm.run(MEM0_SUMMARY, value, purpose=upto)).summary, False
        except ParseError:
            return previous, True

    async def _extract(
        self, owner: str, turns: list[Turn], previous: tuple[str, ...], summary: Summary | None
    ) -> tuple[str, ...] | None:
        messages = tuple(("user" if t.speaker == owner else "assistant", self._line(t)) for t in turns)
        known = (await summary)[0] if summary is not None else ""
        value = ExtractInput(owner, turns[0].date, messages, previous, known)
        try:
            reply = await self.services.llm.run(MEM0_EXTRACT, value, purpose=f"{owner} {turns[0].id}")
        except ParseError:
            return None
        return tuple(fact.strip() for fact in reply.facts if fact.strip())

    # -- building ------------------------------------------------------------------------------------------------

    def started(self) -> Iterable[asyncio.Task[Any]]:
        return [task for pair in self._pairs for task in (*pair.facts, pair.summary) if task is not None]

    async def observe(self, turn: Turn) -> None:
        self.prefetch(turn)
        self._observed += 1
        while self._pairs and len(self._pairs[0].turns) <= self._observed:
            self._observed -= len(self._pairs[0].turns)
            await self._add_first()

    async def finish(self) -> None:
        if self._open:
            self._close_pair()
        while self._pairs:
            await self._add_first()

    async def _add_first(self) -> None:
        """Both stores' update calls run side by side, because the stores are independent; events keep their order. The
        pair leaves the queue last: after a failure its calls are among those `started`."""
        pair = self._pairs[0]
        updates = [self._update(store, pair, facts) for store, facts in zip(self.stores, pair.facts, strict=True)]
        events = [event for found in await together(updates) for event in found]
        if pair.summary is not None and (await pair.summary)[1]:
            events.append(("summary_fallback", {"upto": pair.turns[-1].id}))
        for kind, fields in events:
            self.counts[kind] += 1
            self.services.log(kind, **fields)
        self._pairs.popleft()

    async def _update(self, store: Store, pair: _Pair, work: Facts) -> list[Event]:
        """One call on all facts of a pair; none without facts; an unusable reply changes nothing. Gives what to log."""
        first, facts = pair.turns[0], await work
        where = {"store": store.owner, "turns": [turn.id for turn in pair.turns]}
        self.counts["adds"] += 1
        if facts is None:
            return [("extract_fallback", where)]
        self.counts["facts"] += len(facts)
        if not facts:
            return []
        embedder = self.services.embedder
        shown = store.similar(await embedder.embed(facts), self.s)
        value = UpdateInput(tuple(store.entries[item].text for item in shown), facts, first.date)
        try:
            reply = await self.services.llm.run(MEM0_UPDATE, value, purpose=f"{store.owner} {first.id}")
        except ParseError:
            return [("update_fallback", where)]
        own = tuple(turn.id for turn in pair.turns if turn.speaker == store.owner)
        source = own or tuple(turn.id for turn in pair.turns)
        before = Counter(store.counts)
        await store.apply(reply.memory, shown, Origin(source, first.date, first.time), embedder)
        return [("update", where | dict(store.counts - before))]

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        """The `k` memories of each store nearest to the question, in time order, each with its owner's name."""
        vector = (await self.services.embedder.embed([question.text]))[0]
        found = [(score, store, item) for store in self.stores for item, score in store.search(vector, self.k)]
        found.sort(key=lambda hit: -hit[0])
        ranked = dict.fromkeys(turn for _, store, item in found for turn in store.entries[item].turns)
        passages, ranking = shown_in_time_order([_passage(store, item) for _, store, item in found])
        return Evidence(passages, tuple(ranked), ranking, trace={"memories": len(found)})

    def stats(self) -> Mapping[str, int]:
        names = ("adds", "facts", "extract_fallback", "update_fallback", "summary_fallback")
        changes = ("added", "updated", "deleted", "unchanged", *SKIPS)
        return (
            {"memories": sum(len(store.entries) for store in self.stores)}
            | {name: self.counts[name] for name in names}
            | {name: sum(store.counts[name] for store in self.stores) for name in changes}
        )

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        state = {"stores": [store.to_json() for store in self.stores], "counts": dict(self.counts)}
        save_state(folder, state, np.concatenate([store.vectors() for store in self.stores]))

    def load(self, folder: Path) -> None:
        state, vectors = load_state(folder), load_vectors(folder)
        self.counts, self.stores = Counter(state["counts"]), []
        for data in state["stores"]:
            rows, vectors = vectors[: len(data["entries"])], vectors[len(data["entries"]) :]
            self.stores.append(Store.from_json(data, rows, self.services.embedder.dim))


def _passage(store: Store, item: int) -> Passage:
    entry = store.entries[item]
    return Passage(f"{store.owner}: {entry.text}", tuple(entry.turns), entry.date, entry.time)
