"""A run's numbers from its records: `summary.json`, `scores.jsonl` and `table.md`. Needs no model; can be redone any time.

Error bars, comparisons and multi-run tables are elsewhere (`eval.stats`, `eval.tables`); this is one run on its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.config import ScoringConfig
from eval.evidence import score_evidence, summarise
from eval.memories import BuildInfo, merged_stats
from eval.records import AnswerRecord, counts, dumps, write_atomic
from eval.scoring import protocol
from eval.scoring.aggregate import Cell, ScoredRow, aggregate, score_answer
from eval.scoring.protocol import Protocol, Scores
from eval.spending import bill_line


def score_record(scorer: Protocol, record: AnswerRecord) -> ScoredRow:
    """The record's scores. A record without an answer is a counted error; the original scorer's crashes are kept apart."""
    failed = record.state == "error" or record.prediction is None
    said = "" if failed else record.prediction
    row = score_answer(scorer, record.id, said, record.answer, record.trap, Category(record.category))
    if not failed:
        return row
    return replace(row, scores=None, error=record.error.kind if record.error else "no answer")


def evidence_by_question(records: Iterable[AnswerRecord]) -> dict[str, Scores]:
    """Question id -> evidence measures. A question that failed showed no evidence and counts as 0, as in every metric.

    The answered questions say whether evidence can be traced at all: where it cannot, or where nothing was answered, a
    failure must not be the one question with a recall.
    """
    held = list(records)
    traceable = any(record.traceable for record in held if record.state == "answered")
    return {record.id: _evidence(record, traceable) for record in held}


def _evidence(record: AnswerRecord, run_is_traceable: bool) -> Scores:
    if record.state == "error":
        nothing = score_evidence(record.gold_evidence if run_is_traceable else [], [])
        return {**nothing, "turns_shown": None}
    gold = record.gold_evidence if record.traceable else []
    return score_evidence(gold, record.shown_turns, record.ranked_turns or None)


def score_run(records: Sequence[AnswerRecord], scorer: Protocol) -> tuple[list[ScoredRow], dict[str, Cell]]:
    """Every record scored, and the table cells over all questions asked."""
    rows = [score_record(scorer, record) for record in records]
    asked = {record.id: Category(record.category) for record in records}
    return rows, aggregate(asked, rows, scorer.zeros)


def summarise_run(
    records: Sequence[AnswerRecord],
    infos: Sequence[BuildInfo],
    header: Mapping[str, Any],
    *,
    run_name: str,
    scorer: Protocol,
    n_asked: int,
) -> dict[str, Any]:
    """The content of summary.json but for what belongs to one process (`wall_s`, `process`), which the runner adds.

    `calls` and `tokens` count what this run's own work took, replies served by the cache included, so that they are the
    same after a resume; the building of a memory another run made is under `memory.build_calls` only.
    """
    _, cells = score_run(records, scorer)
    answered = [record for record in records if record.state == "answered"]
    own = [info.calls for info in infos if info.built_by == run_name]
    calls = counts([*own, *(record.calls for record in records)])
    overall = cells["average"]
    shown = [name for name in SHOWN if name in overall.mean] or ["f1", "bleu1"]
    of_each = evidence_by_question(records)
    evidence, kept = summarise(of_each.values()), summarise(of_each[record.id] for record in answered)
    adversarial = cells["adversarial"].mean
    return {
        **header,
        "protocol": scorer.name,
        "mode": scorer.mode,
        "n_questions": n_asked,
        "n_error": overall.n_error,
        "n_unscored": n_asked - len(records),
        "n_unscorable": overall.n_unscorable,
        "categories": {c.label: _cell(cells[c.label], shown) for c in Category},
        "average": _cell(overall, shown),
        "average4": _cell(cells["average4"], shown),
        "average_without_errors": {
            "n": overall.count_scored.get("f1", 0),
            **{name: overall.mean_scored[name] for name in ("f1", "bleu1") if name in overall.mean_scored},
        },
        "adversarial": {"refusal_rate": adversarial.get("refused_tolerant"), "trap_rate": adversarial.get("fooled")},
        "evidence": {
            "recall": evidence.mean.get("evidence_recall"),
            "hit_rate": evidence.mean.get("evidence_hit"),
            "precision": evidence.mean.get("evidence_precision"),
            "n": evidence.n,
            "n_left_out": evidence.n_left_out,
            "recall_at": {k: v for k, v in evidence.mean.items() if k.startswith("recall@")},
            "turns_shown_mean": evidence.mean.get("turns_shown"),
        },
        "evidence_without_errors": {
            "recall": kept.mean.get("evidence_recall"),
            "hit_rate": kept.mean.get("evidence_hit"),
            "n": kept.n,
        },
        "answer_tokens_mean": _mean([record.evidence_tokens for record in answered]),
        "calls": {role: fields["calls"] for role, fields in calls.items()},
        "tokens": {
            role: {"prompt": fields["prompt_tokens"], "completion": fields["completion_tokens"]}
            for role, fields in calls.items()
        },
        "parse_failures": {role: fields.get("parse_failures", 0) for role, fields in calls.items()},
        "truncated": {role: fields.get("truncated", 0) for role, fields in calls.items()},
        "memory": {
            **merged_stats(list(infos)),
            "reused": sum(info.built_by != run_name for info in infos),
            "build_calls": {role: fields["calls"] for role, fields in counts([i.calls for i in infos]).items()},
        },
        "errors": _error_kinds(records),
        "questions_with": _marks(answered),
    }


def _marks(answered: Sequence[AnswerRecord]) -> dict[str, int]:
    """Questions that were answered, but not as meant: by kind, how many. A blank answer scores 0 like a wrong one; a
    fallback is a reply of the reading side that could not be used, as the systems' traces name it."""
    found = {"blank_answer": sum(not (record.prediction or "").strip() for record in answered)}
    for record in answered:
        for name, value in record.trace.items():
            if value and (name.endswith("fallback") or name == "unanswered"):
                found[name] = found.get(name, 0) + 1
    return {name: count for name, count in sorted(found.items()) if count}


