"""ReadAgent: pagination against the demo's own runs, tolerant reading of replies, look-up P and S."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.extractive.readagent import cohesion, gist, look_up, next_page, page_break
from baselines.readagent import ReadAgent, collect
from baselines.tasks.readagent import (
    READ_BREAK,
    READ_LOOK_UP,
    READ_NEXT_PAGE,
    BreakInput,
    BreakOutput,
    GistInput,
    LookUpInput,
    LookUpOutput,
    NextPageOutput,
    label_in,
    pages_in,
)
from memfly.embed import Embedder, Hashing
from memfly.errors import ConfigError
from memfly.llm.extractive.base import Tools
from memfly.types import Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")
TIME = datetime(2024, 5, 1, 9)


def paragraphs(*sizes: int) -> list[Turn]:
    """Turns of exactly so many words as rendered paragraphs, all of one session; the first one pays for its date."""
    out = []
    for i, size in enumerate(sizes):
        text = " ".join(["word"] * (size - (7 if i == 0 else 1)))
        out.append(Turn(f"D1:{i + 1}", "Ada", text, 1, TIME, "9:00 am on 1 May, 2024"))
    return out


async def build(turns: list[Turn] | tuple[Turn, ...], llm: Scripted, **options: Any) -> ReadAgent:
    llm.scripts.setdefault("read_gist", lambda value: {"gist": f"gist of {len(value.page.split())} words"})
    system = ReadAgent(services(llm, log=options.pop("log", None)), **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


def page_sizes(system: ReadAgent) -> list[int]:
    return [len(page.turns) for page in system.pages]


# -- pagination ------------------------------------------------------------------------------------------------------


def test_labels_of_hundred_word_paragraphs() -> None:
    assert collect([100] * 20, 0, 600, 280).labels == (2, 3, 4, 5, 6)
    assert collect([100] * 20, 5, 600, 280).labels == (7, 8, 9, 10, 11)
    assert collect([700], 0, 600, 280) == collect([700, 5, 5], 0, 600, 280)
    assert collect([100, 100], 0, 600, 280).labels == (2,)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=60), st.data())
def test_labels_are_in_range_and_the_end_is_one(counts: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(counts) - 1))
    span = collect(counts, start, 600, 280)
    assert start < span.end <= len(counts)
    assert span.labels[-1] == span.end
    assert all(start < label <= span.end for label in span.labels)
    assert span.labels == tuple(sorted(set(span.labels)))
    assert span.words == sum(counts[start : span.end])
    assert span.words >= 600 or span.end == len(counts)
    assert sum(counts[start : span.end - 1]) < 600


def unusable(value: Any) -> str:
    return "no idea"


@pytest.mark.parametrize(
    ("sizes", "reply", "pages", "asked"),
    [
        ([100] * 20, lambda value: {"label": 5, "reason": ""}, [5, 6, 6, 3], 3),
        ([100] * 8, unusable, [6, 2], 1),
        ([100] * 10, unusable, [6, 4], 2),
        ([700], unusable, [1], 1),
        ([100] * 3, unusable, [3], 0),
        ([100] * 20, lambda value: {"label": 2, "reason": ""}, [2, 6, 6, 6], 4),
    ],
)  # fmt: skip
async def test_worked_page_splits(sizes: list[int], reply: Any, pages: list[int], asked: int) -> None:
    """The demo's own runs on 100-word paragraphs; a label out of range or none at all falls back to the last one."""
    llm = Scripted(read_break=reply)
    system = await build(paragraphs(*sizes), llm)
    assert page_sizes(system) == pages
    assert len({call.input for call in llm.calls if call.task.name == "read_break"}) == asked
    assert llm.count["read_gist"] == len(pages)


async def test_fallbacks_are_counted() -> None:
    log = Log()
    always_five = await build(
        paragraphs(*[100] * 20), Scripted(read_break=lambda v: {"label": 5, "reason": ""}), log=log
    )
    assert always_five.stats() == {"break_fallback": 2, "pages": 4, "turns": 20}
    assert [event["label"] for event in log.of("break_fallback")] == [5, 5]


async def test_a_label_is_found_in_a_reply_that_is_no_json() -> None:
    llm = Scripted(read_break=lambda value: f"Break point: <{value.labels[3]}>, because the talk is over.")
    system = await build(paragraphs(*[100] * 8), llm)
    assert page_sizes(system) == [3, 3, 2]
    assert system.stats()["pages"] == 3
    assert "break_fallback" not in system.stats()


@pytest.mark.parametrize("reply", ['{"colour": 5}', "I see 5 people.", "[4]", "The 5 of them chat."])
async def test_a_number_that_is_no_label_is_none(reply: str) -> None:
    log = Log()
    system = await build(paragraphs(*[100] * 10), Scripted(read_break=lambda value: reply), log=log)
    assert page_sizes(system) == [6, 4]
    assert system.stats()["break_fallback"] == len(log.of("break_fallback")) == 2


