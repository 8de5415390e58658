from __future__ import annotations

from collections.abc import Mapping

import pytest

from eval.categories import Category
from eval.scoring import Scores, protocol
from eval.scoring.aggregate import AVERAGE, AVERAGE4, CELLS, ScoredRow, aggregate, score_answer
from memfly.errors import DataError

ASKED = {
    "a": Category.MULTI_HOP,
    "b": Category.MULTI_HOP,
    "c": Category.SINGLE_HOP,
    "d": Category.ADVERSARIAL,
    "e": Category.ADVERSARIAL,
}


def _zeros(category: Category) -> Scores:
    return {"f1": 0.0, "fooled": 0.0 if category is Category.ADVERSARIAL else None}


def _row(id: str, **scores: float | None) -> ScoredRow:
    return ScoredRow(id, scores)


ROWS = [
    _row("a", f1=1.0, fooled=None),
    ScoredRow("b", None, "timeout"),
    _row("c", f1=0.5, fooled=None),
    _row("d", f1=0.25, fooled=1.0),
]


def test_micro_averages_with_both_readings_of_errors() -> None:
    cells = aggregate(ASKED, ROWS, _zeros)
    assert tuple(cells) == CELLS
    multi = cells["multi_hop"]
    assert (multi.n, multi.n_error, multi.n_unscored) == (2, 1, 0)
    assert (multi.mean["f1"], multi.mean_scored["f1"], multi.count["f1"], multi.count_scored["f1"]) == (0.5, 1.0, 2, 1)
    everything = cells[AVERAGE]
    assert (everything.n, everything.n_error, everything.n_unscored) == (5, 1, 1)
    assert everything.mean["f1"] == pytest.approx(1.75 / 5)
    assert everything.mean_scored["f1"] == pytest.approx(1.75 / 3)
    assert cells[AVERAGE4].mean["f1"] == pytest.approx(1.5 / 3)
    assert cells["temporal"].n == 0
    assert cells["temporal"].mean == {}


def test_a_metric_that_does_not_apply_is_in_no_average() -> None:
    cells = aggregate(ASKED, ROWS, _zeros)
    assert cells["multi_hop"].mean["fooled"] is None
    assert (cells[AVERAGE].mean["fooled"], cells[AVERAGE].mean_scored["fooled"]) == (0.5, 1.0)
    assert (cells[AVERAGE].count["fooled"], cells[AVERAGE].count_scored["fooled"]) == (2, 1)


def test_an_unscored_judgement_is_not_wrong() -> None:
    rows = [_row("a", f1=1.0, judge=1.0), _row("b", f1=0.0, judge=None)]
    cell = aggregate({"a": Category.TEMPORAL, "b": Category.TEMPORAL}, rows, _zeros)["temporal"]
    assert (cell.mean["judge"], cell.count["judge"], cell.n) == (1.0, 1, 2)


def test_a_category_where_all_failed_scores_zero() -> None:
    cell = aggregate({"a": Category.TEMPORAL}, [ScoredRow("a", None, "x")], _zeros)["temporal"]
    assert (cell.mean["f1"], cell.mean_scored["f1"]) == (0.0, None)


def test_what_the_original_cannot_score_is_in_no_average_answered_or_not() -> None:
    scorer = protocol("locomo", "as_is")
    crash = score_answer(scorer, "d", "It was not mentioned", None, "bait", Category.ADVERSARIAL)
    assert (crash.unscorable, crash.answered) == ("KeyError", True)
    lost = ScoredRow("e", None, "timeout", unscorable="KeyError")
    cells = aggregate(ASKED, [_row("a", f1=1.0), crash, lost], scorer.zeros)
    five = cells["adversarial"]
    assert (five.n, five.n_error, five.n_unscorable, five.count["f1"]) == (2, 1, 2, 0)
    assert (five.mean["f1"], five.mean["refused_tolerant"], five.mean_scored["refused_tolerant"]) == (None, 0.5, 1.0)
    assert cells[AVERAGE].count["f1"] == 3


@pytest.mark.parametrize(
    ("rows", "message"), [([_row("z", f1=1.0)], "never asked"), ([_row("a", f1=1.0), _row("a", f1=0.0)], "twice")]
)
def test_rows_that_were_not_asked_or_come_twice_are_refused(rows: list[ScoredRow], message: str) -> None:
    with pytest.raises(DataError, match=message):
        aggregate(ASKED, rows, _zeros)


def test_mem0_average_leaves_category_5_out() -> None:
    mem0 = protocol("mem0")
    scores: Mapping[str, float | None] = mem0.score("trap", None, "trap", Category.ADVERSARIAL)
    rows = [_row("c", **mem0.score("x", "x", None, Category.SINGLE_HOP)), ScoredRow("d", scores)]
    cells = aggregate({"c": Category.SINGLE_HOP, "d": Category.ADVERSARIAL}, rows, mem0.zeros)
    assert cells[AVERAGE].mean["f1"] == cells[AVERAGE4].mean["f1"] == 1.0
    assert cells["adversarial"].mean["f1"] is None
