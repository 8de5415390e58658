"""MemoryBank (arXiv 2305.10250): exchanges and daily summaries in a vector index, portraits, a forgetting curve.

Follows the authors' code (docs/systems/memorybank.md) with LoCoMo's dates as simulated time. Forgetting is applied once,
at the date of the last session. Recall during questions changes nothing, so their order cannot matter.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from baselines.checks import check_choices, check_least
from baselines.storage import load_state, load_vectors, passage_from_json, passage_to_json, save_state
from baselines.tasks.memorybank import (
    BANK_ALL_EVENTS,
    BANK_ALL_PORTRAITS,
    BANK_DAY_EVENTS,
    BANK_DAY_PORTRAITS,
    AllEventsInput,
    AllPortraitsInput,
    DayEvents,
    DayInput,
    DayPortraits,
    PortraitsOutput,
)
from memfly.embed import Vectors
from memfly.errors import ConfigError, ParseError
from memfly.index import VectorIndex
from memfly.llm.base import derive_seed
from memfly.system import MemorySystem, Services
from memfly.tasks.base import Task
from memfly.text import cut_tokens
from memfly.together import together
from memfly.types import Evidence, Passage, Question, Turn

Forgetting = Literal["none", "paper", "code"]
RecallUpdates = Literal["frozen", "chat"]
Portraits = tuple[str, str]
In = TypeVar("In")
SUMMARY_TOKENS = 100
"""What a day's own text is cut to where its summary could not be made."""


def retention(days: float, strength: float, curve: Forgetting) -> float:
    """Probability in [0, 1] that a memory is kept `days` after its last recall; `strength` starts at 1.

    paper: exp(-t / S). code: exp(-t / 5 * S), which is how the original's expression is evaluated: a stronger memory is
    forgotten sooner. none: 1.
    """
    if curve == "none":
        return 1.0
    return math.exp(-days / strength) if curve == "paper" else math.exp(-days / 5 * strength)


@dataclass(frozen=True)
class Memory:
    """One document of the index: an exchange of two turns (one, where a session ends unpaired) or a day's summary."""

    id: str
    day: str
    """YYYY-MM-DD."""
    passage: Passage
    summary: bool = False
    strength: int = 1
    last_recall: str = ""

    @property
    def indexed(self) -> str:
        return f"{self.passage.date}: {self.passage.text}"


