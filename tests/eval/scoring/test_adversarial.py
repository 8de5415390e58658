from __future__ import annotations

from typing import Any

import pytest

from eval.categories import Category
from eval.scoring.adversarial import REFUSAL, fooled, readings, refused, refused_tolerant


@pytest.mark.parametrize("text", [REFUSAL, "It is NOT MENTIONED", "No information available."])
def test_official_refusals_pass_both_tests(text: str) -> None:
    assert refused(text)
    assert refused_tolerant(text)


@pytest.mark.parametrize(
    "text",
    [
        "not  mentioned",
        "I don't know",
        "I don’t know.",
        "The conversation does not mention it.",
        "It isn’t mentioned.",
        "No information is available",
        "Unknown",
        "Not specified.",
        "This cannot be determined from the conversation",
        "There isn't enough information",
        "There is no mention of that",
        "N/A",
    ],
)
def test_other_refusals_pass_only_the_tolerant_test(text: str) -> None:
    assert not refused(text)
    assert refused_tolerant(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No",
        "None",
        "NATO",
        "He doesn't know",
        "She couldn't tell her mother",
        "insufficient funds",
        "She is not available",
    ],
)
def test_answers_are_not_refusals(text: str) -> None:
    assert not refused_tolerant(text)


@pytest.mark.parametrize(
    ("prediction", "trap", "expected"),
    [
        ("Self-care is important.", "self-care is important", True),
        ("that self-care is really important", "self-care is important", True),
        ("a necklace", "the necklace", True),
        ("a red scarf from Paris", "necklace", False),
        ("", "necklace", False),
        (REFUSAL, "necklace", False),
        ("Not mentioned", "Not mentioned", False),
        ("the", "a", False),
    ],
)
def test_fooled(prediction: str, trap: str, expected: bool) -> None:
    assert fooled(prediction, trap) is expected


def test_fooled_is_none_where_there_is_no_trap() -> None:
    assert readings("x", None, Category.SINGLE_HOP)["fooled"] is None
    assert readings("x", None, Category.ADVERSARIAL)["fooled"] is None
    assert readings("x", "x", Category.ADVERSARIAL)["fooled"] == 1.0


def test_no_real_answer_of_the_benchmark_reads_as_a_refusal(locomo10: list[dict[str, Any]]) -> None:
    questions = [question for conversation in locomo10 for question in conversation["qa"]]
    answers = [str(q["answer"]) for q in questions if "answer" in q]
    traps = [str(q["adversarial_answer"]) for q in questions if "adversarial_answer" in q]
    assert [text for text in answers if refused_tolerant(text)] == []
    assert [text for text in traps if refused_tolerant(text)] == ["Not mentioned"] * 2
