"""LoCoMo questions and a run's answers as Hugging Face `datasets`, Parquet, CSV or JSON lines. Nothing is uploaded."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.locomo import Dataset as Locomo
from eval.locomo import load
from eval.records import AnswerRecord, dumps, read_answers, write_atomic
from memfly.errors import DataError


def question_rows(data: Locomo) -> list[dict[str, Any]]:
    """One row per question; answers as text, since six of LoCoMo's are numbers and a column has one type."""
    rows = []
    for question in data.questions:
        gold = data.golds[question.id]
        rows.append(
            {
                "id": question.id,
                "conversation": question.conversation,
                "question": question.text,
                "category": int(gold.category),
                "category_name": gold.category.label,
                "answer": None if gold.answer is None else str(gold.answer),
                "trap": gold.trap,
                "evidence": list(gold.evidence),
            }
        )
    return rows


def answer_rows(records: list[AnswerRecord]) -> list[dict[str, Any]]:
    """One row per answered or failed question of a run."""
    return [
        {
            "id": r.id,
            "conversation": r.conversation,
            "question": r.question,
            "category": r.category,
            "category_name": Category(r.category).label,
            "answer": None if r.answer is None else str(r.answer),
            "trap": r.trap,
            "evidence": r.gold_evidence,
            "state": r.state,
            "prediction": r.prediction,
            "shown_turns": r.shown_turns,
            "evidence_tokens": r.evidence_tokens,
            "error": r.error.kind if r.error else None,
        }
        for r in records
    ]


def load_dataset(source: Path | str) -> Any:
    """A `datasets.Dataset`: the question table of a LoCoMo file, or the answers of a run folder."""
    from datasets import Dataset

    return Dataset.from_list(_rows(Path(source)))


def export(source: Path, to: Path) -> int:
    """Write that table as its suffix says, .parquet, .csv (lists as JSON) or .jsonl; gives the number of rows. Raises
    DataError for another suffix."""
    writers: dict[str, Callable[[list[dict[str, Any]]], str | bytes]] = {
        ".parquet": _parquet,
        ".csv": _csv,
        ".jsonl": _jsonl,
    }
    if to.suffix not in writers:
        raise DataError(f"data export: {to} ends in none of {', '.join(writers)}")
    rows = _rows(source)
    content: str | bytes = writers[to.suffix](rows)
    to.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(to, content)
    return len(rows)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    from datasets import Dataset
    from pyarrow import BufferOutputStream, parquet

    out = BufferOutputStream()
    parquet.write_table(Dataset.from_list(rows).data.table, out)  # without the progress bar of Dataset.to_parquet
    return bytes(out.getvalue())


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({k: dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def _jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _rows(source: Path) -> list[dict[str, Any]]:
    return answer_rows(read_answers(source)) if source.is_dir() else question_rows(load(source))
