"""Restatement: persons, small talk, captions, references."""

from __future__ import annotations

import pytest

from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.restate import ingest, referents, restate, restate_sentence
from memfly.tasks.ingest import IngestInput

TOOLS = Tools(Embedder(Hashing()))


@pytest.mark.parametrize(
    ("said", "restated"),
    [
        ("I'm tired.", "Nora is tired."),
        ("I've lost my keys.", "Nora has lost Nora's keys."),
        ("I don't eat fish.", "Nora doesn't eat fish."),
        ("I love jazz and it calms me.", "Nora loves jazz and it calms Nora."),
        ("I painted it last week.", "Nora painted it last week."),
        ("Went to Rome yesterday.", "Nora went to Rome yesterday."),
        ("Gonna learn the piano.", "Nora is gonna learn the piano."),
        ("We're moving to the US.", "Nora and others are moving to the US."),
        ("Painting is fun.", "Painting is fun."),
    ],
)
def test_first_person_becomes_the_name(said: str, restated: str) -> None:
    assert restate_sentence("Nora", said) == restated


def test_small_talk_is_dropped_and_time_is_kept() -> None:
    assert restate("Nora", "Hey Tim! I ran a race last Saturday. Thanks!", None) == "Nora ran a race last Saturday."


def test_the_caption_is_folded_in_without_photo_of() -> None:
    assert restate("Nora", "Look at this!", "a photo of a red boat") == "Nora shared a photo of a red boat."


def test_a_context_names_its_speaker() -> None:
    assert restate("Nora", "It was cold in the mountains.", None).startswith("Nora: ")


def test_small_talk_alone_is_not_emptied() -> None:
    assert restate("Nora", "Thanks, Tim!", None).startswith("Nora: ")


def test_references_bring_the_preceding_topic() -> None:
    before = ("Tim: Did you like the pottery class in Lisbon?",)
    assert set(referents("Nora", "Yes, I loved it!", before)) == {"Lisbon", "pottery class"}
    assert referents("Nora", "Yes, I loved it!", ()) == ()


def test_a_long_turn_without_references_stays_alone() -> None:
    text = "Nora painted the kitchen walls, repaired two chairs, planted tomatoes, baked bread and phoned Petra."
    assert referents("Nora", text, ("Tim: The concert in Lisbon was loud.",)) == ()


async def test_the_task_gives_keywords_and_context() -> None:
    value = IngestInput("x", "Nora", "I bought a boat.", None, ("Tim: What did you buy in Oslo?",))
    output = await ingest(value, TOOLS)
    assert output.keywords == ["boat"]
    assert output.context == "Nora bought a boat. [about: Oslo]"
