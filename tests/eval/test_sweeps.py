from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval import costs, sweeps
from eval.audit import apply
from eval.published import Published
from eval.report.figure import draw
from eval.runs import Run, load_run
from eval.scoring import protocol
from eval.tables import Choices
from memfly.errors import DataError
from tests.support.fake_runs import Predict, perfect, questions, share, write_memory, write_run

CHOICES = Choices(published=Published())


def _grid(root: Path) -> list[Run]:
    points = [(m, l) for m in (0.5, 0.7, 0.9) for l in (0.3, 0.5)][:-1]
    return [
        load_run(write_run(root, predict=share(int(100 * m), "z"), options={"tau_m": m, "tau_l": l})) for m, l in points
    ]


def test_a_grid_has_a_row_and_a_column_per_value_and_a_gap_where_no_run_is(tmp_path: Path) -> None:
    (table,) = sweeps.make(_grid(tmp_path), protocol("amem"), CHOICES)
    assert [row.label for row in table.rows] == ["tau_m = 0.5", "tau_m = 0.7", "tau_m = 0.9"]
    assert [column.key for column in table.columns] == ["0.3", "0.5"]
    assert "0.5" not in table.rows[2].cells
    assert table.rows[2].cells["0.3"].mark == "best"
    assert table.rows[0].cells["0.3"].tied is False
    assert table.rows[0].cells["0.3"].value == table.rows[0].cells["0.5"].value


def test_one_axis_is_a_series_of_metrics(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path, "amem", share(2 * k), options={"k": k})) for k in (30, 10, 20)]
    (table,) = sweeps.make(runs, protocol("amem"), CHOICES, axes=["k"])
    assert [row.label for row in table.rows] == ["k = 10", "k = 20", "k = 30"]
    assert {"average.f1", "average.evidence_hit", "n", "tokens"} <= {column.key for column in table.columns}
    assert any("; 3 points, 0 errors" in note for note in table.notes)
    (alone,) = sweeps.make(runs[:1], protocol("amem"), CHOICES, axes=["k"])
    assert any("; 1 point, 0 errors" in note for note in alone.notes)


def test_what_cannot_be_a_grid_is_one_line(tmp_path: Path) -> None:
    runs = _grid(tmp_path)
    with pytest.raises(DataError, match="no finished run of a method with no_such"):
        sweeps.make(runs, protocol("amem"), CHOICES, axes=["no_such"])
    with pytest.raises(DataError, match="one option of the method, or two"):
        sweeps.make(runs, protocol("amem"), CHOICES, axes=["a", "b", "c"])
    other = load_run(write_run(tmp_path, "amem"))
    with pytest.raises(DataError, match="--where method_name"):
        sweeps.make([*runs, other], protocol("amem"), CHOICES)
    twice = load_run(write_run(tmp_path, options={"tau_m": 0.5, "tau_l": 0.3, "k": 7}))
    with pytest.raises(DataError, match=r"two runs at tau_m=0\.5, tau_l=0\.3"):
        sweeps.make([*runs, twice], protocol("amem"), CHOICES)


ODD: list[tuple[str, list[Any], list[str]]] = [
    ("order", ["cosine", "bm25", None], ["bm25", "cosine", "null"]),
    ("merge_cosine", [None, 0.9, 0.85], ["0.85", "0.9", "null"]),
    ("pathways", [["topic", "keyword"], ["topic"], []], ["none", "topic", "topic+keyword"]),
    ("k", [20, 3, 10.0], ["3", "10", "20"]),
    ("on", [True, False, 3], ["3", "false", "true"]),
]


@pytest.mark.parametrize(("axis", "values", "shown"), ODD)
def test_any_setting_can_be_an_axis(tmp_path: Path, axis: str, values: list[Any], shown: list[str]) -> None:
    runs = [
        load_run(write_run(tmp_path, options={axis: value, "tau_m": tau})) for value in values for tau in (0.5, 0.7)
    ]
    some = [run for run in runs if run.config["method.tau_m"] == 0.5]
    (series,) = sweeps.make(some, protocol("amem"), CHOICES, axes=[axis])
    assert [row.label for row in series.rows] == [f"{axis} = {text}" for text in shown]
    (grid,) = sweeps.make(runs, protocol("amem"), CHOICES, axes=["tau_m", axis])
    assert [column.title for column in grid.columns] == shown
    for table, two in ((series, False), (grid, True)):
        assert [path.stat().st_size > 0 for path in draw(table, tmp_path / f"f{two}", grid=two)] == [True, True]


