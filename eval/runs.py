"""Finished runs as tables and comparisons read them: found, grouped by all but the seed, scored.

Reads what `memfly run` wrote (summary, manifest, answers) and scores the answers anew, so that a number never depends on
which protocol a run happened to be scored by. Does not run, aggregate or print anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.controls import Item
from eval.records import AnswerRecord, read_answers
from eval.scoring.aggregate import counted_scores
from eval.scoring.protocol import Protocol, Scores
from eval.stats import average_seeds
from eval.summary import evidence_by_question, score_record
from memfly.errors import ConfigError, DataError
from memfly.llm.base import stable_hash

ADVERSARIAL_ONLY = ("refused", "refused_tolerant")
"""Read in category 5 alone: elsewhere a refusal is a miss, which F1 already says."""


_TEXTS = ("method", "backbone", "prompt_set", "protocol", "mode", "status")
_NUMBERS = ("seed", "n_questions", "n_unscored", "n_error")
_NEEDED: Mapping[str, Mapping[str, type]] = {
    "summary.json": {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_NUMBERS, int), "data": dict},
    "manifest.json": dict.fromkeys(("identity", "config", "data"), dict),
}
"""What a run's files must hold, and as what."""


@dataclass(frozen=True)
class Run:
    """One run folder. `summary` and `manifest` are the files of that name."""

    folder: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def suffix(self) -> str:
        """The hash at the end of the folder's name, which tells runs of one method apart."""
        return self.name.rpartition("-")[2]

    @property
    def method(self) -> str:
        return str(self.summary["method"])

    @property
    def backbone(self) -> str:
        return str(self.summary["backbone"])

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @cached_property
    def records(self) -> tuple[AnswerRecord, ...]:
        """The answers. Raises DataError when the file is damaged: as many as the summary says, each question once."""
        found = tuple(read_answers(self.folder))
        expected = int(self.summary["n_questions"]) - int(self.summary["n_unscored"])
        if not len(found) == len({record.id for record in found}) == expected:
            raise DataError(
                f"{self.folder / 'answers.jsonl'}: {len(found)} records of {len({r.id for r in found})} questions, but the "
                f"summary counts {expected}; run it again to write it anew from its event log"
            )
        return found

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's configuration with dotted keys: `method.tau_m`, `data.name`, `method_name` ..."""
        return flatten(self.manifest["config"])

    @cached_property
    def group_key(self) -> str:
        """Equal for runs whose settings differ in the seed alone, whatever their presets are called."""
        return stable_hash({k: v for k, v in self.manifest["identity"].items() if k != "seed"})


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys; lists stay values."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flatten(item, f"{prefix}.{key}" if prefix else str(key))
    return found


def load_run(folder: Path | str, *, finished: bool = True) -> Run:
    """Read a run folder. Raises DataError in one line when it is none, or (with `finished`) was not run to its end."""
    folder = Path(folder)
    files: dict[str, Any] = {}
    for name in ("summary.json", "manifest.json"):
        try:
            files[name] = json.loads((folder / name).read_text(encoding="utf-8"))
        except OSError:
            raise DataError(f"{folder}: no {name}; name the folder of a run, as printed by `memfly run`") from None
        except ValueError as error:
            raise DataError(f"{folder / name}: not JSON ({error}); run it again to write it anew") from None
    for name, keys in _NEEDED.items():
        if not isinstance(files[name], dict) or not all(isinstance(files[name].get(k), t) for k, t in keys.items()):
            raise DataError(f"{folder / name}: not written by `memfly run`, or by another version of it; run it again")
    run = Run(folder, files["summary.json"], files["manifest.json"])
    if finished and (run.summary.get("status") != "finished" or run.summary.get("n_unscored")):
        raise DataError(
            f"{folder}: this run is not finished ({run.summary.get('n_unscored')} of {run.summary.get('n_questions')} "
            "questions unanswered); run the same command again to continue it"
        )
    return run


def discover(root: Path, pattern: str = "*") -> list[Run]:
    """All finished runs right under `root` whose folder name matches `pattern`, in the order of their names."""
    found = []
    if "/" in pattern:
        raise ConfigError(
            f"--runs {pattern}: matches names of run folders under {root}; give paths as RUN or with --root"
        )
    for path in sorted(root.glob(pattern)):
        if (path / "summary.json").is_file() and (path / "manifest.json").is_file():
            run = load_run(path, finished=False)
            if run.summary.get("status") == "finished" and not run.summary.get("n_unscored"):
                found.append(run)
    return found


def where(runs: Iterable[Run], conditions: Sequence[str]) -> list[Run]:
    """The runs whose configuration has `key=value` for every condition. Raises DataError for one that is no such thing."""
    pairs = []
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals:
            raise DataError(f"--where {condition}: give key=value, such as method.tau_m=0.7 or data.name=locomo10")
        pairs.append((key, value))
    return [run for run in runs if all(setting_text(run.config.get(key, "")) == value for key, value in pairs)]


def setting_text(value: Any) -> str:
    """A setting as one writes it on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(setting_text, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone, in the order of their seeds: one row of a table."""

    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def method(self) -> str:
        return self.first.method

    @property
    def backbone(self) -> str:
        return self.first.backbone

    @property
    def suffix(self) -> str:
        return "+".join(run.suffix for run in self.runs)

    @property
    def name(self) -> str:
        """`method-backbone-hash`, or the hashes of all seeds."""
        return f"{self.method}-{self.backbone}-{self.suffix}"


