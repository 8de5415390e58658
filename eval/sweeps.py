"""Sensitivity: one metric over a grid of two settings (tau_m x tau_l), or several metrics along one (k).

The figure of it is `eval.report.figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.cells import marked, score_cell, tokens_cell
from eval.report.model import MARKS, Cell, Column, Row, Table
from eval.runs import Run, Scored, check_comparable, grouped, score_group
from eval.scoring.aggregate import AVERAGE
from eval.scoring.protocol import Protocol
from eval.tables import COUNTS, METRIC_TITLES, TITLES, Choices, describe
from memfly.errors import DataError

AXES = ("tau_m", "tau_l")
LINE_METRICS = ("f1", "bleu1", "evidence_recall", "evidence_hit")


def make(
    runs: Sequence[Run],
    protocol: Protocol,
    choices: Choices,
    *,
    axes: Sequence[str] = AXES,
    metric: str = "f1",
    cell: str = AVERAGE,
) -> list[Table]:
    """A grid (two axes) or a series (one axis) over all questions and, with an audit, without its wrong golds.

    An axis is an option of the method, such as `tau_m` or `retrieval.k_final`. Raises DataError when no run has it, when
    the runs differ in method or backbone, and when two runs fit one point.
    """
    if len(axes) not in (1, 2):
        raise DataError("table sensitivity: --axes takes one option of the method, or two, such as tau_m tau_l")
    fitting = [run for run in runs if all(f"method.{axis}" in run.config for axis in axes)]
    kinds = sorted({(run.method, run.backbone) for run in fitting})
    if not fitting:
        raise DataError(
            f"table sensitivity: no finished run of a method with {' and '.join(axes)}; run the sweep first"
        )
    if len(kinds) > 1:
        names = ", ".join(f"{method} on {backbone}" for method, backbone in kinds)
        raise DataError(f"table sensitivity: runs of {names}; choose one: --where method_name={kinds[0][0]}")
    notes = [f"MIXED: {line}" for line in check_comparable(fitting, allow_mixed=choices.allow_mixed)]
    points: dict[tuple[Any, ...], Scored] = {}
    for group in grouped(fitting):
        place = tuple(group.first.config[f"method.{axis}"] for axis in axes)
        if place in points:
            raise DataError(
                f"table sensitivity: two runs at {', '.join(f'{a}={v}' for a, v in zip(axes, place, strict=True))}: "
                f"{points[place].group.name} and {group.name}; choose with --where, or name the runs"
            )
        points[place] = score_group(group, protocol)
    subsets = [frozenset[str]()] + ([choices.audit.corrupting] if choices.audit else [])
    layout = _grid if len(axes) == 2 else _series
    return [layout(points, protocol, axes, metric, cell, without, notes, choices.alpha) for without in subsets]


def _grid(
    points: dict[tuple[Any, ...], Scored],
    protocol: Protocol,
    axes: Sequence[str],
    metric: str,
    cell: str,
    without: frozenset[str],
    notes: Sequence[str],
    alpha: float,
) -> Table:
    down, across = (sorted({place[i] for place in points}) for i in (0, 1))
    cells = {place: score_cell(scored, cell, metric, without) for place, scored in points.items()}
    cells, few = _marked_points(cells, points, cell, metric, without, alpha)
    columns = tuple(Column(str(value), str(value), axes[1], ranked=False) for value in across)
    rows = tuple(
        Row(
            f"{axes[0]} = {y}",
            "ran",
            {str(x): cells[y, x] for x in across if (y, x) in cells},
            detail=_names(points, y),
        )
        for y in down
    )
    what = f"{TITLES[cell]} {METRIC_TITLES.get(metric, metric)}"
    return _table(points, protocol, axes, what, columns, rows, [*few, *notes], without)


def _names(points: dict[tuple[Any, ...], Scored], y: Any) -> str:
    return " ".join(scored.group.name for place, scored in points.items() if place[0] == y)


def _marked_points(
    cells: dict[tuple[Any, ...], Cell],
    points: dict[tuple[Any, ...], Scored],
    cell: str,
    metric: str,
    without: frozenset[str],
    alpha: float,
) -> tuple[dict[tuple[Any, ...], Cell], list[str]]:
    """Best, second, and the points a paired test cannot tell from the best, over the whole grid as over one column."""
    places = list(cells)
    column = Column(f"{cell}.{metric}", metric)
    rows = [{column.key: cells[place]} for place in places]
    found, notes = marked(rows, [points[place] for place in places], [column], without, alpha)
    return {place: row[column.key] for place, row in zip(places, found, strict=True)}, notes


def _series(
    points: dict[tuple[Any, ...], Scored],
    protocol: Protocol,
    axes: Sequence[str],
    metric: str,
    cell: str,
    without: frozenset[str],
    notes: Sequence[str],
    alpha: float,
) -> Table:
    metrics = list(dict.fromkeys([metric, *LINE_METRICS]))
    columns = tuple(
        Column(f"{cell}.{name}", METRIC_TITLES.get(name, name), TITLES[cell])
        for name in metrics
        if any(scored.values(name) for scored in points.values())
    )
    places = sorted(points)
    members = [points[place] for place in places]
    found = [{c.key: score_cell(s, cell, c.key.split(".")[1], without) for c in columns} for s in members]
    found, few = marked(found, members, columns, without, alpha)
    for row, scored in zip(found, members, strict=True):
        row["n"] = Cell(float(sum(id not in without for id in scored.category)))
        row["n_error"] = Cell(float(scored.n_error))
        row["tokens"] = tokens_cell(scored, without)
    rows = tuple(
        Row(f"{axes[0]} = {place[0]}", "ran", row, detail=points[place].group.name)
        for place, row in zip(places, found, strict=True)
    )
    return _table(points, protocol, axes, TITLES[cell], (*columns, *COUNTS), rows, [*few, *notes], without)


def _table(
    points: dict[tuple[Any, ...], Scored],
    protocol: Protocol,
    axes: Sequence[str],
    what: str,
    columns: tuple[Column, ...],
    rows: tuple[Row, ...],
    notes: Sequence[str],
    without: frozenset[str],
) -> Table:
    first = next(iter(points.values())).group.first
    facts = describe(first, protocol, len(first.records) - len(without & {r.id for r in first.records}))
    errors = sum(scored.n_error for scored in points.values())
    told = (
        f"protocol {facts['protocol']} ({facts['mode']}), prompt set {facts['prompt_set']}, data {facts['data']}, "
        f"questions {facts['questions']}"
    )
    size = f"{len(points)} point" + "s" * (len(points) > 1)
    legend = (
        f"Percent, ± standard error clustered by conversation; {size}, {errors} errors, counted as 0. " + MARKS.strip()
    )
    title = f"{first.method} on {first.backbone}: {what} over {' x '.join(axes)}; {told}"
    title += f"; without {len(without)} questions whose gold is wrong" if without else ""
    subset = "without_wrong_golds" if without else "all"
    return Table("sensitivity", title, columns, rows, (legend, *notes), subset, facts)
