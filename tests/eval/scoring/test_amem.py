from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from eval.categories import Category
from eval.scoring import Protocol, protocol
from eval.scoring.text import wordnet_available

CAT4 = Category.SINGLE_HOP
COLUMNS = ("f1", "bleu1", "bleu2", "bleu3", "bleu4", "rouge1_f", "rouge2_f", "rougeL_f", "meteor")

VECTORS: list[tuple[str | int, str | int, tuple[float, ...]]] = [
    ("7 May 2023", "7 May 2023", (1, 1, 1, 1, 0.5623, 1, 1, 1, 0.9815)),
    ("May 7, 2023", "7 May 2023", (1, 0.75, 0.1581, 0.1101, 0.1057, 1, 0, 0.6667, 0.3333)),
    ("7 May", "7 May 2023", (0.8, 0.6065, 0.6065, 0.2837, 0.1918, 0.8, 0.6667, 0.8, 0.6466)),
    ("The week of 7 May 2023", "7 May 2023", (0.6667, 0.5, 0.4472, 0.3721, 0.2021, 0.6667, 0.5714, 0.6667, 0.8923)),
    (
        "pottery, camping",
        "pottery, camping, painting, swimming",
        (0.6667, 0.2636, 0.2636, 0.2636, 0.1482, 0.6667, 0.5, 0.6667, 0.1316),
    ),
    ("camping, pottery", "pottery, camping", (1, 1, 0.2236, 0.1740, 0.1495, 1, 0, 0.5, 0)),
    ("dog dog dog", "dog", (1, 0.3333, 0.1291, 0.1211, 0.1136, 0.5, 0, 0.5, 0.4167)),
    ("Running", "run", (0, 0, 0, 0, 0, 1, 0, 1, 0.5)),
    ("charity race!", "Charity race", (1, 0.6667, 0.5774, 0.3255, 0.2403, 1, 1, 1, 0.25)),
    ("self-care", "self care", (0, 0, 0, 0, 0, 1, 1, 1, 0)),
    ("$50", "50", (0, 0.5, 0.2236, 0.1740, 0.1495, 1, 0, 1, 0)),
    ("2022", 2022, (1, 1, 0.3162, 0.2188, 0.1778, 1, 0, 1, 0.5)),
    (2022, 2022, (1, 1, 0.3162, 0.2188, 0.1778, 1, 0, 1, 0.5)),
    ("No.", "No", (1, 0.5, 0.2236, 0.1740, 0.1495, 1, 0, 1, 0)),
    (
        "Likely no",
        "Likely no; though she likes reading",
        (0.25, 0.0821, 0.0821, 0.0384, 0.0260, 0.5, 0.3333, 0.5, 0.0893),
    ),
    (
        "Mr. Smith went. He left.",
        "Mr. Smith",
        (0.5714, 0.2857, 0.2182, 0.1007, 0.0699, 0.5714, 0.4, 0.5714, 0.8152),
    ),
]


@pytest.mark.parametrize("mode", ["as_is", "fixed"])
@pytest.mark.parametrize(("prediction", "reference", "expected"), VECTORS)
def test_the_spec_table(mode: str, prediction: str | int, reference: str | int, expected: tuple[float, ...]) -> None:
    scores = protocol("amem", mode).score(prediction, reference, None, CAT4)
    for metric, value in zip(COLUMNS, expected, strict=True):
        if metric == "meteor" and not wordnet_available():
            assert scores[metric] is None
        else:
            assert scores[metric] == pytest.approx(value, abs=5e-5), metric


def test_exact_match_ignores_case_only() -> None:
    amem = protocol("amem")
    assert amem.score("7 may 2023", "7 May 2023", None, CAT4)["exact_match"] == 1
    assert amem.score(2022, "2022", None, CAT4)["exact_match"] == 1
    assert amem.score("7 May 2023.", "7 May 2023", None, CAT4)["exact_match"] == 0


@pytest.mark.parametrize("empty", ["", None])
@pytest.mark.parametrize("mode", ["as_is", "fixed"])
def test_an_empty_side_scores_zero(mode: str, empty: str | None) -> None:
    amem = protocol("amem", mode)
    for scores in (amem.score(empty, "7 May", None, CAT4), amem.score("7 May", empty, None, CAT4)):
        assert {scores[m] for m in COLUMNS[:-1]} == {0.0}
        assert scores["exact_match"] == 0.0


def test_zero_is_an_answer_only_when_fixed() -> None:
    assert protocol("amem", "as_is").score(0, 0, None, CAT4)["f1"] == 0.0
    assert protocol("amem", "fixed").score(0, 0, None, CAT4)["f1"] == 1.0


def test_category_5_compares_with_the_trap_and_shows_both_readings() -> None:
    amem = protocol("amem")
    adversarial = Category.ADVERSARIAL
    caught = amem.score("self-care is important", None, "self-care is important", adversarial)
    assert (caught["f1"], caught["refused"], caught["fooled"]) == (1.0, 0.0, 1.0)
    honest = amem.score("Not mentioned in the conversation", "No", "self-care is important", adversarial)
    assert (honest["f1"], honest["refused"], honest["fooled"]) == (0.0, 1.0, 0.0)
    assert amem.score("bait", "bait", None, adversarial)["f1"] == 1.0, (
        "pairs scored elsewhere carry the trap as reference"
    )


def test_answer_length_counts_words() -> None:
    assert protocol("amem").score("  a race  for charity ", "x", None, CAT4)["answer_length"] == 4
    assert protocol("amem").score("", "x", None, CAT4)["answer_length"] == 0


def _letters(texts: Sequence[str]) -> NDArray[np.floating]:
    return np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float64)


def test_similarity_is_the_cosine_of_the_given_embedder_and_none_without_one() -> None:
    assert protocol("amem").score("ab", "abb", None, CAT4)["sbert_similarity"] is None
    amem = protocol("amem", embed=_letters)
    assert amem.score("ab", "abb", None, CAT4)["sbert_similarity"] == pytest.approx(3 / np.sqrt(10))
    assert amem.score("xyz", "abb", None, CAT4)["sbert_similarity"] == 0.0
    assert amem.score("", "abb", None, CAT4)["sbert_similarity"] == 0.0


@pytest.mark.parametrize("name", ["amem", "locomo", "mem0"])
@pytest.mark.parametrize("category", list(Category))
def test_zeros_name_every_metric_of_a_score(name: str, category: Category) -> None:
    scorer: Protocol = protocol(name)
    scores = scorer.score("a race", "a race", "a trap", category)
    zeros = scorer.zeros(category)
    assert list(zeros) == list(scores)
    applicable = {metric for metric, value in scores.items() if value is not None} - {"answer_length"}
    assert all(zeros[metric] == 0.0 for metric in applicable)
