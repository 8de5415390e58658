"""Small run folders as `memfly run` leaves them, written without a model: answers are what the test says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.locomo import LOCOMO10_SHA256
from eval.memories import BuildInfo
from eval.records import AnswerRecord, ItemError, write_answers
from eval.scoring import protocol
from eval.summary import summarise_run
from memfly.llm.base import stable_hash

Predict = Callable[[AnswerRecord], str | None]
"""The blank record of a question -> its answer, or None for an error."""


def questions(conversations: int = 10, per_category: int = 2) -> list[AnswerRecord]:
    """Unanswered records: `per_category` questions of each category in each conversation, gold "gold <n> apple"."""
    found = []
    for c in range(conversations):
        number = 0
        for category in Category:
            for _ in range(per_category):
                adversarial = category is Category.ADVERSARIAL
                found.append(
                    AnswerRecord(
                        id=f"conv-{c}#{number}",
                        conversation=f"conv-{c}",
                        category=int(category),
                        question=f"What fruit did Ada pick on trip {c} of year {number}?",
                        answer=None if adversarial else f"gold {c}x{number} apple",
                        trap=f"trap {c}x{number} pear" if adversarial else None,
                        gold_evidence=["D1:1", "D1:2"],
                        state="answered",
                        shown_turns=["D1:1"],
                        evidence_tokens=100,
                        calls={"answer": {"calls": 1, "prompt_tokens": 120, "completion_tokens": 5}},
                    )
                )
                number += 1
    return found


def perfect(record: AnswerRecord) -> str:
    """The gold answer; in category 5 the refusal."""
    return "Not mentioned in the conversation" if record.answer is None else str(record.answer)


def share(percent: int, salt: str = "") -> Predict:
    """Right on about `percent` % of the questions, chosen by a hash of their ids; "banana" on the others."""

    def predict(record: AnswerRecord) -> str:
        draw = int(hashlib.sha256(f"{salt}{record.id}".encode()).hexdigest(), 16) % 100
        return perfect(record) if draw < percent else "banana"

    return predict


def write_run(
    root: Path,
    method: str = "memfly",
    predict: Predict = perfect,
    *,
    backbone: str = "qwen3-8b",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    records: Sequence[AnswerRecord] | None = None,
    data: Mapping[str, Any] | None = None,
    prompt_set: str = "amem",
    status: str = "finished",
    scoring: tuple[str, str] = ("amem", "fixed"),
    audit: str | None = None,
    answer: Mapping[str, Any] | None = None,
    embedder: str = "hashing",
    name: str = "fake",
    preset: str | None = None,
) -> Path:
    """Write the folder and give its path. `method` is in the identity, `preset` (the same unless given) only a name, and so
    is `name`, the data's."""
    asked = questions() if records is None else records
    done = [_answered(record, predict(record)) for record in asked]
    names = list(dict.fromkeys(r.conversation for r in asked))
    data = {
        "sha256": LOCOMO10_SHA256,
        "captions": "all",
        "conversations": names,
        "limit_questions": None,
        **(data or {}),
    }
    answer = {
        "prompt_set": prompt_set, "token_budget": None, "temperature": 0.7, "temperature_adversarial": 0.5,
        "max_tokens": 1000, "native": True, **(answer or {}),
    }  # fmt: skip
    options = {"tau_m": 0.7, "tau_l": 0.5, **(options or {})}
    identity = {
        "system": {"class": method, "options": options},
        "backends": {"llm": {"model": backbone}, "embedder": {"kind": embedder}},
        "answer": answer,
        "data": data,
        "seed": seed,
    }
    preset = preset or method
    folder = root / f"{preset}-{backbone}-{name}-{stable_hash(identity, 10)}"
    folder.mkdir(parents=True)
    write_answers(folder / "answers.jsonl", done)
    header = {
        "run": folder.name,
        "status": status,
        "method": preset,
        "backbone": backbone,
        "data": {"name": name, "sha256": data["sha256"], "captions": data["captions"]},
        "prompt_set": prompt_set,
        "token_budget": answer["token_budget"],
        "seed": seed,
    }
    scorer = protocol(*scoring)
    summary = summarise_run(done, [], header, run_name=folder.name, scorer=scorer, n_asked=len(done))
    config = {
        "method": {"_target_": method, **options},
        "method_name": preset,
        "llm_name": backbone,
        "seed": seed,
        "answer": answer,
        "data": {**data, "name": name, "path": None, "sha256": None, "audit": audit},
        "embedder": {"kind": embedder},
    }
    manifest = {"identity": identity, "config": config, "data": {"n_turns": 50}}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def write_memory(run: Path, conversations: Sequence[str], *, calls: int, seconds: float, notes: int) -> None:
    """What the event log holds about each conversation's memory."""
    with (run / "events.jsonl").open("a", encoding="utf-8") as events:
        for name in conversations:
            counted = {"ingest": {"calls": calls, "prompt_tokens": 10 * calls, "completion_tokens": calls}}
            info = BuildInfo(
                fingerprint=stable_hash([run.name, name], 24),
                system="S",
                conversation=name,
                built_by=run.name,
                calls=counted,
                stats={"notes": notes},
                build_s=seconds,
            )
            event = {"kind": "build_end", "conversation": name, "info": info.model_dump()}
            events.write(json.dumps(event) + "\n")


def _answered(record: AnswerRecord, prediction: str | None) -> AnswerRecord:
    if prediction is not None:
        return record.model_copy(update={"prediction": prediction})
    error = ItemError(kind="ParseError", stage="answer", message="no usable reply")
    return record.model_copy(update={"state": "error", "error": error, "shown_turns": [], "evidence_tokens": 0})
