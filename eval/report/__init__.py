"""Tables as text: one model of a table, and a renderer per format. No statistics, no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eval.report import csv_table, html_page, latex, markdown
from eval.report.model import Cell, Column, Row, Table

Renderer = Callable[[Sequence[Table]], str]

FORMATS: Mapping[str, Renderer] = {
    "markdown": markdown.render,
    "latex": latex.render,
    "csv": csv_table.render,
    "html": html_page.render,
}
"""Format name -> renderer of one or several tables."""

__all__ = ["FORMATS", "Cell", "Column", "Renderer", "Row", "Table"]
