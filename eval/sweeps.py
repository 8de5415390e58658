"""Sensitivity: one metric over a grid of two settings (tau_m x tau_l), or several metrics along one (k).

The figure of it is `eval.report.figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eval.cells import cell_ids, marked, ranked, score_cell
from eval.comparable import check_comparable
from eval.compare import no_such_metric, unscorable_note
from eval.report.model import MARKS, Cell, Column, Row, Table
from eval.runs import Run, Scored, grouped, score_group, setting_text
from eval.scoring.aggregate import AVERAGE
from eval.scoring.protocol import Protocol
from eval.tables import COUNTS, METRIC_TITLES, TITLES, Choices, count_cells, describe
from memfly.errors import DataError

AXES = ("tau_m", "tau_l")
LINE_METRICS = ("f1", "bleu1", "evidence_recall", "evidence_hit")


@dataclass(frozen=True, order=True)
class Value:
    """A setting on an axis. Numbers come first, by size; then texts, by the alphabet; then "no value"."""

    rank: int
    number: float
    text: str

    def __str__(self) -> str:
        return self.text


def axis_value(setting: Any) -> Value:
    """A configured value as a place on an axis: 1 and 1.0 are one place, a list is shown as a+b."""
    if isinstance(setting, (int, float)) and not isinstance(setting, bool):
        return Value(0, float(setting), str(int(setting) if float(setting).is_integer() else setting))
    if isinstance(setting, list):
        return Value(1, 0.0, "+".join(map(setting_text, setting)) or "none")
    return Value(2 if setting is None else 1, 0.0, setting_text(setting))


Place = tuple[Value, ...]


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
    the runs differ in method or backbone, when two runs fit one point, and when the metric has no value in the cell.
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
    options = [f"method.{axis}" for axis in axes]
    notes = [f"MIXED: {line}" for line in check_comparable(fitting, allow_mixed=choices.allow_mixed, swept=options)]
    points: dict[Place, Scored] = {}
    for group in grouped(fitting):
        place = tuple(axis_value(group.first.config[option]) for option in options)
        if place in points:
            raise DataError(
                f"table sensitivity: two runs at {', '.join(f'{a}={v}' for a, v in zip(axes, place, strict=True))}: "
                f"{points[place].group.name} and {group.name}; choose with --where, or name the runs"
            )
        points[place] = score_group(group, protocol)
    first = next(iter(points.values()))
    if all(score_cell(scored, cell, metric).value is None for scored in points.values()):
        raise no_such_metric(first, metric, f"table sensitivity --cell {cell}", cell_ids(first, cell, frozenset()))
    notes += unscorable_note(first, metric, protocol)
    subsets = [frozenset[str]()] + ([choices.audit.corrupting] if choices.audit else [])
    sweeps = [_Sweep(points, protocol, axes, metric, cell, without, notes, choices.alpha) for without in subsets]
    return [sweep.grid() if len(axes) == 2 else sweep.series() for sweep in sweeps]


@dataclass(frozen=True)
class _Sweep:
    """The runs of a sweep by their place on the axes, and how they are to be scored."""

    points: dict[Place, Scored]
    protocol: Protocol
    axes: Sequence[str]
    metric: str
    cell: str
    without: frozenset[str]
    """Ids of the questions left out."""
    notes: Sequence[str]
    alpha: float

    def grid(self) -> Table:
        """Two axes: one metric, the first axis down and the second across."""
        down, across = (sorted({place[i] for place in self.points}) for i in (0, 1))
        cells, few = self._marked_points()
        columns = tuple(Column(str(value), str(value), self.axes[1], ranked=False) for value in across)
        rows = tuple(
            Row(
                f"{self.axes[0]} = {y}",
                "ran",
                {str(x): cells[y, x] for x in across if (y, x) in cells},
                detail=" ".join(scored.group.name for place, scored in self.points.items() if place[0] == y),
            )
            for y in down
        )
        what = f"{TITLES[self.cell]} {METRIC_TITLES.get(self.metric, self.metric)}"
        return self._table(what, columns, rows, few)

    def _marked_points(self) -> tuple[dict[Place, Cell], list[str]]:
        """Best, second, and the points a paired test cannot tell from the best, over the whole grid as over one column."""
        column = self._column(self.metric)
        members = list(self.points.values())
        rows = [{column.key: score_cell(scored, self.cell, self.metric, self.without)} for scored in members]
        found, notes = marked(rows, members, [column], self.without, self.alpha)
        return {place: row[column.key] for place, row in zip(self.points, found, strict=True)}, notes

    def series(self) -> Table:
        """One axis: a row per value, several metrics across."""
        metrics = [
            name
            for name in dict.fromkeys([self.metric, *LINE_METRICS])
            if any(scored.values(name) for scored in self.points.values())
        ]
        columns = tuple(map(self._column, metrics))
        places = sorted(self.points)
        members = [self.points[place] for place in places]
        scores = [
            {c.key: score_cell(scored, self.cell, name, self.without) for c, name in zip(columns, metrics, strict=True)}
            for scored in members
        ]
        found, few = marked(scores, members, columns, self.without, self.alpha)
        for row, scored in zip(found, members, strict=True):
            row |= count_cells(scored, self.without)
        rows = tuple(
            Row(f"{self.axes[0]} = {place[0]}", "ran", row, detail=scored.group.name)
            for place, row, scored in zip(places, found, members, strict=True)
        )
        return self._table(TITLES[self.cell], (*columns, *COUNTS), rows, few)

    def _column(self, metric: str) -> Column:
        title, over = METRIC_TITLES.get(metric, metric), TITLES[self.cell]
        return Column(f"{self.cell}.{metric}", title, over, ranked=ranked(self.protocol, self.cell, metric))

    def _table(self, what: str, columns: tuple[Column, ...], rows: tuple[Row, ...], few: Sequence[str]) -> Table:
        first = next(iter(self.points.values())).group.first
        left_out = len(self.without & {r.id for r in first.records})
        facts = describe(first, self.protocol, len(first.records) - left_out)
        errors = sum(len(scored.failed(self.without)) for scored in self.points.values())
        told = (
            f"protocol {facts['protocol']} ({facts['mode']}), prompt set {facts['prompt_set']}, data {facts['data']}, "
            f"questions {facts['questions']}"
        )
        size = f"{len(self.points)} point" + "s" * (len(self.points) > 1)
        legend = (
            f"Percent, ± standard error clustered by conversation; {size}, {errors} errors, counted as 0. "
            + MARKS.strip()
        )
        title = f"{first.method} on {first.backbone}: {what} over {' x '.join(self.axes)}; {told}"
        title += f"; without {len(self.without)} questions whose gold is wrong" if self.without else ""
        subset = "without_wrong_golds" if self.without else "all"
        return Table("sensitivity", title, columns, rows, (legend, *few, *self.notes), subset, facts)
