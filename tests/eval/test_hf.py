"""Questions and answers as `datasets` tables and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from eval.hf import export, load_dataset
from eval.locomo import Dataset
from eval.records import AnswerRecord, ItemError, write_answers
from memfly.errors import DataError


def test_the_question_table(talk_file: Path) -> None:
    table = load_dataset(talk_file)
    assert table.num_rows == 10
    assert table.column_names == [
        "id", "conversation", "question", "category", "category_name", "answer", "trap", "evidence"
    ]  # fmt: skip
    assert table[5]["answer"] == "40"
    assert (table[4]["answer"], table[4]["trap"], table[4]["category_name"]) == (None, "a grey cat", "adversarial")
    assert table.filter(lambda row: row["category"] == 2).num_rows == 2


def test_answers_go_to_parquet_and_back(tmp_path: Path) -> None:
    base: dict[str, Any] = {"conversation": "c", "category": 4, "question": "q", "gold_evidence": ["D1:1"]}
    records = [
        AnswerRecord(id="c#0", state="answered", prediction="Miso 🐈", answer=2022, shown_turns=["D1:1"], **base),
        AnswerRecord(
            id="c#1", state="error", answer="x", error=ItemError(kind="ParseError", stage="answer", message="m"), **base
        ),
    ]
    write_answers(tmp_path / "answers.jsonl", records)
    to = tmp_path / "out" / "answers.parquet"
    assert export(tmp_path, to) == 2
    frame = pd.read_parquet(to)
    assert list(frame["id"]) == ["c#0", "c#1"]
    assert frame["prediction"][0] == "Miso 🐈"
    assert frame["error"][1] == "ParseError"
    assert list(frame["prediction"].isna()) == [False, True]
    assert frame["answer"][0] == "2022"


def test_the_real_question_table(locomo10_data: Dataset, tmp_path: Path) -> None:
    assert export(locomo10_data.path, tmp_path / "q.parquet") == 1986
    frame = pd.read_parquet(tmp_path / "q.parquet")
    assert frame["category"].value_counts().to_dict() == {4: 841, 5: 446, 2: 321, 1: 282, 3: 96}


def test_no_run_and_no_file_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no answers\.jsonl"):
        load_dataset(tmp_path)
    with pytest.raises(DataError, match="no file"):
        load_dataset(tmp_path / "x.json")
