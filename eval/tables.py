"""Runs as the papers' tables: main, ablation, A-MEM's ablation; with error bars, marks, published numbers and controls.

Every number of a row that ran here is scored anew from the run's answers. Published numbers stand under it or in rows of
their own, always marked (`eval.quotes`). Grids over thresholds are `eval.sweeps`, costs are `eval.costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eval import quotes
from eval.audit import Audit, ceiling
from eval.categories import Category
from eval.cells import marked, parts, ranked, score_cell, tokens_cell
from eval.comparable import check_comparable
from eval.compare import unscorable_note
from eval.config import nearest
from eval.controls import CONTROLS, Item, score_controls
from eval.published import ABLATION, AMEM_ABLATION, BACKBONES, MAIN, Published
from eval.report.model import LEGEND, MARKS, Cell, Column, Row, Table
from eval.runs import Group, Run, Scored, differences, grouped, items, score_group
from eval.scoring.aggregate import AVERAGE, AVERAGE4
from eval.scoring.protocol import Protocol
from memfly.errors import DataError

TITLES = {**{category.label: category.label.replace("_", " ").title() for category in Category}}
TITLES |= {AVERAGE: "Average", AVERAGE4: "Average 1-4"}
METRIC_TITLES = {
    "f1": "F1",
    "bleu1": "BLEU-1",
    "evidence_recall": "Recall",
    "evidence_hit": "Hit rate",
    "refused_tolerant": "refused",
    "fooled": "fooled",
}
CONTROL_SECTION = "controls: no memory, no model"
CONTROL_NOTE = "Controls: " + "; ".join(f"{name.replace('_', ' ')}: {told}" for name, told in CONTROLS.items())
COUNTS = (
    Column("n", "n", scale=1, digits=0, ranked=False),
    Column("n_error", "errors", scale=1, digits=0, ranked=False),
    Column("tokens", "tokens per answer", scale=1, digits=0, ranked=False),
)


@dataclass(frozen=True)
class Layout:
    """A paper's table: which methods, called what, in which columns, and where its numbers were printed."""

    name: str
    title: str
    labels: Mapping[str, str]
    """`method=` preset -> row label, in the table's order; also its name in the published file."""
    published: tuple[str, ...]
    columns: Callable[[Protocol], list[Column]]
    others: bool
    """Whether other methods' runs get rows, too (under their own names); ablations never do."""
    against: str | None = None
    """The paper's only backbone: quoted, with a mark, beside runs of any."""


@dataclass(frozen=True)
class Choices:
    """How a table is made, besides its runs. `reported`: rows that only papers have, for the backbones that ran here
    (`matching`), for all, or none. `against` quotes another backbone's published numbers."""

    published: Published
    reported: str = "matching"
    against: str | None = None
    audit: Audit | None = None
    allow_mixed: bool = False
    controls: bool = True
    alpha: float = 0.05


def _column(cell: str, metric: str, *, ranked: bool = True) -> Column:
    return Column(f"{cell}.{metric}", METRIC_TITLES.get(metric, metric), TITLES[cell], ranked=ranked)


def main_columns(protocol: Protocol) -> list[Column]:
    """F1 (and BLEU-1) per category and on average, and what category 5 hides: refusals and trapped answers."""
    metrics = ["f1"] + (["bleu1"] if "bleu1" in protocol.zeros(Category.TEMPORAL) else [])
    scored = [c for c in Category if protocol.zeros(c).get("f1") is not None]
    averages = [AVERAGE, AVERAGE4] if Category.ADVERSARIAL in scored else [AVERAGE4]
    names = [*(c.label for c in scored), *averages]
    columns = [_column(name, metric, ranked=ranked(protocol, name, metric)) for name in names for metric in metrics]
    readings = [_column(Category.ADVERSARIAL.label, m, ranked=False) for m in ("refused_tolerant", "fooled")]
    return [*columns, *(replace(column, group="Category 5 answers") for column in readings), *COUNTS]


def ablation_columns(protocol: Protocol) -> list[Column]:
    """The paper's Table 3 (averages, recall, hit rate) and Figure 2 (F1 per category) in one."""
    main = main_columns(protocol)
    averages = [c for c in main if c.group == TITLES[AVERAGE]] or [c for c in main if c.group == TITLES[AVERAGE4]]
    evidence = [replace(_column(AVERAGE, m), group="Evidence") for m in ("evidence_recall", "evidence_hit")]
    per_category = [c for c in main if c.key.endswith(".f1") and c.key.split(".")[0] not in (AVERAGE, AVERAGE4)]
    return [*averages, *evidence, *per_category, *(c for c in main if c.group == "Category 5 answers"), *COUNTS]


LAYOUTS: Mapping[str, Layout] = {
    "main": Layout("main", "Memory systems on LoCoMo", MAIN, ("memfly_main", "amem_main"), main_columns, others=True),
    "ablation": Layout(
        "ablation",
        "MemFly's ablations",
        ABLATION,
        ("memfly_ablation",),
        ablation_columns,
        others=False,
        against="Qwen3-8B",
    ),
    "amem_ablation": Layout(
        "amem_ablation",
        "A-MEM's ablations",
        AMEM_ABLATION,
        ("amem_ablation",),
        main_columns,
        others=False,
        against="GPT-4o-mini",
    ),
}


