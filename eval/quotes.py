"""Papers' numbers beside runs: which runs they may stand beside, under which cell, and in rows of their own.

A printed number and a gap say something only of the same task: all of LoCoMo-10, A-MEM's protocol and prompts, each system
showing what it would. Beside other runs no number is quoted, and a note says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.locomo import LOCOMO10_SHA256
from eval.published import METRICS, Number, Published
from eval.report.model import Cell, Row
from eval.runs import Run
from eval.scoring.protocol import Protocol

CONVERSATIONS = 10
"""Of LoCoMo-10, on all of which the papers' numbers are."""


def why_not(run: Run, protocol: Protocol) -> str:
    """Why no paper's number may stand beside this run; empty where it may."""
    data, answer = run.manifest["identity"]["data"], run.manifest["identity"]["answer"]
    if protocol.name != "amem":
        return f"protocol {protocol.name}"
    if data["sha256"] != LOCOMO10_SHA256:
        return "data other than LoCoMo-10"
    if len(data["conversations"]) < CONVERSATIONS or data["limit_questions"] is not None:
        return "only part of LoCoMo-10"
    if answer["prompt_set"] != "amem":
        return f"prompt set {answer['prompt_set']}"
    return "a token budget" if answer["token_budget"] is not None else ""


def note(runs: Sequence[Run], protocol: Protocol) -> list[str]:
    """The line that says why numbers are not quoted beside these runs, or some of them."""
    reasons = list(dict.fromkeys(filter(None, (why_not(run, protocol) for run in runs))))
    if not reasons:
        return []
    return [
        "Reported numbers are on all of LoCoMo-10 with A-MEM's protocol and prompts and no token budget; none is quoted "
        f"beside runs with {' or '.join(reasons)}"
    ]


def quote(cells: Mapping[str, Cell], printed: Mapping[tuple[str, str], Number]) -> tuple[dict[str, Cell], bool]:
    """The cells with a paper's numbers for them, and whether there are any."""
    found, quoted = dict(cells), False
    for key, cell in cells.items():
        name, _, metric = key.partition(".")
        number = printed.get((name, METRICS.get(metric, metric)))
        if number is not None:
            found[key] = replace(cell, published=number.value / 100, source=number.source, provenance=_origin(number))
            quoted = True
    return found, quoted


def reported_rows(
    published: Published, tables: tuple[str, ...], backbone: str, done: set[str], section: str, suffix: str = ""
) -> list[Row]:
    """Rows only the paper has, for methods that are not in `done`; `suffix` tells another backbone's numbers apart."""
    rows = []
    for method in published.methods(tables, backbone):
        if method in done:
            continue
        cells = {}
        for (cell, metric), number in published.row(tables, backbone, method).items():
            ours = next((name for name, theirs in METRICS.items() if theirs == metric), metric)
            cells[f"{cell}.{ours}"] = Cell(number.value / 100, source=number.source, provenance=_origin(number))
        rows.append(Row(method + suffix, "reported", cells, section))
    return rows


def _origin(number: Number) -> str:
    return "; ".join(filter(None, (number.provenance, number.note)))


def sources(rows: Sequence[Row]) -> list[str]:
    """Where the quoted numbers are from, as a note."""
    found = dict.fromkeys(
        f"{cell.source}{f' ({cell.provenance})' if cell.provenance != 'printed' else ''}"
        for row in rows
        for cell in row.cells.values()
        if cell.source
    )
    return [f"Reported numbers: {'; '.join(found)}"] if found else []
