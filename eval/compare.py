"""Runs against a reference run, question by question: which differences are real.

The statistics are `eval.stats`'s; this module pairs the questions, forms the families of tests that Holm's correction
holds over, and lays the results out. Differences are run minus reference.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.comparable import check_comparable
from eval.judge import mean_verdicts
from eval.runs import Group, Scored, score_group
from eval.scoring.adversarial import READINGS
from eval.scoring.aggregate import AVERAGE, AVERAGE4
from eval.scoring.protocol import Protocol, Scores
from eval.stats import BETTER, WORSE, Comparison, VarianceComponents, compare, variance_components, with_verdicts
from memfly.errors import DataError

LOWER_IS_BETTER = ("fooled", "turns_shown", "answer_length")
MORE_TRAPPED, LESS_TRAPPED = "more like the trap", "less like the trap"
JUDGE = "judge"
PLAIN = ("answer_length", "turns_shown")
"""Metrics that are no share."""
OVERALL, OVERALL4, PER_CATEGORY = "overall", "overall without category 5", "per category"
"""The families: one question each, so that asking about categories does not cost the overall answer its power."""


@dataclass(frozen=True)
class Tested:
    """One run against the reference in one cell; `family` is what `comparison.p_holm` is corrected over."""

    run: str
    family: str
    comparison: Comparison


@dataclass(frozen=True)
class Report:
    """All comparisons with one reference. `variance` and `errors` (failed questions) have an entry per group, the reference's
    included, and leave out the same questions as the tests."""

    reference: str
    metric: str
    protocol: str
    mode: str
    alpha: float
    tests: tuple[Tested, ...]
    variance: Mapping[str, VarianceComponents]
    errors: Mapping[str, int]
    notes: tuple[str, ...]


def cells(category: Mapping[str, Category]) -> dict[str, Callable[[str], bool]]:
    """Cell name -> whether a question id belongs to it: the five categories and both averages."""
    found: dict[str, Callable[[str], bool]] = {}
    for one in Category:
        found[one.label] = lambda id, one=one: category[id] is one  # type: ignore[misc]
    found[AVERAGE] = lambda id: True
    found[AVERAGE4] = lambda id: category[id] is not Category.ADVERSARIAL
    return found


def compare_groups(
    groups: Sequence[Group],
    scorer: Protocol,
    *,
    metric: str = "f1",
    chosen: Sequence[str] = (),
    without: frozenset[str] = frozenset(),
    alpha: float = 0.05,
    allow_mixed: bool = False,
) -> Report:
    """Every group against the first. `chosen` limits the categories tested; `without` are question ids to leave out.

    A question that one of two runs has no value for is left out and counted in the notes. Raises DataError for runs that
    are not comparable, for fewer than two groups, and for a metric that these runs do not have.
    """
    if len(groups) < 2:
        raise DataError(
            "compare: needs two runs or more that differ in more than the seed; runs that differ in the seed alone are "
            "averaged into one"
        )
    runs = [run for group in groups for run in group.runs]
    notes = [f"MIXED: {line}" for line in check_comparable(runs, allow_mixed=allow_mixed)]
    scored = [score_group(group, scorer) for group in groups]
    if metric == JUDGE:
        scored = judged(scored)
    notes += [*trap_note(scorer, metric), *unscorable_note(scored[0], metric, scorer, without)]
    reference, others = scored[0], scored[1:]
    tests: dict[str, list[tuple[str, Comparison]]] = {OVERALL: [], OVERALL4: [], PER_CATEGORY: []}
    for other in others:
        for comparison in _pair(other, reference, metric, chosen, without, notes):
            family = {AVERAGE: OVERALL, AVERAGE4: OVERALL4}.get(comparison.cell, PER_CATEGORY)
            tests[family].append((other.group.name, comparison))
    return Report(
        reference=reference.group.name,
        metric=metric,
        protocol=scorer.name,
        mode=scorer.mode,
        alpha=alpha,
        tests=tuple(_corrected(tests, alpha, metric, scorer)),
        variance={s.group.name: _variance(s, metric, without) for s in scored},
        errors={s.group.name: len(s.failed(without)) for s in scored},
        notes=tuple(notes),
    )


def trap_note(scorer: Protocol, metric: str) -> list[str]:
    """What a protocol that compares category 5 with its trap means for verdicts on this metric; nothing for others."""
    if metric not in scorer.trap_metrics:
        return []
    return [
        f"Under {scorer.name} the reference of category 5 is the trap: more {metric} there means more fooled, so there is no "
        f'better or worse; "{OVERALL}" contains that category, "{OVERALL4}" does not. --metric fooled, --metric refused and '
        "--protocol locomo say which answers were right"
    ]


def unscorable_note(scored: Scored, metric: str, scorer: Protocol, without: frozenset[str] = frozenset()) -> list[str]:
    """How many questions the original scorer crashes on, where they are left out of this metric."""
    count = len(scored.unscorable - without)
    if not count or metric in READINGS or metric not in scorer.zeros(Category.TEMPORAL):
        return []
    return [
        f"the original scorer crashes on {count} questions ({scorer.name}, {scorer.mode}): they have no score, and are in no "
        "average, of runs and of control answers alike"
    ]


def no_such_metric(scored: Scored, metric: str, what: str, ids: Sequence[str] | None = None) -> DataError:
    """The error for a metric that no question, or none of `ids`, has; it names those there are."""
    return DataError(f"{what}: these runs have no metric {metric!r}; they have {', '.join(scored.metrics(ids))}")


def _variance(scored: Scored, metric: str, without: frozenset[str]) -> VarianceComponents:
    kept = [id for id in scored.category if id not in without]
    return variance_components(scored.per_seed(metric, kept), scored.conversation)


def judged(scored: Sequence[Scored]) -> list[Scored]:
    """The groups with the metric `judge`: the mean verdict on each question; none where the judge gave none, 0 for errors.

    Raises DataError unless all runs were judged by one and the same judge.
    """
    runs = [run for one in scored for run in one.group.runs]
    verdicts = {run.folder: mean_verdicts(run.folder) for run in runs}
    judges = {judge for found in verdicts.values() for judge in found}
    lacking = next((run for run in runs if not verdicts[run.folder]), None)
    if lacking is not None:
        raise DataError(f"compare: {lacking.name} was not judged: memfly score {lacking.folder} --judge llm=NAME")
    if len(judges) > 1:
        raise DataError(f"compare: these runs were judged by {', '.join(sorted(judges))}; use one judge for all")
    (judge,) = judges
    return [replace(one, rows=tuple(_judged_rows(one, verdicts, judge))) for one in scored]


def _judged_rows(
    scored: Scored, verdicts: Mapping[Path, Mapping[str, Mapping[str, float]]], judge: str
) -> Iterator[dict[str, Scores]]:
    for run, known, failed in zip(scored.group.runs, scored.rows, scored.errors, strict=True):
        said: dict[str, float | None] = dict(verdicts[run.folder][judge])
        said |= {id: 0.0 for id in failed if scored.category[id] is not Category.ADVERSARIAL}
        yield {id: {**row, JUDGE: said.get(id)} for id, row in known.items()}


def _pair(
    run: Scored, reference: Scored, metric: str, chosen: Sequence[str], without: frozenset[str], notes: list[str]
) -> list[Comparison]:
    a, b = ({id: v for id, v in s.values(metric).items() if id not in without} for s in (run, reference))
    for values, of in ((b, reference), (a, run)):
        if not values:
            raise no_such_metric(of, metric, "compare")
    both = a.keys() & b.keys()
    if not both:
        raise DataError(f"compare: {run.group.name} and {reference.group.name} have no question in common")
    if len(both) < max(len(a), len(b)):
        notes.append(
            f"{run.group.name}: {len(a.keys() ^ b.keys())} questions that one run alone has a value for are left out"
        )
    a, b = ({id: values[id] for id in both} for values in (a, b))
    wanted = cells(reference.category)
    present = {label for label, belongs in wanted.items() if any(map(belongs, a))}
    several = len(present - {AVERAGE, AVERAGE4}) > 1
    has_five = Category.ADVERSARIAL.label in present
    kept = {
        label: belongs
        for label, belongs in wanted.items()
        if (label == AVERAGE or (label == AVERAGE4 and has_five and several))
        or (label not in (AVERAGE, AVERAGE4) and several and (not chosen or label in chosen))
    }
    return compare(a, b, reference.conversation, kept)


def _corrected(
    tests: Mapping[str, Sequence[tuple[str, Comparison]]], alpha: float, metric: str, scorer: Protocol
) -> list[Tested]:
    result = []
    for family, members in tests.items():
        better = metric not in LOWER_IS_BETTER
        verdicts = with_verdicts([c for _, c in members], alpha=alpha, higher_is_better=better) if members else []
        for (run, _), comparison in zip(members, verdicts, strict=True):
            if not has_best(scorer, comparison.cell, metric):
                said = {BETTER: MORE_TRAPPED, WORSE: LESS_TRAPPED}.get(str(comparison.verdict), comparison.verdict)
                comparison = replace(comparison, verdict=said)
            result.append(Tested(run, family, comparison))
    return result


def has_best(scorer: Protocol, cell: str, metric: str) -> bool:
    """Whether one of two values of the metric is the better one: not where the answer is compared with the trap."""
    return cell != Category.ADVERSARIAL.label or metric not in scorer.trap_metrics


def rows(report: Report) -> list[dict[str, Any]]:
    """One flat row per test, in the metric's own unit (shares, not percent)."""
    found = []
    for test in report.tests:
        c = test.comparison
        found.append(
            {
                "run": test.run,
                "reference": report.reference,
                "metric": report.metric,
                "protocol": report.protocol,
                "mode": report.mode,
                "family": test.family,
                "cell": c.cell,
                "n": c.difference.n,
                "conversations": c.difference.clusters,
                "run_mean": c.a,
                "reference_mean": c.b,
                "difference": c.difference.mean,
                "se": c.difference.se,
                "low": c.difference.low,
                "high": c.difference.high,
                "df": c.difference.df,
                "p_sign_flip": c.test.p,
                "p_exact": c.test.exact,
                "p_mcnemar": c.p_mcnemar,
                "p_holm": c.p_holm,
                "verdict": c.verdict,
                "detectable": c.detectable,
                "note": c.note,
            }
        )
    return found


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "reference": report.reference,
        "metric": report.metric,
        "protocol": report.protocol,
        "mode": report.mode,
        "alpha": report.alpha,
        "comparisons": rows(report),
        "variance": {name: asdict(parts) for name, parts in report.variance.items()},
        "n_error": dict(report.errors),
        "notes": list(report.notes),
    }