class MemoryBank(MemorySystem):
    """`forgetting` none | paper | code. `recall_updates`: frozen, or `chat`: while the conversation goes on, each
    exchange's first turn recalls the `chat_k` nearest of earlier days, which gain strength and restart their clock."""

    recall_options: ClassVar[frozenset[str]] = frozenset({"k", "widen_chars", "show_portraits", "show_global_summary"})
    tasks: ClassVar[tuple[Task[Any, Any], ...]] = (
        BANK_DAY_EVENTS,
        BANK_DAY_PORTRAITS,
        BANK_ALL_EVENTS,
        BANK_ALL_PORTRAITS,
    )

    def __init__(
        self,
        services: Services,
        *,
        k: int = 10,
        forgetting: Forgetting = "none",
        recall_updates: RecallUpdates = "frozen",
        chat_k: int = 10,
        widen_chars: int = 200,
        show_portraits: bool = True,
        show_global_summary: bool = False,
    ) -> None:
        check_choices(forgetting=(forgetting, Forgetting), recall_updates=(recall_updates, RecallUpdates))
        check_least(k=(k, 1), chat_k=(chat_k, 1), widen_chars=(widen_chars, 0))
        if recall_updates == "chat" and forgetting == "none":
            raise ConfigError(
                "method.recall_updates: chat changes strengths, which nothing reads with method.forgetting=none; "
                "use frozen, or forgetting=paper or code"
            )
        self.services, self.k, self.chat_k = services, k, chat_k
        self.forgetting, self.recall_updates = forgetting, recall_updates
        self.widen_chars, self.show_portraits, self.show_global = widen_chars, show_portraits, show_global_summary
        self.turns: list[Turn] = []
        self.memories: list[Memory] = []
        self.portraits: Portraits = ("", "")
        self.global_summary = ""
        self.counts: Counter[str] = Counter()
        self._vectors: Vectors | None = None
        self._index = VectorIndex(services.embedder.dim)

    # -- building ------------------------------------------------------------------------------------------------

    async def observe(self, turn: Turn) -> None:
        self.turns.append(turn)

    async def finish(self) -> None:
        """All calls of all days side by side, then the two over all days, then forgetting, then the index."""
        days = [tuple(group) for _, group in groupby(self.turns, key=lambda turn: turn.time.date())]
        events = await together(self._day_events(turns) for turns in days)
        portraits = await together(self._day_portraits(turns) for turns in days)
        memories: list[Memory] = []
        for turns, summary in zip(days, events, strict=True):
            memories += _exchanges(turns)
            first = turns[0]
            day = first.time.date().isoformat()
            memories.append(Memory(f"{day} summary", day, Passage(summary, (), first.date, first.time), summary=True))
        if days:
            await self._globals(days, events, portraits)
        if self.recall_updates == "chat":
            memories = await self._chat(memories)
        self.memories = self._remembered(memories)
        self.counts |= Counter(turns=len(self.turns), days=len(days), memories=len(self.memories))
        self.counts["forgotten"] = len(memories) - len(self.memories)
        self._set_vectors(await self.services.embedder.embed([memory.indexed for memory in self.memories]))

    async def _run(self, task: Task[In, Any], value: In, purpose: str) -> Any | None:
        """The task's output, or None, counted, where no reply could be used."""
        try:
            return await self.services.llm.run(task, value, purpose=purpose)
        except ParseError:
            self.counts[f"{task.name}_fallback"] += 1
            self.services.log(f"{task.name}_fallback", purpose=purpose)
            return None

    async def _day_events(self, turns: Sequence[Turn]) -> str:
        """The day's summary; the start of its text where there is none."""
        value = self._day(turns)
        output = await self._run(BANK_DAY_EVENTS, value, value.date)
        return str(output.summary).strip() if output else cut_tokens("\n".join(value.lines), SUMMARY_TOKENS)

    async def _day_portraits(self, turns: Sequence[Turn]) -> Portraits:
        value = self._day(turns)
        return _portraits(await self._run(BANK_DAY_PORTRAITS, value, value.date))

    def _day(self, turns: Sequence[Turn]) -> DayInput:
        return DayInput(turns[0].date, self.services.speakers, tuple(turn.render() for turn in turns))

    async def _globals(
        self, days: Sequence[Sequence[Turn]], events: Sequence[str], portraits: Sequence[Portraits]
    ) -> None:
        """The global event summary and the portraits, over the whole history."""
        speakers = self.services.speakers
        dates = [turns[0].date for turns in days]
        told = AllEventsInput(speakers, tuple(map(DayEvents, dates, events)))
        seen = tuple(DayPortraits(day, *pair) for day, pair in zip(dates, portraits, strict=True) if any(pair))
        summary, portrait = await together(
            [
                self._run(BANK_ALL_EVENTS, told, "all days"),
                self._run(BANK_ALL_PORTRAITS, AllPortraitsInput(speakers, seen), "all days"),
            ]
        )
        self.global_summary = str(summary.summary).strip() if summary else ""
        self.portraits = _portraits(portrait)

    async def _chat(self, memories: Sequence[Memory]) -> list[Memory]:
        """Strengths after every exchange has recalled, in order, from the days before its own (paper: S + 1, t = 0)."""
        updated = list(memories)
        embed = self.services.embedder.embed
        vectors = await embed([memory.indexed for memory in memories])
        queries = await embed([memory.passage.text.split("\n", 1)[0] for memory in memories])
        index = VectorIndex(self.services.embedder.dim)
        stored = 0
        for position, memory in enumerate(memories):
            while memories[stored].day < memory.day:
                index.set(stored, vectors[stored])
                stored += 1
            if memory.summary:
                continue
            for hit, _ in index.search(queries[position], self.chat_k):
                if not updated[hit].summary:  # summaries never gain strength (code)
                    updated[hit] = replace(updated[hit], strength=updated[hit].strength + 1, last_recall=memory.day)
        return updated

    def _remembered(self, memories: Sequence[Memory]) -> list[Memory]:
        """What the curve leaves at the date of the last session: one seeded draw per exchange; a day's summary goes
        with the last of its exchanges."""
        if self.forgetting == "none" or not memories:
            return list(memories)
        now = date.fromisoformat(max(memory.day for memory in memories))
        kept = [memory for memory in memories if not memory.summary and self._kept(memory, now)]
        days = {memory.day for memory in kept}
        ids = {memory.id for memory in kept}
        return [memory for memory in memories if memory.id in ids or (memory.summary and memory.day in days)]

    def _kept(self, memory: Memory, now: date) -> bool:
        since = (now - date.fromisoformat(memory.last_recall or memory.day)).days
        draw = random.Random(derive_seed(self.services.seed, self.services.conversation, memory.id, "forgetting"))
        return draw.random() <= retention(since, memory.strength, self.forgetting)

    def _set_vectors(self, vectors: Vectors) -> None:
        self._vectors = vectors
        for position, vector in enumerate(vectors):
            self._index.set(position, vector)

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        vector = (await self.services.embedder.embed([question.text]))[0]
        hits = [position for position, _ in self._index.search(vector, self.k)]
        shown = sorted({near for hit in hits for near in self._widened(hit)})
        order = {position: i for i, position in enumerate(dict.fromkeys([*hits, *shown]))}
        groups = [list(group) for _, group in groupby(shown, key=self._source)]  # by time, not by score (code)
        passages = [_merged([self.memories[position] for position in group]) for group in groups]
        ranking = sorted(range(len(groups)), key=lambda i: min(order[position] for position in groups[i]))
        if self.show_portraits:
            pairs = zip(self.services.speakers, self.portraits, strict=True)
            passages += [Passage(f"About {name}: {text}", ()) for name, text in pairs if text]
        if self.show_global and self.global_summary:
            passages.append(Passage(f"All in all: {self.global_summary}", ()))
        ranked = tuple(dict.fromkeys(turn for position in order for turn in self.memories[position].passage.turns))
        trace: dict[str, object] = {"hits": len(hits), "widened": len(shown) - len(hits)}
        return Evidence(tuple(passages), ranked, tuple(ranking), trace=trace)

    def _source(self, position: int) -> str:
        """What neighbours must share to be joined: the day, or, with forgetting, the exchange (code)."""
        memory = self.memories[position]
        return memory.day if self.forgetting == "none" else memory.id

    def _widened(self, hit: int) -> list[int]:
        """The hit and its neighbours of the same source, nearest first, while the texts stay within `widen_chars`."""
        found, size = [hit], len(self.memories[hit].indexed)
        for distance in range(1, len(self.memories)):
            ring = [p for p in (hit + distance, hit - distance) if 0 <= p < len(self.memories)]
            ring = [p for p in ring if self._source(p) == self._source(hit)]
            if not ring:
                break
            for position in ring:
                size += len(self.memories[position].indexed)
                if size > self.widen_chars:
                    return found
                found.append(position)
        return found

    def stats(self) -> Mapping[str, int]:
        return dict(sorted(self.counts.items()))

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        memories = [{**asdict(memory), "passage": passage_to_json(memory.passage)} for memory in self.memories]
        state = {
            "memories": memories,
            "portraits": list(self.portraits),
            "global_summary": self.global_summary,
            "counts": self.counts,
        }
        save_state(folder, state, self._vectors)

    def load(self, folder: Path) -> None:
        state = load_state(folder)
        self.memories = [Memory(**{**m, "passage": passage_from_json(m["passage"])}) for m in state["memories"]]
        self.portraits = (state["portraits"][0], state["portraits"][1])
        self.global_summary = state["global_summary"]
        self.counts = Counter(state["counts"])
        self._set_vectors(load_vectors(folder))


def _exchanges(turns: Sequence[Turn]) -> list[Memory]:
    """Pairs of consecutive turns of a day; an unpaired last turn stays an exchange of its own."""
    pairs = [turns[i : i + 2] for i in range(0, len(turns), 2)]
    day = turns[0].time.date().isoformat()
    return [
        Memory(
            f"{day} {pair[0].id}",
            day,
            Passage("\n".join(t.render() for t in pair), tuple(t.id for t in pair), pair[0].date, pair[0].time),
        )
        for pair in pairs
    ]


def _portraits(output: PortraitsOutput | None) -> Portraits:
    return (output.first.strip(), output.second.strip()) if output else ("", "")


def _merged(memories: Sequence[Memory]) -> Passage:
    """Texts of one source as one passage."""
    first = memories[0].passage
    turns = tuple(turn for memory in memories for turn in memory.passage.turns)
    return Passage("\n".join(memory.passage.text for memory in memories), turns, first.date, first.time)
