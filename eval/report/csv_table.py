"""Tables as tidy CSV: one line per row and column, numbers unrounded and in percent where the table prints percent."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from eval.report.model import Table

FIELDS = (
    "table", "subset", "section", "row", "kind", "runs", "column", "value", "se", "low", "high", "n", "n_error",
    "value_without_errors", "published", "gap", "source", "provenance", "mark", "tied_with_best",
)  # fmt: skip


def render(tables: Sequence[Table]) -> str:
    facts = list(dict.fromkeys(name for table in tables for name in table.facts))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIELDS, *facts])
    for table in tables:
        for row in table.rows:
            for column in table.columns:
                cell = row.cells.get(column.key)
                if cell is None or (cell.value is None and cell.published is None):
                    continue
                numbers = [None if v is None else v * column.scale for v in (cell.value, cell.se, cell.low, cell.high)]
                more = [None if v is None else v * column.scale for v in (cell.without_errors, cell.published)]
                gap = None if numbers[0] is None or more[1] is None else numbers[0] - more[1]
                writer.writerow(
                    [table.name, table.subset, row.section, row.label, row.kind, row.detail, column.key, *numbers]
                    + [cell.n, cell.n_error, *more, gap, cell.source, cell.provenance, cell.mark, int(cell.tied)]
                    + [table.facts.get(name, "") for name in facts]
                )
    return text.getvalue()