async def test_what_the_break_prompt_shows() -> None:
    llm = Scripted(read_break=lambda value: {"label": 3 if value.labels[0] != 3 else 9, "reason": ""})
    turns = paragraphs(*[100] * 12)
    await build(turns, llm)
    first, second = llm.inputs("read_break")[:2]
    assert first.previous == ""
    assert first.labels == (None, None, 2, 3, 4, 5, 6)
    assert first.following == turns[6].render()
    assert len(second.previous.split()) == 300
    text = READ_BREAK.render(second)
    assert text.count("<5>") == text.count("<9>") == 1
    assert "<4>" not in text


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("Break point: <57>. The scene changes.", 57), ("<12> because", 12), ("break POINT: 57", 57), ("< 8 >", 8),
        ("57", 57), ("", None), ("none of them", None), ("either 3 or 5", None), ("label 4, not 5", 4),
    ],
)  # fmt: skip
def test_labels_are_read_tolerantly(reply: str, label: int | None) -> None:
    assert label_in(reply) == label


@given(st.text(max_size=200))
def test_reading_labels_and_pages_never_fails(text: str) -> None:
    assert label_in(text) is None or isinstance(label_in(text), int)
    assert pages_in(text) is None or all(isinstance(n, int) for n in pages_in(text) or [])


def test_outputs_take_numbers_in_words() -> None:
    assert BreakOutput.model_validate({"label": "<7>", "reason": "x"}).label == 7
    assert LookUpOutput.model_validate({"pages": "[1, 3]"}).pages == [1, 3]
    assert LookUpOutput.model_validate({"pages": ["Page 2", 4]}).pages == [2, 4]
    assert LookUpOutput.model_validate({"pages": 3}).pages == [3]
    assert NextPageOutput.model_validate({"page": "STOP"}).page is None
    assert NextPageOutput.model_validate({"page": "Page 6"}).page == 6
    assert pages_in("I would read [2, 5] and [7].") == [2, 5]
    assert pages_in("pages 2 and 5") is None


# -- pages and gists -------------------------------------------------------------------------------------------------


async def test_no_page_loses_its_date(turns: tuple[Turn, ...]) -> None:
    """Small pages over the talk: each has the date of the session in force at its start; later ones are in its text."""
    llm = Scripted(read_break=unusable)
    system = await build(turns, llm, word_limit=40, start_threshold=20, tail_words=10)
    by_id = {turn.id: turn for turn in turns}
    assert len(system.pages) > 3
    assert [turn for page in system.pages for turn in page.turns] == [turn.id for turn in turns]
    for page in system.pages:
        assert page.date == by_id[page.turns[0]].date
        sessions = {by_id[turn].session for turn in page.turns}
        assert page.text.count(" 2024) ") == len(sessions) - 1
    assert all(call.input.page.startswith("(") for call in llm.calls if call.task.name == "read_gist")


async def test_an_unusable_gist_is_the_page_s_beginning() -> None:
    log = Log()
    llm = Scripted(read_break=unusable, read_gist=lambda value: '{"gist": " "}')
    system = await build(paragraphs(*[100] * 8), llm, log=log)
    assert [len(page.gist.split()) for page in system.pages] == [100, 100]
    assert system.stats()["gist_fallback"] == len(log.of("gist_fallback")) == 2


# -- look-up ---------------------------------------------------------------------------------------------------------


async def ten_pages(llm: Scripted, **options: Any) -> ReadAgent:
    llm.scripts["read_break"] = unusable
    return await build(paragraphs(*[100] * 60), llm, **options)


async def test_parallel_look_up_puts_raw_pages_in_place() -> None:
    llm = Scripted(read_look_up=lambda value: {"pages": [7, 2]})
    system = await ten_pages(llm)
    evidence = await system.recall(QUESTION)
    assert llm.count["read_look_up"] == 1
    assert len(evidence.passages) == 10
    assert [bool(p.turns) for p in evidence.passages] == [n in (2, 7) for n in range(10)]
    assert evidence.passages[2].text == system.pages[2].text
    assert evidence.passages[3].text == system.pages[3].gist
    assert evidence.ranked_turns == system.pages[7].turns + system.pages[2].turns
    assert evidence.trace == {"pages": [7, 2], "out_of_range": 0, "over_cap": 0}


async def test_the_cap_is_enforced_and_odd_numbers_are_dropped() -> None:
    llm = Scripted(read_look_up=lambda value: {"pages": [3, 3, 99, -1, 0, 1, 2, 4, 5]})
    evidence = await (await ten_pages(llm)).recall(QUESTION)
    assert evidence.trace == {"pages": [3, 0, 1, 2, 4], "out_of_range": 2, "over_cap": 1}
    two = await (await ten_pages(llm, pages=2)).recall(QUESTION)
    assert two.trace["pages"] == [3, 0]
    assert llm.inputs("read_look_up")[-1].most == 2


