"""What a table is, whatever it is printed as, and which lines a row takes.

A row that ran here may have lines under it: the same without failed questions, the number a paper reports, and the gap.
Rows are of three kinds that no renderer may make look alike: ran here, reported elsewhere, control answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["ran", "reported", "control"]
LineKind = Literal["ran", "reported", "control", "without_errors", "published", "gap"]
Mark = Literal["", "best", "second"]

REPORTED_MARK = "†"
TIED_MARK = "≈"
LEGEND = f"{REPORTED_MARK} reported elsewhere, not run here. "
MARKS = f"Bold: best; underlined: second; {TIED_MARK}: not distinguishable from the best (paired test, Holm, 5 %). "


@dataclass(frozen=True)
class Column:
    """`scale` turns a value into what is printed (100 for shares), `group` is a heading over neighbouring columns."""

    key: str
    title: str
    group: str = ""
    scale: float = 100.0
    digits: int = 2
    ranked: bool = True
    """Whether best and second are marked."""


@dataclass(frozen=True)
class Cell:
    """One number in its own unit (shares, not percent). `published` is the paper's, in the same unit."""

    value: float | None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    n_error: int = 0
    without_errors: float | None = None
    published: float | None = None
    source: str = ""
    provenance: str = ""
    mark: Mark = ""
    tied: bool = False


@dataclass(frozen=True)
class Row:
    """`cells` by column key; absent = not applicable. `detail` names the runs behind it; `published_label` says what the
    line under it quotes."""

    label: str
    kind: Kind
    cells: Mapping[str, Cell]
    section: str = ""
    detail: str = ""
    published_label: str = ""


@dataclass(frozen=True)
class Table:
    """`subset` tells apart several tables of the same rows (all questions; without known wrong golds)."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    subset: str = "all"
    facts: Mapping[str, str] = field(default_factory=dict)
    """Protocol, mode, prompt set ...: what a caption and each CSV line say."""

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(row.section for row in self.rows))

    def spans(self) -> list[tuple[str, int]]:
        """Headings over the columns, with how many columns each covers; "" where there is none."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found


@dataclass(frozen=True)
class Text:
    """A cell's text without any markup: the number, its standard error, and its marks."""

    number: str
    error: str = ""
    mark: Mark = ""
    tied: bool = False


@dataclass(frozen=True)
class Line:
    """One printed line of a row; the first of a row has the row's kind."""

    label: str
    kind: LineKind
    texts: tuple[Text, ...]


def lines(row: Row, table: Table) -> list[Line]:
    """The lines a row takes: itself, without errors where that differs, and the published number with the gap."""
    columns = table.columns
    label = f"{row.label} {REPORTED_MARK}" if row.kind == "reported" else row.label
    found = [Line(label, row.kind, tuple(_text(row.cells.get(c.key), c) for c in columns))]
    cells = [(row.cells.get(column.key), column) for column in columns]
    if any(cell is not None and cell.without_errors is not None for cell, _ in cells):
        texts = tuple(_number(cell.without_errors if cell else None, column) for cell, column in cells)
        found.append(Line("errors left out", "without_errors", texts))
    if any(cell is not None and cell.published is not None for cell, _ in cells):
        published = tuple(_number(cell.published if cell else None, column) for cell, column in cells)
        gaps = tuple(_number(_gap(cell), column, signed=True) for cell, column in cells)
        found.append(Line(f"{row.published_label or 'reported'} {REPORTED_MARK}", "published", published))
        found.append(Line("gap", "gap", gaps))
    return found


def _gap(cell: Cell | None) -> float | None:
    if cell is None or cell.value is None or cell.published is None:
        return None
    return cell.value - cell.published


def _text(cell: Cell | None, column: Column) -> Text:
    if cell is None or cell.value is None:
        return Text("-")
    error = "" if cell.se is None else f"{cell.se * column.scale:.{column.digits}f}"
    return Text(f"{cell.value * column.scale:.{column.digits}f}", error, cell.mark, cell.tied)


def _number(value: float | None, column: Column, *, signed: bool = False) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value * column.scale:{'+' if signed else ''}.{column.digits}f}")
