"""Every golden row, every metric, both modes: our numbers are the original scorers' numbers."""

from __future__ import annotations

from typing import Any

import pytest

from eval.categories import Category
from eval.scoring import MODES, protocol

TOLERANCE = 1e-9


def _score(name: str, mode: str, row: dict[str, Any]) -> dict[str, float | None]:
    category = Category(row["category"])
    trap = row["reference"] if category is Category.ADVERSARIAL else None
    return protocol(name, mode).score(row["prediction"], row["reference"], trap, category)


@pytest.mark.parametrize("mode", MODES)
def test_amem_equals_the_original_on_every_golden_row(golden_rows: list[dict[str, Any]], mode: str) -> None:
    assert len(golden_rows) == 2383
    different = [
        (row["prediction"], metric, value, expected)
        for row in golden_rows
        for metric, expected in row["amem"].items()
        if (value := _score("amem", mode, row)[metric]) is None or abs(value - expected) > TOLERANCE
    ]
    assert different == []


@pytest.mark.parametrize("mode", MODES)
def test_locomo_equals_the_original_on_every_golden_row(golden_rows: list[dict[str, Any]], mode: str) -> None:
    different = [
        (row["prediction"], value, row["locomo_official"])
        for row in golden_rows
        if (value := _score("locomo", mode, row)["f1"]) is None or abs(value - row["locomo_official"]) > TOLERANCE
    ]
    assert different == []


def test_mem0_shares_amems_word_metrics_outside_category_5(golden_rows: list[dict[str, Any]]) -> None:
    for row in golden_rows:
        scores = _score("mem0", "as_is", row)
        for metric in ("exact_match", "f1", "bleu1", "bleu2", "bleu3", "bleu4"):
            if row["category"] == 5:
                assert scores[metric] is None
            else:
                assert scores[metric] == pytest.approx(row["amem"][metric], abs=TOLERANCE)