def test_1_and_1_0_are_one_point(tmp_path: Path) -> None:
    runs = [load_run(write_run(tmp_path, options={"tau_m": value})) for value in (1, 1.0, 0.5)]
    with pytest.raises(DataError, match="two runs at tau_m=1:"):
        sweeps.make(runs, protocol("amem"), CHOICES, axes=["tau_m"])


@pytest.mark.parametrize("axes", [["tau_m"], ["tau_m", "tau_l"]])
def test_a_metric_that_no_question_has_is_one_line(tmp_path: Path, axes: list[str]) -> None:
    runs = [load_run(write_run(tmp_path, options={"tau_m": tau})) for tau in (0.5, 0.7)]
    for metric, cell in (("nosuch", "average"), ("fooled", "temporal")):
        with pytest.raises(DataError, match=f"no metric '{metric}'; they have answer_length") as caught:
            sweeps.make(runs, protocol("amem"), CHOICES, axes=axes, metric=metric, cell=cell)
        assert metric not in str(caught.value).partition("they have")[2]


def test_being_fooled_is_no_best_point(tmp_path: Path) -> None:
    fooled: Predict = lambda r: r.trap or "banana"  # noqa: E731
    points = ((0.5, fooled), (0.7, perfect))
    runs = [load_run(write_run(tmp_path, predict=predict, options={"tau_m": tau})) for tau, predict in points]
    for metric in ("f1", "fooled"):
        (table,) = sweeps.make(runs, protocol("amem"), CHOICES, axes=["tau_m"], metric=metric, cell="adversarial")
        assert {row.cells[f"adversarial.{metric}"].mark for row in table.rows} == {""}


def test_an_audit_leaves_out_errors_with_their_questions(tmp_path: Path) -> None:
    asked = {r.id: r.question for r in questions()}
    issue = {"question_id": "locomo_0_qa0", "question": asked["conv-0#0"], "error_type": "HALLUCINATION"}
    (tmp_path / "audit.json").write_text(json.dumps([issue]))
    lost: Predict = lambda r: None if r.id == "conv-0#0" else perfect(r)  # noqa: E731
    runs = [load_run(write_run(tmp_path, predict=lost, options={"tau_m": tau})) for tau in (0.5, 0.7)]
    choices = replace(CHOICES, audit=apply(tmp_path / "audit.json", asked))
    whole, rest = sweeps.make(runs, protocol("amem"), choices, axes=["tau_m"])
    counted = [[(row.cells["n"].value, row.cells["n_error"].value) for row in t.rows] for t in (whole, rest)]
    assert counted == [[(100, 1)] * 2, [(99, 0)] * 2]
    assert "2 errors" in whole.notes[0]
    assert "0 errors" in rest.notes[0]


def test_errors_of_several_seeds_are_counted_in_questions(tmp_path: Path) -> None:
    lost: Predict = lambda r: None if r.id == "conv-0#0" else perfect(r)  # noqa: E731
    runs = [load_run(write_run(tmp_path, predict=lost if seed else perfect, seed=seed)) for seed in range(3)]
    (table,) = costs.make(runs)
    assert (table.rows[0].cells["n"].value, table.rows[0].cells["n_error"].value) == (100, 1)


def test_costs_per_turn_and_question(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    write_memory(folder, [f"conv-{i}" for i in range(10)], calls=20, seconds=1.5, notes=4)
    free = write_run(tmp_path, "no_context")
    (table,) = costs.make([load_run(folder), load_run(free)])
    ours, other = table.rows
    values = {key: cell.value for key, cell in ours.cells.items()}
    assert ours.label == "MemFly"
    assert values["build_calls"] == 4.0  # 200 calls over the 50 turns the manifest names
    assert values["build_prompt"] == 40.0
    assert values["build_s"] == 15.0
    assert values["notes"] == pytest.approx(0.8)
    assert values["question_calls"] == 1.0
    assert values["question_prompt"] == 120.0
    assert other.cells["build_calls"].value is None, "a memory that is gone has no cost, not a cost of 0"
