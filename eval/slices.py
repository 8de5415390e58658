"""A run's scores cut along what makes a question hard, as one tidy table: a row per question. Needs the data file.

Slices: conversation, distance of the evidence (sessions between the last evidence and the end), number of evidence turns
and of sessions they are spread over, whether an evidence turn shares an image, length of the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from eval.categories import Category
from eval.config import DataConfig
from eval.locomo import Dataset, load
from eval.records import AnswerRecord, write_atomic
from eval.runs import Run, score_records
from eval.scoring.protocol import Protocol
from memfly.errors import DataError


def dataset_of(run: Run, path: Path | None = None) -> Dataset:
    """The data a run was made on: `path`, or where its configuration says. Raises DataError when it is another file."""
    configured = DataConfig.model_validate(run.manifest["config"]["data"])
    file = path or configured.file()
    if not file.is_file():
        raise DataError(f"slices: no data file {file}; give --data FILE, the file the run was made on")
    dataset = load(file, name=configured.name, captions=configured.captions)
    expected = str(run.summary["data"]["sha256"])
    if dataset.sha256 != expected:
        raise DataError(
            f"slices: {file} has SHA-256 {dataset.sha256[:12]}..., the run was made on {expected[:12]}...; give --data FILE"
        )
    return dataset


def rows(run: Run, dataset: Dataset, protocol: Protocol) -> list[dict[str, Any]]:
    """One row per question asked. Slice columns are None where a question has no usable evidence."""
    scored = score_records(run.records, protocol)
    conversations = {conversation.id: conversation for conversation in dataset.conversations}
    sessions = {
        (c.id, turn.id): (place, turn.caption is not None)
        for c in conversations.values()
        for place, session in enumerate(c.sessions)
        for turn in session.turns
    }
    found = []
    for record in run.records:
        last = len(conversations[record.conversation].sessions) - 1
        places = [sessions[record.conversation, turn] for turn in record.gold_evidence]
        found.append(
            {
                "run": run.name,
                "method": run.method,
                "backbone": run.backbone,
                "seed": run.seed,
                "protocol": protocol.name,
                "mode": protocol.mode,
                **_question(record),
                **_evidence(places, last),
                "error": record.id in scored.failed,
                "evidence_tokens": record.evidence_tokens,
                **scored.rows[record.id],
            }
        )
    return found


def _question(record: AnswerRecord) -> Mapping[str, Any]:
    return {
        "id": record.id,
        "conversation": record.conversation,
        "category": record.category,
        "category_name": Category(record.category).label,
        "question_words": len(record.question.split()),
        "answer_words": None if record.answer is None else len(str(record.answer).split()),
    }


def _evidence(places: Sequence[tuple[int, bool]], last: int) -> Mapping[str, Any]:
    sessions = [place for place, _ in places]
    return {
        "n_evidence": len(places),
        "n_evidence_sessions": len(set(sessions)),
        "evidence_distance": last - max(sessions) if sessions else None,
        "oldest_evidence_distance": last - min(sessions) if sessions else None,
        "image_dependent": any(image for _, image in places) if places else None,
    }


def write(run: Run, dataset: Dataset, protocol: Protocol, to: Path) -> int:
    """Write the rows as Parquet; gives how many. Raises DataError when the file cannot be written."""
    frame = pd.DataFrame(rows(run, dataset, protocol))
    integers = ["n_evidence", "n_evidence_sessions", "evidence_distance", "oldest_evidence_distance", "answer_words"]
    frame[integers] = frame[integers].astype("Int64")
    frame["image_dependent"] = frame["image_dependent"].astype("boolean")
    numbers = [c for c in frame.columns if frame[c].isna().all() and c not in (*integers, "image_dependent")]
    frame[numbers] = frame[numbers].astype("float64")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(to, frame.to_parquet(None, index=False))
    except OSError as error:
        raise DataError(f"slices: cannot write {to}: {error.strerror or error}") from None
    return len(frame)