def _cell(cell: Cell, shown: Sequence[str]) -> dict[str, Any]:
    """Counts and means; a category without questions has every mean, as null. `n` is what F1 is a mean over."""
    n = cell.count.get("f1", 0)
    return {"n": n, "n_error": cell.n_error if n else 0, **{name: cell.mean.get(name) for name in shown}}


SHOWN = ("f1", "bleu1", "exact_match")
"""Metrics kept in summary.json; all others are in scores.jsonl and one `memfly score` away."""


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _error_kinds(records: Sequence[AnswerRecord]) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in records:
        if record.error is not None:
            key = f"{record.error.stage}: {record.error.kind}"
            found[key] = found.get(key, 0) + 1
    return dict(sorted(found.items()))


def write_results(
    run: Path,
    header: Mapping[str, Any],
    records: Sequence[AnswerRecord],
    infos: Sequence[BuildInfo],
    process: Mapping[str, Any],
    scoring: ScoringConfig,
    wall_s: float,
) -> dict[str, Any]:
    """scores.jsonl, summary.json and table.md of a run, whatever state it is in; `header` has its `n_questions`."""
    scorer = protocol(scoring.protocol, scoring.mode)
    rows, _ = score_run(records, scorer)
    write_scores(run / "scores.jsonl", rows)
    n_asked = header["n_questions"]
    summary = summarise_run(records, infos, header, run_name=run.name, scorer=scorer, n_asked=n_asked)
    summary["memory"]["build_s"] = round(sum(info.build_s for info in infos), 3)
    summary["wall_s"] = round(wall_s, 3)
    summary["process"] = dict(process)
    write_atomic(run / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False))
    write_atomic(run / "table.md", table(summary) + against_estimate(run, summary))
    return summary


def write_scores(path: Path, rows: Sequence[ScoredRow]) -> None:
    """scores.jsonl: one line per question with all metrics, or the error; `unscorable` where the original scorer crashes."""
    lines = []
    for row in rows:
        line = {"id": row.id, "scores": dict(row.scores) if row.scores is not None else None, "error": row.error}
        lines.append(dumps(line | ({"unscorable": row.unscorable} if row.unscorable else {})))
    write_atomic(path, "".join(line + "\n" for line in lines))


