"""Keywords of turns and questions."""

from __future__ import annotations

import pytest

from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.keywords import is_small_talk, question, question_keywords, turn_keywords
from memfly.tasks.question import QuestionInput

TOOLS = Tools(Embedder(Hashing()))


def test_proper_nouns_come_first_then_things() -> None:
    found = turn_keywords("Nora", "We bought a wooden table in Lisbon and met Petra Lang.", "")
    assert set(found[:2]) == {"Lisbon", "Petra Lang"}
    assert "wooden table" in found


def test_the_speakers_own_name_and_addressed_persons_are_left_out() -> None:
    found = turn_keywords("Nora", "Thanks, Tim! Nora here, I painted a lighthouse.", "")
    assert found == ("lighthouse",)


def test_a_caption_gives_keywords() -> None:
    assert "lighthouse" in turn_keywords("Nora", "Look at this!", "a photo of a lighthouse on a cliff")


def test_titles_in_quotes_stay_whole() -> None:
    assert "The Long Winter" in turn_keywords("Nora", 'I finished "The Long Winter" on the train.', "")


@pytest.mark.parametrize(
    "text", ["Hey Tim! How are you?", "Thanks, Tim!", "Wow, that's great!", "Bye, talk to you soon!", ""]
)
def test_small_talk_has_no_keywords(text: str) -> None:
    assert turn_keywords("Nora", text, "") == ()


def test_a_number_or_a_day_makes_a_sentence_more_than_small_talk() -> None:
    assert is_small_talk("See you soon!")
    assert not is_small_talk("See you on Friday at 7!")


def test_never_more_than_five() -> None:
    text = "Rome, Oslo, Paris, Turin, Basel, Milan and Lyon were on the list, next to a boat, a tent and a canoe."
    assert len(turn_keywords("Nora", text, "")) == 5


def test_question_keywords_are_singular_and_keep_names_of_things() -> None:
    found = question_keywords("Which pottery classes did Nora take with her friends in Lisbon?")
    assert {"pottery class", "Lisbon"} <= set(found)


def test_the_person_asked_about_is_a_keyword_only_where_little_else_is() -> None:
    assert question_keywords("What does Nora bake?") == ("bake", "Nora")
    assert "Nora" not in question_keywords("Where did Nora buy the violin and the bow?")


def test_a_persons_name_is_not_glued_to_the_verb() -> None:
    assert not any("Nora" in keyword for keyword in question_keywords("How does Nora prioritize sleep?"))


async def test_the_heading_has_fewer_than_eight_words() -> None:
    asked = "What did Nora and Tim and Petra buy for the garden party of the school choir in the old town of Lisbon?"
    output = await question(QuestionInput(asked), TOOLS)
    assert 0 < len(output.topic_desc.split()) < 8
    assert len(output.keywords) <= 5
