"""What a method costs: model calls and tokens per turn and per question, build time, memory size. Measured, not scored.

Build costs are read from the stored memory, whichever run built it, so that a run that reused a memory does not look free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.comparable import check_comparable
from eval.memories import built
from eval.published import ABLATION, AMEM_ABLATION, MAIN
from eval.records import counts
from eval.report.model import Cell, Column, Row, Table
from eval.runs import Group, Run, grouped
from eval.tables import row_labels, section_title
from memfly.errors import DataError

COLUMNS = (
    Column("build_calls", "calls per turn", "Build", scale=1, ranked=False),
    Column("build_prompt", "prompt tokens per turn", "Build", scale=1, digits=0, ranked=False),
    Column("build_completion", "completion tokens per turn", "Build", scale=1, digits=0, ranked=False),
    Column("build_s", "seconds", "Build", scale=1, digits=1, ranked=False),
    Column("question_calls", "calls per question", "Question", scale=1, ranked=False),
    Column("question_prompt", "prompt tokens per question", "Question", scale=1, digits=0, ranked=False),
    Column("question_completion", "completion tokens per question", "Question", scale=1, digits=0, ranked=False),
    Column("shown", "evidence tokens shown", "Question", scale=1, digits=0, ranked=False),
    Column("notes", "notes per turn", "Memory", scale=1, ranked=False),
    Column("n", "n", "", scale=1, digits=0, ranked=False),
    Column("n_error", "errors", "", scale=1, digits=0, ranked=False),
)


def make(runs: Sequence[Run], *, allow_mixed: bool = False) -> list[Table]:
    """The efficiency table, one row per group of runs. Raises DataError without runs, or with runs of different data."""
    if not runs:
        raise DataError("table efficiency: no finished run found; run something first, or name run folders")
    notes = [f"MIXED: {line}" for line in check_comparable(runs, allow_mixed=allow_mixed)]
    groups = sorted(grouped(runs), key=lambda g: (g.backbone, g.method, g.name))
    labels, told = row_labels(groups, {**AMEM_ABLATION, **_ablation_names(), **MAIN})
    rows = tuple(
        Row(labels[group.name], "ran", _mean(group), section_title(group.backbone), group.name) for group in groups
    )
    data = runs[0].summary["data"]
    facts = {"data": f"{data['name']} ({str(data['sha256'])[:8]})", "prompt_set": str(runs[0].summary["prompt_set"])}
    legend = (
        "Calls and tokens are logical: replies served by the cache count. Build columns describe the memory used, built by "
        "this run or an earlier one; seconds are the sum over conversations of the build's wall time, which depends on "
        "cache, load and concurrency. -: the memory is no longer stored, or has no notes"
    )
    title = f"Cost per turn and per question: data {facts['data']}, prompt set {facts['prompt_set']}"
    return [Table("efficiency", title, COLUMNS, rows, (legend, *notes, *told), facts=facts)]


def _ablation_names() -> dict[str, str]:
    return {method: f"MemFly {name}" for method, name in ABLATION.items()}


def _mean(group: Group) -> dict[str, Cell]:
    """Averages over the seeds of a group; a number one of them lacks is missing. Errors are questions, failed under any."""
    each = [costs(run) for run in group.runs]
    found = {}
    for key in each[0]:
        values = [numbers[key] for numbers in each]
        known = [value for value in values if value is not None]
        found[key] = Cell(sum(known) / len(known) if len(known) == len(values) else None)
    failed = {record.id for run in group.runs for record in run.records if record.state == "error"}
    return found | {"n_error": Cell(float(len(failed)))}


def costs(run: Run) -> dict[str, float | None]:
    """The columns' numbers for one run."""
    n = len(run.records)
    turns = int(run.manifest["data"]["n_turns"])
    asked = _total(counts([record.calls for record in run.records]))
    answered = [record.evidence_tokens for record in run.records if record.state == "answered"]
    found: dict[str, float | None] = {
        "question_calls": asked["calls"] / n,
        "question_prompt": asked["prompt_tokens"] / n,
        "question_completion": asked["completion_tokens"] / n,
        "shown": sum(answered) / len(answered) if answered else None,
        "n": float(n),
    }
    builds = built(run.folder / "events.jsonl")
    if len(builds) < len({record.conversation for record in run.records}):
        return found | dict.fromkeys(("build_calls", "build_prompt", "build_completion", "build_s", "notes"))
    made = _total(counts([info.calls for info in builds.values()]))
    stored = [info.stats.get("notes") for info in builds.values()]
    return found | {
        "build_calls": made["calls"] / turns,
        "build_prompt": made["prompt_tokens"] / turns,
        "build_completion": made["completion_tokens"] / turns,
        "build_s": sum(info.build_s for info in builds.values()),
        "notes": sum(s for s in stored if s is not None) / turns if None not in stored else None,
    }


def _total(by_role: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: sum(int(fields.get(name, 0)) for fields in by_role.values())
        for name in ("calls", "prompt_tokens", "completion_tokens")
    }