def fitting(runs: Sequence[Run], layout: Layout) -> list[Run]:
    """The runs that have a row in the layout."""
    ablations = (ABLATION.keys() | AMEM_ABLATION.keys()) - MAIN.keys()
    return [r for r in runs if r.method in layout.labels or (layout.others and r.method not in ablations)]


def make(layout: Layout, runs: Sequence[Run], protocol: Protocol, choices: Choices) -> list[Table]:
    """The table over all questions and, with an audit, the one without the questions whose gold is known to be wrong.

    Raises DataError without fitting runs, or when they are not comparable.
    """
    if not runs:
        raise DataError(
            f"table {layout.name}: no finished run fits; it has rows for {', '.join(layout.labels)}: run some, or name "
            "run folders"
        )
    known = choices.published.backbones(layout.published)
    if choices.against is not None and choices.against not in known:
        raise DataError(
            f"--against {choices.against}: no numbers are published for it{nearest(choices.against, known)}"
        )
    notes = [f"MIXED: {line}" for line in check_comparable(runs, allow_mixed=choices.allow_mixed)]
    scored = [score_group(group, protocol) for group in grouped(runs)]
    tables = [_build(layout, scored, protocol, choices, frozenset(), notes)]
    if choices.audit is not None:
        tables.append(_build(layout, scored, protocol, choices, choices.audit.corrupting, notes))
    return tables


def _build(
    layout: Layout,
    scored: Sequence[Scored],
    protocol: Protocol,
    choices: Choices,
    without: frozenset[str],
    notes: Sequence[str],
) -> Table:
    columns = layout.columns(protocol)
    ordered = sorted(scored, key=lambda s: _order(s.group, layout))
    quotable = {s.group.name for s in ordered if not quotes.why_not(s.group.first, protocol)}
    published = choices.published if quotable else Published()
    labels, told = row_labels([s.group for s in ordered], layout.labels)
    rows: list[Row] = []
    more = list(notes)
    for section in dict.fromkeys(s.group.backbone for s in ordered):
        members = [s for s in ordered if s.group.backbone == section]
        cells, few = marked([_cells(s, columns, without) for s in members], members, columns, without, choices.alpha)
        more += few
        backbone = choices.against or BACKBONES.get(section) or layout.against
        elsewhere = f" ({backbone})" if backbone != BACKBONES.get(section) else ""
        title = section_title(section)
        done = {layout.labels[m.group.method] for m in members if m.group.method in layout.labels}
        for member, found in zip(members, cells, strict=True):
            name, quoted = member.group.name, False
            if name in quotable:
                paper = layout.labels.get(member.group.method, "")
                found, quoted = quotes.quote(found, published.row(layout.published, backbone or "", paper))
            rows.append(Row(labels[name], "ran", found, title, name, f"reported{elsewhere}" if quoted else ""))
        beside = any(m.group.name in quotable for m in members)
        if beside and choices.reported != "none" and backbone in (BACKBONES.get(section), choices.against):
            rows += quotes.reported_rows(published, layout.published, str(backbone), done, title, elsewhere)
    if choices.reported == "all":
        shown = {BACKBONES.get(s.group.backbone) for s in ordered}
        for backbone in published.backbones(layout.published):
            if backbone not in shown:
                title = f"{backbone} (no run here)"
                rows += quotes.reported_rows(published, layout.published, backbone, set(), title)
    first = ordered[0].group.first
    if choices.controls:
        rows += control_rows(first, protocol, columns, without, None if without else choices.audit)
    more += unscorable_note(ordered[0], "f1", protocol, without)
    if choices.published.rows:
        more += quotes.note([s.group.first for s in ordered], protocol)
    facts = describe(first, protocol, len(first.records) - len(without & {r.id for r in first.records}))
    return Table(
        name=layout.name,
        title=_title(layout.title, facts, without),
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            *_legend(rows, protocol),
            *more,
            *told,
            *_audit_notes(choices.audit, without, rows),
            *quotes.sources(rows),
        ),
        subset="without_wrong_golds" if without else "all",
        facts=facts,
    )


def _order(group: Group, layout: Layout) -> tuple[str, int, str]:
    place = list(layout.labels).index(group.method) if group.method in layout.labels else len(layout.labels)
    return (group.backbone, place, group.method)


def section_title(backbone: str) -> str:
    """The papers' name of a backbone; the extractive one says that it is no model."""
    return "extractive (no language model)" if backbone == "extractive" else BACKBONES.get(backbone, backbone)


