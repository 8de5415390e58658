"""LoCoMo questions and a run's answers as Hugging Face `datasets` tables, and as Parquet. Local; nothing is uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.categories import Category
from eval.locomo import Dataset as Locomo
from eval.locomo import load
from eval.records import AnswerRecord, read_answers


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
    """Write that table as Parquet; gives the number of rows."""
    from pyarrow import parquet

    to.parent.mkdir(parents=True, exist_ok=True)
    table = load_dataset(source).data.table
    parquet.write_table(table, to)  # without the progress bar of Dataset.to_parquet
    return int(table.num_rows)


def _rows(source: Path) -> list[dict[str, Any]]:
    return answer_rows(read_answers(source)) if source.is_dir() else question_rows(load(source))
