"""The sensitivity table as a figure, PNG and PDF."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from eval.records import write_atomic
from eval.report.model import Cell, Table
from memfly.errors import DataError


def draw(table: Table, path: Path, *, grid: bool) -> list[Path]:
    """Draw a grid as a heat map, a series as lines with 95 % intervals; writes PATH.png and PATH.pdf, and gives both.

    Raises DataError when they cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.2, 4.0), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot()
    if grid:
        _heat_map(drawing, axes, table)
    else:
        _lines(axes, table)
    axes.set_title(table.title.split(";")[0], fontsize=9)
    written = []
    for ending in (".png", ".pdf"):
        target = path.with_name(path.name.removesuffix(".png").removesuffix(".pdf") + ending)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            dated = {"CreationDate": None} if ending == ".pdf" else None
            drawing.savefig(content, format=ending[1:], dpi=200, metadata=dated)
            write_atomic(target, content.getvalue())
        except OSError as error:
            raise DataError(f"--figure {target}: cannot write it ({error.strerror})") from None
        written.append(target)
    return written


def _heat_map(drawing: Any, axes: Any, table: Table) -> None:
    keys = [column.key for column in table.columns]
    values = [
        [100 * v if (v := row.cells.get(key, Cell(None)).value) is not None else float("nan") for key in keys]
        for row in table.rows
    ]
    image = axes.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    drawing.colorbar(image, ax=axes, label="percent")
    axes.set_xticks(range(len(keys)), [column.title for column in table.columns])
    axes.set_yticks(range(len(table.rows)), [row.label.partition(" = ")[2] for row in table.rows])
    axes.set_xlabel(table.columns[0].group)
    axes.set_ylabel(table.rows[0].label.partition(" = ")[0])
    for y, row in enumerate(table.rows):
        for x, key in enumerate(keys):
            cell = row.cells.get(key)
            if cell is not None and cell.value is not None:
                light = image.norm(100 * cell.value) > 0.6  # viridis ends in yellow, on which white cannot be read
                weight = "bold" if cell.mark == "best" else "normal"
                text = f"{100 * cell.value:.1f}" + ("≈" if cell.tied else "")
                axes.text(
                    x,
                    y,
                    text,
                    ha="center",
                    va="center",
                    color="black" if light else "white",
                    fontweight=weight,
                    fontsize=8,
                )


def _positions(places: list[str]) -> list[float] | None:
    """The axis's values as numbers; None where one is none, such as the name of an order."""
    try:
        return [float(place) for place in places]
    except ValueError:
        return None


def _lines(axes: Any, table: Table) -> None:
    places = [row.label.partition(" = ")[2] for row in table.rows]
    x = _positions(places)
    if x is None:
        x = [float(i) for i in range(len(places))]
        axes.set_xticks(x, places)
    for column in table.columns:
        if "." not in column.key:
            continue
        cells = [row.cells.get(column.key, Cell(None)) for row in table.rows]
        known = [(at, c) for at, c in zip(x, cells, strict=True) if c.value is not None]
        values = [100 * (c.value or 0.0) for _, c in known]
        half = [0.0 if c.high is None or c.value is None else 100 * (c.high - c.value) for _, c in known]
        axes.errorbar([at for at, _ in known], values, yerr=half, marker="o", capsize=2, label=column.title)
    axes.set_xlabel(table.rows[0].label.partition(" = ")[0])
    axes.set_ylabel("percent")
    axes.legend(fontsize=8)
