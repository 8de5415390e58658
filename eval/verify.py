"""Is a run what it says it is? Checks a run folder against its own parts; needs no model and changes nothing.

What is checked: the folder's name against the manifest's hash, the event log's lines, answers.jsonl against the events,
scores and summary against the answers, the memories against their checksums.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.memories import MemoryStore
from eval.records import dumps, final_records, read_answers, read_lines
from eval.scoring import protocol
from eval.summary import score_run, summarise_run
from memfly.errors import DataError
from memfly.llm.base import stable_hash


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    detail: str


def verify(run: Path) -> list[Check]:
    """All checks, in a fixed order; of a run that was killed, those of the parts it has. Raises DataError when the folder
    is no run at all."""
    manifest = _json(run / "manifest.json")
    checks: list[tuple[str, Callable[[], str]]] = [
        ("name", lambda: _name(run, manifest)),
        ("events", lambda: _events(run)),
    ]
    if (run / "summary.json").exists():
        summary = _json(run / "summary.json")
        checks += [
            ("answers", lambda: _answers(run, summary)),
            ("scores", lambda: _scores(run, summary)),
            ("summary", lambda: _summary(run, manifest, summary)),
        ]
    else:
        checks.append(("answers", lambda: _open_answers(run)))
    checks.append(("memories", lambda: _memories(run, manifest)))
    out = []
    for name, check in checks:
        try:
            out.append(Check(name, True, check()))
        except (_BrokenError, DataError) as problem:
            out.append(Check(name, False, str(problem)))
        except (KeyError, TypeError, ValueError, OSError) as problem:  # what it reads is not what a run writes
            detail = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
            out.append(Check(name, False, f"cannot be read as `memfly run` writes it ({detail})"))
    return out


class _BrokenError(Exception):
    """One check failed; the message says what does not fit."""


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise DataError(
            f"{path.parent}: no {path.name}; name the folder of a run, as printed by `memfly run`"
        ) from None
    except ValueError:
        raise DataError(f"{path}: is not JSON; the file is damaged, run the configuration again") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no object; the file is damaged, run the configuration again")
    return value


def _name(run: Path, manifest: dict[str, Any]) -> str:
    digest = stable_hash(manifest["identity"])
    if digest != manifest["hash"]:
        raise _BrokenError("the manifest's hash is not that of the identity it lists")
    if not run.resolve().name.endswith(f"-{digest[:10]}"):
        raise _BrokenError(f"the folder's name does not end in {digest[:10]}, the hash of its configuration")
    return f"configuration hash {digest[:10]}"


def _events(run: Path) -> str:
    total = torn = 0
    with (run / "events.jsonl").open("rb") as file:
        for line in file:
            total += 1
            try:
                json.loads(line)
            except ValueError:
                torn += 1
    return f"{total} events, {torn} torn by a crash and ignored"


def _answers(run: Path, summary: dict[str, Any]) -> str:
    kept = final_records(run / "events.jsonl", keep_errors=True)
    lines = [line for line in (run / "answers.jsonl").read_text(encoding="utf-8").split("\n") if line]
    ids = [json.loads(line)["id"] for line in lines]
    if len(set(ids)) != len(ids):
        raise _BrokenError("answers.jsonl has a question twice")
    for name, line in zip(ids, lines, strict=True):
        if name not in kept or dumps(kept[name].model_dump(mode="json")) != line:
            raise _BrokenError(f"answers.jsonl and events.jsonl differ on {name}")
    if kept.keys() - set(ids):
        raise _BrokenError(f"{len(kept.keys() - set(ids))} recorded answers are not in answers.jsonl")
    left = summary["n_questions"] - len(ids)
    return f"{len(ids)} of {summary['n_questions']} questions have a final record" + (
        f", {left} are open" if left else ""
    )


def _open_answers(run: Path) -> str:
    kept = final_records(run / "events.jsonl", keep_errors=True)
    return f"{len(kept)} questions have a final record; the run has not ended, the same `memfly run` continues it"


def _scores(run: Path, summary: dict[str, Any]) -> str:
    rows, _ = score_run(read_answers(run), protocol(summary["protocol"], summary["mode"]))
    stored = {item["id"]: item for item in read_lines(run / "scores.jsonl")}
    for row in rows:
        item = stored.get(row.id)
        if item is None or item["scores"] != (dict(row.scores) if row.scores is not None else None):
            raise _BrokenError(f"scores.jsonl does not follow from answers.jsonl at {row.id}")
    return f"{len(rows)} scores follow from the answers ({summary['protocol']}, {summary['mode']})"


def _summary(run: Path, manifest: dict[str, Any], summary: dict[str, Any]) -> str:
    scorer = protocol(summary["protocol"], summary["mode"])
    again = summarise_run(
        read_answers(run), _infos(run, manifest), {}, run_name=run.name, scorer=scorer, n_asked=summary["n_questions"]
    )
    for key in ("n_error", "n_unscored", "categories", "average", "average4", "adversarial", "evidence", "errors"):
        if again[key] != summary[key]:
            raise _BrokenError(f"summary.json: {key} does not follow from the answers")
    return "the numbers follow from the answers"


def _memories(run: Path, manifest: dict[str, Any]) -> str:
    """Of the conversations whose memory the run has built or found: a run that was stopped has not come to all."""
    memories = manifest.get("memories", {})
    ready = {
        event.get("conversation")
        for event in read_lines(run / "events.jsonl")
        if event.get("kind") in ("build_end", "memory_reused")
    }
    store = MemoryStore(run.resolve().parent / "memory")
    wanted = [fingerprint for conversation, fingerprint in memories.items() if conversation in ready]
    broken = sum(store.info(fingerprint) is None for fingerprint in wanted)
    if broken:
        raise _BrokenError(f"{broken} of {len(wanted)} memories are missing or fail their checksums")
    not_built = len(memories) - len(wanted)
    return f"{len(wanted)} memories pass their checksums" + (f", {not_built} were not built" if not_built else "")


def _infos(run: Path, manifest: dict[str, Any]) -> list[Any]:
    store = MemoryStore(run.resolve().parent / "memory")
    return [info for info in map(store.info, manifest.get("memories", {}).values()) if info is not None]
