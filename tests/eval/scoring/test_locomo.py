from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.categories import Category
from eval.scoring import OriginalFailure, protocol
from eval.scoring.locomo import stemmed_f1
from eval.scoring.text import normalise

MULTI, TEMPORAL, OPEN, SINGLE, ADVERSARIAL = Category


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Sunday before 25 May, 2023.", "sunday before 25 may 2023"),
        ("self-care", "selfcare"),
        ("U.S.A.", "usa"),
        ("$1,000", "1000"),
        ("an", ""),
        ("a band and an ant", "band ant"),
        ("don’t", "don’t"),
        ("  Two\t words\n", "two words"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize("mode", ["as_is", "fixed"])
@pytest.mark.parametrize(
    ("category", "prediction", "reference", "expected"),
    [
        (TEMPORAL, "May 7, 2023", "7 May 2023", 1.0),
        (TEMPORAL, "7th of May 2023", "7 May 2023", 4 / 7),
        (SINGLE, "She ran a race", "running races", 0.4),
        (SINGLE, "counselling", "counseling", 1.0),
        (SINGLE, "psychology and counseling", "Psychology, counseling certification", 0.8),
        (SINGLE, "the dog dog", "dog", 2 / 3),
        (SINGLE, "mental-health", "mental health", 0.0),
        (SINGLE, "Yes, she would", "Yes", 0.5),
        (TEMPORAL, "", "7 May", 0.0),
        (MULTI, "camping, pottery", "pottery, camping, painting, swimming", 0.5),
        (MULTI, "pottery camping painting swimming", "pottery, camping, painting, swimming", 0.4),
        (MULTI, "pottery and camping", "pottery, camping", 2 / 3),
        (MULTI, "beach, mountains, forest", "beach, mountains", 1.0),
        (MULTI, "dog", "dog,", 0.5),
        (MULTI, "3", 3, 1.0),
        (OPEN, "Likely no", "Likely no; though she likes reading", 1.0),
        (OPEN, "Likely no; though she likes reading", "Likely no; though she likes reading", 0.5),
        (SINGLE, "A", "A; B", 0.0),
        (ADVERSARIAL, "Not mentioned in the conversation", "bait", 1.0),
        (ADVERSARIAL, "No information available.", "bait", 1.0),
        (ADVERSARIAL, "It is NOT MENTIONED", "bait", 1.0),
        (ADVERSARIAL, "not  mentioned", "bait", 0.0),
        (ADVERSARIAL, "No information is available", "bait", 0.0),
        (ADVERSARIAL, "I don't know", "bait", 0.0),
        (ADVERSARIAL, "", "bait", 0.0),
        (TEMPORAL, "2022", 2022, 1.0),
        (MULTI, "three", 3, 0.0),
    ],
)
def test_the_spec_table(mode: str, category: Category, prediction: str, reference: str | int, expected: float) -> None:
    scores = protocol("locomo", mode).score(prediction, reference, None, category)
    assert scores["f1"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("prediction", "reference", "category", "original"),
    [
        (None, "7 May", TEMPORAL, "AttributeError"),
        (2022, 2022, TEMPORAL, "AttributeError"),
        ("Not mentioned", None, ADVERSARIAL, "KeyError"),
        (None, None, ADVERSARIAL, "KeyError"),
    ],
)
def test_as_is_fails_where_the_original_crashes_and_fixed_does_not(
    prediction: str | int | None, reference: str | int | None, category: Category, original: str
) -> None:
    with pytest.raises(OriginalFailure) as failure:
        protocol("locomo", "as_is").score(prediction, reference, "bait", category)
    assert failure.value.original == original
    assert "\n" not in str(failure.value)
    assert protocol("locomo", "fixed").score(prediction, reference, "bait", category)["f1"] in (0.0, 1.0)


@given(st.text(max_size=40))
def test_f1_of_a_text_with_itself_is_one_or_it_has_no_words(text: str) -> None:
    assert stemmed_f1(text, text) == (1.0 if normalise(text) else 0.0)


@given(st.text("ab ,.", max_size=20), st.text("ab ,.", max_size=20))
def test_f1_is_symmetric_and_in_range(a: str, b: str) -> None:
    assert stemmed_f1(a, b) == pytest.approx(stemmed_f1(b, a))
    assert 0.0 <= stemmed_f1(a, b) <= 1.0