def grouped(runs: Iterable[Run]) -> list[Group]:
    """Groups in the order in which their first run comes. A run named twice counts once.

    Presets of different names stay apart even with equal settings: each is a row of its own, not another seed. Raises
    DataError for two folders that hold the same run, which would count as two seeds.
    """
    found: dict[tuple[str, str, str], dict[int, Run]] = {}
    for run in runs:
        seeds = found.setdefault((run.method, run.backbone, run.group_key), {})
        other = seeds.setdefault(run.seed, run)
        if other.folder.resolve() != run.folder.resolve():
            raise DataError(
                f"{other.folder} and {run.folder} are the same run twice (equal settings, seed {run.seed}); name one of "
                "them, or move one away"
            )
    return [Group(tuple(seeds[seed] for seed in sorted(seeds))) for seeds in found.values()]


def differences(groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """For groups meant as one row: group name -> the settings in which they differ (seed, paths and names left out)."""
    ignored = ("seed", "run_root", "concurrency", "logger.", "cache.", "scoring.", "data.path", "data.audit")
    configs = {group.name: group.first.config for group in groups}
    keys = sorted({key for config in configs.values() for key in config if not key.startswith(ignored)})
    differing = [key for key in keys if len({setting_text(config.get(key)) for config in configs.values()}) > 1]
    return {name: {key: setting_text(config.get(key)) for key in differing} for name, config in configs.items()}


@dataclass(frozen=True)
class Scored:
    """A group under one protocol: per run, question id -> metric -> value (errors as zero); and what was an error."""

    group: Group
    rows: tuple[Mapping[str, Scores], ...]
    errors: tuple[frozenset[str], ...]
    unscorable: frozenset[str]
    """Questions on which the original scorer crashes (`as_is`): without a value, whatever was answered."""
    category: Mapping[str, Category]
    conversation: Mapping[str, str]
    tokens: Mapping[str, float]
    """Question id -> o200k tokens of evidence shown, averaged over the seeds that answered it; failed ones are absent."""

    def failed(self, without: frozenset[str] = frozenset()) -> frozenset[str]:
        """Questions that failed under some seed, but for those in `without`: counted in questions, as n is."""
        return frozenset[str]().union(*self.errors) - without

    def values(self, metric: str, ids: Iterable[str] | None = None, *, errors: bool = True) -> dict[str, float]:
        """Question id -> value averaged over seeds, where the metric applies under every seed. Without `errors`, a question
        that failed under some seed is left out."""
        failed = frozenset[str]() if errors else self.failed()
        chosen = [id for id in (self.category if ids is None else ids) if id not in failed]
        if metric in ADVERSARIAL_ONLY:
            chosen = [id for id in chosen if self.category[id] is Category.ADVERSARIAL]
        known = [id for id in chosen if all(rows[id].get(metric) is not None for rows in self.rows)]
        return (
            average_seeds([{id: float(rows[id][metric] or 0.0) for id in known} for rows in self.rows]) if known else {}
        )

    def per_seed(self, metric: str, ids: Iterable[str]) -> list[dict[str, float]]:
        """One mapping per seed, for variance components."""
        known = self.values(metric, ids)
        return [{id: float(rows[id][metric] or 0.0) for id in known} for rows in self.rows]

    def metrics(self, ids: Iterable[str] | None = None) -> list[str]:
        """The metrics that some question, or some of `ids`, has a value of."""
        chosen = list(self.category if ids is None else ids)
        return sorted(n for n in {name for row in self.rows[0].values() for name in row} if self.values(n, chosen))


def score_group(group: Group, scorer: Protocol) -> Scored:
    """Score all answers of a group. Evidence measures stand beside the protocol's metrics."""
    each = [score_records(run.records, scorer) for run in group.runs]
    records = group.first.records
    shown: dict[str, list[int]] = {}
    for record in (record for run in group.runs for record in run.records):
        if record.state == "answered":
            shown.setdefault(record.id, []).append(record.evidence_tokens)
    return Scored(
        group=group,
        rows=tuple(scores.rows for scores in each),
        errors=tuple(scores.failed for scores in each),
        unscorable=frozenset[str]().union(*(scores.unscorable for scores in each)),
        category={r.id: Category(r.category) for r in records},
        conversation={r.id: r.conversation for r in records},
        tokens={id: sum(values) / len(values) for id, values in shown.items()},
    )


@dataclass(frozen=True)
class RunScores:
    """Metrics by question id, errors as the protocol's zeros; the ids that failed, and those no original scorer can score."""

    rows: Mapping[str, Scores]
    failed: frozenset[str]
    unscorable: frozenset[str]


def score_records(records: Sequence[AnswerRecord], scorer: Protocol) -> RunScores:
    """Score one run's answers, evidence measures beside the protocol's metrics."""
    scored = [score_record(scorer, record) for record in records]
    evidence = evidence_by_question(records)
    rows: dict[str, Scores] = {}
    for record, row in zip(records, scored, strict=True):
        rows[record.id] = {**counted_scores(row, scorer.zeros(Category(record.category))), **evidence[record.id]}
    failed = frozenset(row.id for row in scored if not row.answered)
    return RunScores(rows, failed, frozenset(row.id for row in scored if row.unscorable))


def items(run: Run) -> list[Item]:
    """The run's questions as controls need them; no data file is read."""
    return [Item(r.id, r.question, r.answer, r.trap, Category(r.category)) for r in run.records]
