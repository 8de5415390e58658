from __future__ import annotations

import pytest

from eval.categories import Category
from eval.scoring import protocol
from eval.scoring.mem0 import METRICS


@pytest.mark.parametrize(
    ("reference", "prediction", "f1", "bleu1"),
    [
        (2022, "2022", 1, 1),
        ("Likely no; though", "Likely no", 0.4, 0.3679),
        ("a, b", "b", 0.6667, 0.1353),
        ("x", "", 0, 0),
    ],
)
@pytest.mark.parametrize("mode", ["as_is", "fixed"])
def test_the_spec_values(mode: str, reference: str | int, prediction: str, f1: float, bleu1: float) -> None:
    scores = protocol("mem0", mode).score(prediction, reference, None, Category.OPEN_DOMAIN)
    assert scores["f1"] == pytest.approx(f1, abs=5e-5)
    assert scores["bleu1"] == pytest.approx(bleu1, abs=5e-5)


def test_category_5_is_skipped() -> None:
    scores = protocol("mem0").score("bait", None, "bait", Category.ADVERSARIAL)
    assert {scores[metric] for metric in METRICS} == {None}
    assert scores["fooled"] == 1.0


def test_a_missing_answer_is_the_word_none_only_as_is() -> None:
    assert protocol("mem0", "as_is").score(None, "None of them", None, Category.SINGLE_HOP)["f1"] == 0.5
    assert protocol("mem0", "fixed").score(None, "None of them", None, Category.SINGLE_HOP)["f1"] == 0.0
