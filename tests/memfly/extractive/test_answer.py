"""The shared answerer without a model: dates, choices, yes or no, spans, abstaining."""

from __future__ import annotations

import pytest

from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.answer import answer
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.evidence import ask, rank, read_item
from memfly.tasks.answer import NOT_MENTIONED, AnswerInput, Style

TOOLS = Tools(Embedder(Hashing()))
MAY = "1:56 pm on 8 May, 2023"
JULY = "8:10 am on 15 July, 2023"
EVIDENCE = (
    f"{MAY} | Nora: I went to a pottery workshop yesterday, it was so calming!",
    f"{MAY} | Tim: Wow, Nora! My dog Rex chewed my guitar.",
    f"{JULY} | Nora: We camped at the beach last weekend. I have 3 cats at home now.",
    f"{JULY} | Tim: I moved to Lisbon because I found a job at the aquarium.",
    f"{JULY} | Nora: I've played the cello for seven years. [shares a photo of: a cello on a wooden chair]",
)


async def reply(question: str, style: Style = "phrase", options: tuple[str, ...] = ()) -> str:
    return (await answer(AnswerInput(question, EVIDENCE, style, options), TOOLS)).answer


async def test_dates_are_resolved_against_their_own_session() -> None:
    assert await reply("When did Nora go to a pottery workshop?", "date") == "7 May 2023"
    assert await reply("When did Nora camp at the beach?", "date") == "The weekend before 15 July 2023"


async def test_without_an_expression_the_session_day_is_the_answer() -> None:
    assert await reply("When did Rex chew Tim's guitar?", "date") == "8 May 2023"


async def test_durations_are_in_digits() -> None:
    assert await reply("How long has Nora played the cello?", "date") == "7 years"


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("Where did Tim move to?", "Lisbon"),
        ("How many cats does Nora have?", "3"),
        ("Who chewed Tim's guitar?", "Rex"),
        ("What did Rex chew?", "guitar"),
    ],
)
async def test_spans_are_short_and_hold_the_answer(question: str, part: str) -> None:
    found = await reply(question)
    assert part in found.split(" ")
    assert len(found.split()) <= 6


async def test_yes_and_no() -> None:
    assert await reply("Did Nora go to a pottery workshop?") == "Yes"
    assert await reply("Did Tim go to a pottery workshop?") == "No"


@pytest.mark.parametrize("style", ["choice", "official_choice"])
async def test_the_option_must_be_about_the_right_person(style: Style) -> None:
    for options in [(NOT_MENTIONED, "the cello"), ("the cello", NOT_MENTIONED)]:
        assert await reply("What instrument has Nora played for years?", style, options) == "the cello"
        assert await reply("What instrument has Tim played for years?", style, options) == NOT_MENTIONED


async def test_open_style_abstains_when_nothing_covers_the_question() -> None:
    assert await reply("Which hospital did Oscar's surgeon recommend?", "open") == NOT_MENTIONED
    assert await reply("When did Nora camp at the beach?", "open") == "The weekend before 15 July 2023"


async def test_no_evidence_is_not_mentioned() -> None:
    for style in ("phrase", "date", "open"):
        found = await answer(AnswerInput("When did Nora camp?", (), style), TOOLS)
        assert found.answer == NOT_MENTIONED


def test_an_item_is_read_into_speakers_dates_and_captions() -> None:
    item = f"{MAY} | Nora likes clay and jazz.\nNora: I like clay.\n({JULY}) Nora: I like jazz! [shares a photo of: a drum]"
    first, second = read_item(item)
    assert (first.speaker, str(first.date)) == ("nora", "2023-05-08")
    assert (second.speaker, str(second.date), second.captions) == ("nora", "2023-07-15", ("a drum",))


def test_a_context_that_repeats_its_raw_turn_adds_nothing() -> None:
    assert len(read_item(f"{MAY} | Nora likes wet clay.\nNora: I like wet clay.")) == 1
    assert len(read_item(f"{MAY} | Nora likes wet clay and sells old boats.\nNora: I like wet clay.")) == 2


def test_the_right_person_ranks_first() -> None:
    items = (f"{MAY} | Tim: I bought a boat.", f"{MAY} | Nora: I bought a boat.")
    assert rank(ask("Did Nora buy a boat?"), items)[0].line.speaker == "nora"


def test_a_person_who_is_only_addressed_is_not_the_subject() -> None:
    entry = rank(ask("What did Nora buy?"), (f"{MAY} | Tim: Thanks, Nora! I bought a boat.", f"{MAY} | Nora: Hm."))[0]
    assert not entry.by_subject


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When did she leave?", "when"),
        ("How long ago did she leave?", "span"),
        ("How many cats are there?", "count"),
        ("How often does she swim?", "often"),
        ("Who came?", "who"),
        ("Where is it?", "where"),
        ("Why did he go?", "why"),
        ("Which song is it?", "which"),
        ("Would she come?", "yesno"),
        ("", "what"),
    ],
)
def test_kinds_of_question(question: str, kind: str) -> None:
    assert ask(question).kind == kind
