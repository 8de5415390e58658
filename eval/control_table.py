"""The control table of a data file: what trivial answers score under each protocol. Needs no run and no model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eval.audit import apply
from eval.categories import Category
from eval.controls import Item, score_controls
from eval.locomo import SAMPLE, load
from eval.report.model import Column, Row, Table
from eval.scoring.aggregate import CELLS
from eval.scoring.protocol import Protocol
from eval.tables import CONTROL_NOTE, METRIC_TITLES, TITLES, control_cells

ADVERSARIAL = Category.ADVERSARIAL.label


def make(data: Path | None, protocols: Sequence[Protocol], audit: str | None = None) -> list[Table]:
    """One table per protocol and, with an audit file, one more without its wrong golds."""
    dataset = load(data or SAMPLE)
    asked = []
    for question in dataset.questions:
        gold = dataset.golds[question.id]
        asked.append(Item(question.id, question.text, gold.answer, gold.trap, gold.category))
    found = apply(Path(audit).expanduser(), {q.id: q.text for q in dataset.questions}) if audit else None
    subsets = [frozenset[str]()] + ([found.corrupting] if found else [])
    name = f"{dataset.name} ({dataset.sha256[:8]})"
    notes = (found.describe(),) if found else ()
    return [_table(asked, protocol, name, without, notes) for without in subsets for protocol in protocols]


def _table(
    asked: Sequence[Item], protocol: Protocol, data: str, without: frozenset[str], notes: tuple[str, ...]
) -> Table:
    kept = [item for item in asked if item.id not in without]
    columns = [Column(f"{cell}.f1", "F1", TITLES[cell], ranked=False) for cell in CELLS]
    columns += [
        Column(f"{ADVERSARIAL}.{metric}", METRIC_TITLES[metric], "Category 5 answers", ranked=False)
        for metric in ("refused_tolerant", "fooled")
    ]
    cells = control_cells(kept, protocol, [column.key for column in columns])
    rows = tuple(Row(control.replace("_", " "), "control", found) for control, found in cells.items())
    crashes = score_controls(kept, protocol)["refuse"]["average"].n_unscorable if kept else 0
    more = (f"the original scorer crashes on {crashes} questions, which are in no average",) if crashes else ()
    facts = {"protocol": protocol.name, "mode": protocol.mode, "data": data, "questions": str(len(kept))}
    title = f"Control answers: protocol {protocol.name} ({protocol.mode}), data {data}, {len(kept)} questions"
    title += f"; without {len(without)} questions whose gold is wrong" if without else ""
    legend = "Percent. No memory and no model made these answers; the coin is an exact expected value"
    subset = "without_wrong_golds" if without else "all"
    return Table("controls", title, tuple(columns), rows, (legend, CONTROL_NOTE, *more, *notes), subset, facts)