def table(summary: Mapping[str, Any]) -> str:
    """The run's own table in markdown: a row per category, both averages, both category-5 readings, evidence, cost."""
    data, model = summary["data"], summary.get("model")
    backbone = f"{summary['backbone']} ({model})" if model else "extractive (no model)"
    metrics = [m for m in SHOWN if m in summary["average"]]
    lines = [
        f"**{summary['method']}** on {backbone}, data {data['name']} ({data['sha256'][:8]}), protocol "
        f"{summary['protocol']} ({summary['mode']}), prompts {summary['prompt_set']}, seed {summary['seed']}",
        "",
        "| category | n | errors | " + " | ".join(m.upper() for m in metrics) + " |",
        "|---|---:|---:|" + "---:|" * len(metrics),
    ]
    rows = [(f"{c.value} {c.label}", summary["categories"][c.label]) for c in Category]
    rows += [("average (all)", summary["average"]), ("average (1-4)", summary["average4"])]
    for name, cell in rows:
        values = " | ".join(_percent(cell.get(m)) for m in metrics)
        lines.append(f"| {name} | {cell['n']} | {cell['n_error']} | {values} |")
    lines += ["", *_facts(summary)]
    return "\n".join(lines) + "\n"


def _facts(summary: Mapping[str, Any]) -> list[str]:
    adversarial, evidence, memory = summary["adversarial"], summary["evidence"], summary["memory"]
    lines = [
        f"- category 5: refused {_percent(adversarial['refusal_rate'])} (the right thing), fell for the trap "
        f"{_percent(adversarial['trap_rate'])}; under `amem` its F1 rewards the trap",
        f"- evidence: recall {_number(evidence['recall'])}, hit rate {_number(evidence['hit_rate'])}, precision "
        f"{_number(evidence['precision'])} over {evidence['n']} questions with usable evidence"
        + _without_errors(evidence, summary["evidence_without_errors"]),
        f"- shown to the answerer: {_number(summary['answer_tokens_mean'], 0)} tokens (o200k) per question",
        "- calls: " + (", ".join(f"{role} {n}" for role, n in summary["calls"].items()) or "none"),
        "- memory: " + ", ".join(f"{k} {v}" for k, v in memory.items() if isinstance(v, int)),
    ]
    if summary["model"]:
        lines.append(bill_line(summary["process"]["paid"], summary["n_questions"]))
    if summary["questions_with"]:
        lines.append("- questions with: " + ", ".join(f"{name} {n}" for name, n in summary["questions_with"].items()))
    if summary["n_unscorable"]:
        lines.append(
            f"- the original scorer crashes on {summary['n_unscorable']} questions: they have no score and are in no "
            "average, here and in the control answers"
        )
    if summary["n_error"] or summary["n_unscored"]:
        without = summary["average_without_errors"]
        lines.append(
            f"- errors {summary['n_error']} ({', '.join(f'{k} {v}' for k, v in summary['errors'].items())}), unscored "
            f"{summary['n_unscored']}; average F1 with errors as 0 {_percent(summary['average'].get('f1'))}, with errors "
            f"left out {_percent(without.get('f1'))} over {without['n']} questions"
        )
    return lines


def _without_errors(evidence: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    if kept["n"] == evidence["n"]:
        return ""
    return f", errors as 0; recall {_number(kept['recall'])} over {kept['n']} with errors left out"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


ESTIMATE = "estimate.json"
"""Where `memfly estimate` leaves its prediction in the folder of the run to come."""


def against_estimate(folder: Path, summary: Mapping[str, Any]) -> str:
    """A table that sets a kept prediction beside what the run took; empty without one."""
    path = folder / ESTIMATE
    if not path.is_file():
        return ""
    roles = json.loads(path.read_text(encoding="utf-8"))["roles"]
    lines = ["", "| role | calls predicted | real | prompt tokens predicted | real |", "|---|---:|---:|---:|---:|"]
    total = [0.0] * 4
    for role in sorted(roles.keys() | summary["calls"].keys()):
        said = roles.get(role, {"calls": 0, "prompt_tokens": 0})
        real = summary["calls"].get(role, 0), summary["tokens"].get(role, {"prompt": 0})["prompt"]
        row = (said["calls"], real[0], said["prompt_tokens"], real[1])
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"| {role} | " + " | ".join(f"{value:,.0f}" for value in row) + " |")
    lines.append("| **all** | " + " | ".join(f"{value:,.0f}" for value in total) + " |")
    return "\n".join(lines) + "\n"
