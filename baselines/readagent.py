"""ReadAgent (arXiv 2402.09727): pages ended where a model says, a gist of each, pages read again for a question.

Follows the authors' demo code (docs/systems/readagent.md). A paragraph is a turn. Nothing is embedded. Pages are made in
`finish`, because where a page ends depends on what follows it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from baselines.checks import check_choices, check_least
from baselines.storage import load_state, save_state
from baselines.tasks.readagent import (
    READ_BREAK,
    READ_GIST,
    READ_LOOK_UP,
    READ_NEXT_PAGE,
    BreakInput,
    GistInput,
    LookUpInput,
    named_label,
    pages_in,
)
from memfly.errors import ConfigError, ParseError
from memfly.system import MemorySystem, Services
from memfly.tasks.base import Task
from memfly.types import Evidence, Passage, Question, Turn

LookUp = Literal["parallel", "sequential"]


@dataclass(frozen=True)
class Span:
    """A page in the making, paragraphs `start` to `end` (exclusive), and the labels it may end at."""

    start: int
    end: int
    labels: tuple[int, ...]
    words: int


def collect(counts: Sequence[int], start: int, word_limit: int, start_threshold: int) -> Span:
    """From `start`, paragraphs until their words reach `word_limit`. A label n means "end before paragraph n": there is
    one before each added paragraph that brings the count to `start_threshold` or more, and one after the last."""
    end, words, labels = start, 0, []
    while end < len(counts) and words < word_limit:
        words += counts[end]
        if words >= start_threshold and end > start:
            labels.append(end)
        end += 1
    return Span(start, end, (*labels, end), words)


@dataclass(frozen=True)
class Page:
    """`text` opens without a date: `date` is that of the session at its start; later sessions carry theirs in it."""

    text: str
    gist: str
    turns: tuple[str, ...]
    date: str
    time: str


class ReadAgent(MemorySystem):
    """Look-up `parallel` (P: one call, up to `pages` pages, the cap enforced) or `sequential` (S: one page a call)."""

    version = 2
    recall_options: ClassVar[frozenset[str]] = frozenset({"look_up", "pages"})
    tasks: ClassVar[tuple[Task[Any, Any], ...]] = (READ_BREAK, READ_GIST)
    recall_tasks: ClassVar[tuple[Task[Any, Any], ...]] = (READ_LOOK_UP, READ_NEXT_PAGE)

    def __init__(
        self,
        services: Services,
        *,
        look_up: LookUp = "parallel",
        pages: int = 5,
        word_limit: int = 600,
        start_threshold: int = 280,
        tail_words: int = 350,
    ) -> None:
        check_choices(look_up=(look_up, LookUp))
        check_least(pages=(pages, 1), word_limit=(word_limit, 1), start_threshold=(start_threshold, 1))
        check_least(tail_words=(tail_words, 1))
        if tail_words > word_limit:
            raise ConfigError(
                f"method.tail_words: {tail_words} is above word_limit {word_limit}: every page would count as the last one"
            )
        self.services, self.look_up, self.most = services, look_up, pages
        self.word_limit, self.start_threshold, self.tail_words = word_limit, start_threshold, tail_words
        self.turns: list[Turn] = []
        self.pages: list[Page] = []
        self.counts: Counter[str] = Counter()

    # -- building ------------------------------------------------------------------------------------------------

    async def observe(self, turn: Turn) -> None:
        self.turns.append(turn)

    async def finish(self) -> None:
        """Pages one after the other (each starts where the last one ended), their gists side by side."""
        paragraphs = [self._paragraph(position) for position in range(len(self.turns))]
        counts = [len(paragraph.split()) for paragraph in paragraphs]
        gists: list[asyncio.Task[str]] = []
        ranges: list[tuple[int, int]] = []
        try:
            while (start := ranges[-1][1] if ranges else 0) < len(paragraphs):
                end = await self._page_end(paragraphs, counts, start, ranges[-1][0] if ranges else 0)
                ranges.append((start, end))
                gists.append(asyncio.create_task(self._gist(len(gists), start, end)))
            texts = await asyncio.gather(*gists)
        finally:
            for gist in gists:
                gist.cancel()
            await asyncio.gather(*gists, return_exceptions=True)  # after a failure, none is left running
        self.pages = [self._page(start, end, text) for (start, end), text in zip(ranges, texts, strict=True)]
        self.counts |= Counter(turns=len(self.turns), pages=len(self.pages))

    def _paragraph(self, position: int, *, dated: bool = True) -> str:
        """A turn; the first one of a session starts with the session's date."""
        turn = self.turns[position]
        opens = position == 0 or self.turns[position - 1].session != turn.session
        return f"({turn.date}) {turn.render()}" if opens and dated else turn.render()

    def _text(self, start: int, end: int) -> str:
        return "\n".join(self._paragraph(i, dated=i > start) for i in range(start, end))

    async def _page_end(self, paragraphs: Sequence[str], counts: Sequence[int], start: int, before: int) -> int:
        """Where the page that begins at `start` ends; the page before it began at `before`."""
        span = collect(counts, start, self.word_limit, self.start_threshold)
        if span.words < self.tail_words:
            return len(paragraphs)
        marks = tuple(i if i in span.labels else None for i in range(start, span.end + 1))
        previous = "\n".join(paragraphs[before:start])
        following = paragraphs[span.end] if span.end < len(paragraphs) else ""
        value = BreakInput(previous, tuple(paragraphs[start : span.end]), marks, following)
        label: int | None
        try:
            label = (await self.services.llm.run(READ_BREAK, value, purpose=self.turns[start].id)).label
        except ParseError as error:
            label = named_label(error.reply)
        if label is not None and start < label <= span.end:
            return label
        self.counts["break_fallback"] += 1
        self.services.log("break_fallback", turn=self.turns[start].id, label=label)
        return span.end

    async def _gist(self, number: int, start: int, end: int) -> str:
        """The page shortened; where no reply could be used, its first words, as many as a gist usually has."""
        text = self._text(start, end)
        try:
            value = GistInput(f"({self.turns[start].date}) {text}")
            return (await self.services.llm.run(READ_GIST, value, purpose=f"page {number}")).gist.strip()
        except ParseError:
            self.counts["gist_fallback"] += 1
            self.services.log("gist_fallback", page=number)
            return " ".join(text.split()[: self.word_limit // 6])

    def _page(self, start: int, end: int, gist: str) -> Page:
        first = self.turns[start]
        ids = tuple(turn.id for turn in self.turns[start:end])
        return Page(self._text(start, end), gist, ids, first.date, first.time.isoformat())

    # -- reading -------------------------------------------------------------------------------------------------

    async def recall(self, question: Question) -> Evidence:
        if not self.pages:
            return Evidence(())
        look_up = self._parallel if self.look_up == "parallel" else self._sequential
        chosen, trace = await look_up(question)
        passages = tuple(_passage(page, number in chosen) for number, page in enumerate(self.pages))
        ranked = tuple(turn for number in chosen for turn in self.pages[number].turns)
        return Evidence(passages, ranked, tuple(chosen), trace={"pages": chosen, **trace})

    async def _parallel(self, question: Question) -> tuple[list[int], dict[str, object]]:
        value = LookUpInput(question.text, self._remembered(()), self.most)
        trace: dict[str, object] = {}
        try:
            named = list((await self.services.llm.run(READ_LOOK_UP, value, purpose="look up")).pages)
        except ParseError as error:
            named = pages_in(error.reply) or []
            trace["fallback"] = True
            self.services.log("look_up_fallback", question=question.id)
        real = list(dict.fromkeys(page for page in named if 0 <= page < len(self.pages)))
        trace |= {"out_of_range": sum(not 0 <= page < len(self.pages) for page in named)}
        trace |= {"over_cap": max(len(real) - self.most, 0)}
        return real[: self.most], trace

    async def _sequential(self, question: Question) -> tuple[list[int], dict[str, object]]:
        """One page a call until the model stops, names no new page, or `pages` are read."""
        chosen: list[int] = []
        stop = "cap"
        while len(chosen) < min(self.most, len(self.pages)):
            value = LookUpInput(question.text, self._remembered(chosen), self.most, tuple(chosen))
            try:
                page = (await self.services.llm.run(READ_NEXT_PAGE, value, purpose=f"page {len(chosen)}")).page
            except ParseError:
                self.services.log("look_up_fallback", question=question.id)
                return chosen, {"stop": "unusable reply", "fallback": True}
            if page is None or page in chosen or not 0 <= page < len(self.pages):
                stop = "stopped" if page is None else "no new page"
                break
            chosen.append(page)
        return chosen, {"stop": stop}

    def _remembered(self, read: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"({p.date}) {p.text if number in read else p.gist}" for number, p in enumerate(self.pages))

    def stats(self) -> Mapping[str, int]:
        return dict(sorted(self.counts.items()))

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        save_state(folder, {"pages": [asdict(page) for page in self.pages], "counts": self.counts})

    def load(self, folder: Path) -> None:
        state = load_state(folder)
        self.pages = [Page(**{**page, "turns": tuple(page["turns"])}) for page in state["pages"]]
        self.counts = Counter(state["counts"])


def _passage(page: Page, raw: bool) -> Passage:
    """The page in full or its gist; a gist is not its turns."""
    time = datetime.fromisoformat(page.time)
    return Passage(page.text, page.turns, page.date, time) if raw else Passage(page.gist, (), page.date, time)