def row_labels(groups: Sequence[Group], names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Group name -> row label; runs that fit one row get their hash, and a note says in which settings they differ."""
    labels, notes = {}, []
    for group in groups:
        alike = [g for g in groups if (g.method, g.backbone) == (group.method, group.backbone)]
        label = names.get(group.method, group.method)
        if len(alike) > 1:
            label += f" [{group.suffix}]"
            settings = differences(alike)[group.name]
            notes.append(f"{label}: " + (", ".join(f"{k}={v}" for k, v in settings.items()) or "another code version"))
        budget = group.first.summary.get("token_budget")
        label += f", {budget} tokens" if budget else ""
        labels[group.name] = label + (f" ({len(group.runs)} seeds)" if len(group.runs) > 1 else "")
    return labels, notes


def count_cells(scored: Scored, without: frozenset[str]) -> dict[str, Cell]:
    """The cells of `COUNTS`: questions, those of them that failed (under any seed), tokens shown."""
    n = sum(id not in without for id in scored.category)
    failed = len(scored.failed(without))
    return {"n": Cell(float(n)), "n_error": Cell(float(failed)), "tokens": tokens_cell(scored, without)}


def _cells(scored: Scored, columns: Sequence[Column], without: frozenset[str]) -> dict[str, Cell]:
    found = count_cells(scored, without)
    for column in columns:
        if "." in column.key:
            found[column.key] = score_cell(scored, *parts(column.key), without)
    return found


def control_rows(
    run: Run, protocol: Protocol, columns: Sequence[Column], without: frozenset[str], audit: Audit | None
) -> list[Row]:
    """What trivial answers score on the same questions; with an audit, also what answering all rightly would."""
    asked = [item for item in items(run) if item.id not in without]
    keys = [column.key for column in columns if "." in column.key]
    cells = control_cells(asked, protocol, keys)
    rows = [Row(name.replace("_", " "), "control", found, CONTROL_SECTION) for name, found in cells.items()]
    if audit is not None:
        reach = ceiling(run, audit, protocol)
        found = {}
        for key in keys:
            cell, metric = parts(key)
            found[key] = Cell(reach[cell].mean.get(metric), n=reach[cell].count.get(metric))
        rows.append(Row("ceiling", "control", found, CONTROL_SECTION))
    return rows


def control_cells(asked: Sequence[Item], protocol: Protocol, keys: Sequence[str]) -> dict[str, dict[str, Cell]]:
    """Control -> cells by column key. A control that answers only part of a cell's questions has no number there: the
    trap's average over category 5 alone is no average."""
    table = score_controls(asked, protocol)
    whole = {cell: scores.n for cell, scores in table["empty"].items()}
    found: dict[str, dict[str, Cell]] = {}
    for control, cells in table.items():
        found[control] = {}
        for key in keys:
            cell, metric = parts(key)
            scores = cells.get(cell)
            if scores is not None and scores.n == whole[cell] and scores.mean.get(metric) is not None:
                found[control][key] = Cell(scores.mean[metric], n=scores.count[metric])
    return found


def describe(run: Run, protocol: Protocol, n: int) -> dict[str, str]:
    """What a caption has to say: protocol, mode, prompt set, data, questions."""
    data = run.summary["data"]
    conversations = len({record.conversation for record in run.records})
    return {
        "protocol": protocol.name,
        "mode": protocol.mode,
        "prompt_set": str(run.summary["prompt_set"]),
        "data": f"{data['name']} ({str(data['sha256'])[:8]}, captions {data['captions']})",
        "questions": f"{n} in {conversations} conversation{'s' if conversations > 1 else ''}",
    }


def _title(title: str, facts: Mapping[str, str], without: frozenset[str]) -> str:
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name != "mode")
    told = told.replace(f"protocol {facts['protocol']}", f"protocol {facts['protocol']} ({facts['mode']})", 1)
    return f"{title}: {told}" + (f"; without {len(without)} questions whose gold is wrong" if without else "")


def _legend(rows: Sequence[Row], protocol: Protocol) -> list[str]:
    notes = ["Percent, ± standard error clustered by conversation; errors count as 0. " + MARKS.strip()]
    quoted = any(r.kind == "reported" or any(c.published is not None for c in r.cells.values()) for r in rows)
    if quoted:
        notes.append(LEGEND.strip() + " Gap: measured here minus reported.")
    if protocol.name == "amem":
        notes.append(
            "Category 5 is compared with the trap under amem: F1 near 100 means fooled, near 50 a coin, so no row is best "
            "there; the last columns say how often the answer refused, which is right, or was fooled."
        )
    if any(r.kind == "control" for r in rows):
        notes.append(CONTROL_NOTE)
    return notes


def _audit_notes(audit: Audit | None, without: frozenset[str], rows: Sequence[Row]) -> list[str]:
    if audit is None:
        return []
    if not without:
        ceiling = "; ceiling: the audit's corrected answers (else gold, in category 5 the refusal) against the golds as they are"
        return [audit.describe() + "; see the table without them" + (ceiling if rows[-1].label == "ceiling" else "")]
    quoted = any(cell.published is not None for row in rows for cell in row.cells.values())
    return [
        audit.describe() + ", and are left out here" + ("; reported numbers are over all questions" if quoted else "")
    ]