async def test_an_unusable_look_up_reads_its_brackets_or_nothing() -> None:
    log = Log()
    llm = Scripted(read_look_up=lambda value: "I want to look at [4, 6] again.")
    evidence = await (await ten_pages(llm, log=log)).recall(QUESTION)
    assert evidence.trace["pages"] == [4, 6]
    llm.scripts["read_look_up"] = lambda value: "hm"
    evidence = await (await ten_pages(llm, log=log)).recall(QUESTION)
    assert evidence.turn_ids == ()
    assert len(evidence.passages) == 10
    assert len(log.of("look_up_fallback")) == 2


@pytest.mark.parametrize(
    ("replies", "pages", "stop", "calls"),
    [
        ([4, 1, None], [4, 1], "stopped", 3),
        ([4, 4], [4], "no new page", 2),
        ([99], [], "no new page", 1),
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], "cap", 5),
    ],
)
async def test_sequential_look_up(replies: list[int | None], pages: list[int], stop: str, calls: int) -> None:
    rest = iter(replies)
    llm = Scripted(read_next_page=lambda value: {"page": next(rest)})
    system = await ten_pages(llm, look_up="sequential")
    evidence = await system.recall(QUESTION)
    assert evidence.trace == {"pages": pages, "stop": stop}
    seen = llm.inputs("read_next_page")
    assert len(seen) == calls
    for value in seen:  # pages read so far are listed and shown in full
        assert all(system.pages[number].text in value.pages[number] for number in value.read)
        assert value.read == tuple(pages[: len(value.read)])


async def test_sequential_look_up_ends_at_an_unusable_reply() -> None:
    rest = iter([{"page": 3}, "?", "?", "?"])
    log = Log()
    llm = Scripted(read_next_page=lambda value: next(rest))
    evidence = await (await ten_pages(llm, look_up="sequential", log=log)).recall(QUESTION)
    assert evidence.trace == {"pages": [3], "stop": "unusable reply", "fallback": True}
    assert log.of("look_up_fallback")


def test_look_up_prompts_number_pages_from_zero() -> None:
    value = LookUpInput("Who?", ("gist a", "gist b"), 5, (1,))
    assert "<Page 0>\ngist a\n<Page 1>\ngist b" in READ_LOOK_UP.render(value)
    assert "Choose 1 to 5 pages" in READ_LOOK_UP.render(value)
    assert "so far: 1. Pages left to choose: 4" in READ_NEXT_PAGE.render(value)


@pytest.mark.parametrize("options", [{"word_limit": 349}, {"tail_words": 601}])
def test_pages_that_would_all_be_the_last_one_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"method\.tail_words: .* is above word_limit"):
        ReadAgent(services(Scripted()), **options)


@pytest.mark.parametrize("options", [{"look_up": "X"}, {"pages": 0}, {"word_limit": 0}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"method.{next(iter(options))}"):
        ReadAgent(services(Scripted()), **options)


# -- without a model -------------------------------------------------------------------------------------------------

TOOLS = Tools(Embedder(Hashing(64)))


async def test_a_page_ends_where_the_topic_changes() -> None:
    cats = ["Ada: Miso the cat chased the mouse.", "Ben: A cat and a mouse, poor mouse.", "Ada: Miso is a hunting cat."]
    bikes = ["Ben: The bike needs a new chain.", "Ada: A chain for the road bike?", "Ben: Yes, the bike chain is worn."]
    value = BreakInput("", (*cats, *bikes), (None, 1, 2, 3, 4, 5, 6), "Ada: The chain shop sells bike parts.")
    assert (await page_break(value, TOOLS)).label == 3
    dated = (*cats[:2], f"(9:00 am on 2 May, 2024) {cats[2]}", *bikes)
    following = "Ada: The chain shop sells bike parts."
    assert (await page_break(BreakInput("", dated, value.labels, following), TOOLS)).label == 2
    assert cohesion(frozenset("ab"), frozenset("bcd")) == 0.5


async def test_a_gist_is_short_and_keeps_what_informs() -> None:
    page = "(9:00 am on 2 May, 2024) Ada: Hi! I adopted a grey cat called Miso on 3 March.\nBen: Wow, great!" + (
        "\nAda: That is nice.\nBen: Yes, so nice." * 20
    )
    text = (await gist(GistInput(page), TOOLS)).gist
    assert "Ada adopted a grey cat called Miso on 3 March." in text
    assert len(text.split()) < 0.5 * len(page.split())


async def test_look_up_without_a_model_finds_the_page() -> None:
    pages = ("Ada adopted a cat called Miso.", "Ben rides a road bike.", "Ada makes a blue bowl.", "Ben hurt his knee.")
    assert (await look_up(LookUpInput("What bowl did Ada make?", pages, 5), TOOLS)).pages[0] == 2
    assert (await next_page(LookUpInput("What bowl did Ada make?", pages, 5), TOOLS)).page == 2
    assert (await next_page(LookUpInput("What bowl did Ada make?", pages, 5, (2,)), TOOLS)).page != 2
    assert (await next_page(LookUpInput("?", pages, 5, (0, 1, 2, 3)), TOOLS)).page is None