def to_csv(report: Report) -> str:
    """The rows as CSV, missing values empty."""
    table = rows(report)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def to_markdown(report: Report) -> str:
    """What a reader needs, per family: difference with interval, p values, verdict, and what could have been detected."""
    unit = "its own unit" if report.metric in PLAIN else "percentage points"
    lines = [
        f"**{report.metric}** ({report.protocol}, {report.mode}) against {report.reference}; differences are run minus "
        f"reference, in {unit}; p from exact sign flips of whole conversations, Holm over each family, "
        f"alpha {report.alpha:g}",
    ]
    for family in (OVERALL, OVERALL4, PER_CATEGORY):
        tests = [t for t in report.tests if t.family == family]
        if tests:
            lines += ["", f"Family: {family} ({len(tests)} test{'s' if len(tests) > 1 else ''})", ""]
            lines += _family(tests, report)
    lines += ["", *_closing(report)]
    return "\n".join(lines) + "\n"


def _family(tests: Sequence[Tested], report: Report) -> list[str]:
    binary = any(t.comparison.p_mcnemar is not None for t in tests)
    head = ["run", "cell", "n", "run mean", "reference", "difference", "95 % interval", "p"]
    head += ["p McNemar"] if binary else []
    head += ["p Holm", "verdict", "detectable"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    scale = 1.0 if report.metric in PLAIN else 100.0
    for test in tests:
        c, d = test.comparison, test.comparison.difference
        interval = "-" if d.low is None or d.high is None else f"{scale * d.low:+.2f} to {scale * d.high:+.2f}"
        texts = [test.run, c.cell, str(d.n), f"{scale * c.a:.2f}", f"{scale * c.b:.2f}", f"{scale * d.mean:+.2f}"]
        texts += [interval, _p(c.test.p)] + ([_p(c.p_mcnemar)] if binary else [])
        texts += [_p(c.p_holm), c.verdict or "-", "-" if c.detectable is None else f"{scale * c.detectable:.2f}"]
        lines.append("| " + " | ".join(texts) + " |")
    lines += [f"- {note}" for note in dict.fromkeys(t.comparison.note for t in tests if t.comparison.note)]
    return lines


def _closing(report: Report) -> list[str]:
    lines = ["Standard deviations (metric x 100) between seeds, questions and conversations:"]
    for name, parts in report.variance.items():
        seeds = "one seed, part of questions" if parts.seed is None else f"{_sd(parts.seed)} ({parts.seeds} seeds)"
        line = f"- {name}: seeds {seeds}, questions {_sd(parts.question)}, conversations {_sd(parts.conversation)}"
        if parts.seed_sd is not None:
            line += f"; the runs' means differ by {100 * parts.seed_sd:.2f}"
        lines.append(line)
    lines.append('"detectable" is the true difference that 80 of 100 such experiments would find.')
    failed = {name: n for name, n in report.errors.items() if n}
    if failed:
        lines.append("Questions that failed, counted as 0: " + ", ".join(f"{name} {n}" for name, n in failed.items()))
    return [*lines, *report.notes]


def _sd(variance: float | None) -> str:
    return "-" if variance is None else f"{100 * math.sqrt(variance):.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
