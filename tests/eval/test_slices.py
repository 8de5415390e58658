from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from eval import slices
from eval.locomo import load
from eval.records import AnswerRecord
from eval.runs import load_run
from eval.scoring import protocol
from memfly.errors import DataError
from tests.support.fake_runs import perfect, write_run


def _run(tmp_path: Path, talk_file: Path) -> Path:
    dataset = load(talk_file)
    records = [
        AnswerRecord(
            id=q.id, conversation=q.conversation, category=int(g.category), question=q.text, answer=g.answer,
            trap=g.trap, gold_evidence=list(g.evidence), state="answered",
        )
        for q in dataset.questions for g in [dataset.golds[q.id]]
    ]  # fmt: skip
    return write_run(tmp_path / "runs", predict=perfect, records=records, data={"sha256": dataset.sha256})


def test_one_row_per_question_with_what_makes_it_hard(tmp_path: Path, talk_file: Path) -> None:
    run = load_run(_run(tmp_path, talk_file))
    to = tmp_path / "new" / "s.parquet"
    count = slices.write(run, slices.dataset_of(run, talk_file), protocol("amem"), to)
    frame = pd.read_parquet(to).set_index("id")
    assert count == len(frame) == len(run.records)
    presents = frame.loc["ada-ben#2"]
    assert presents["n_evidence"] == 2
    assert presents["n_evidence_sessions"] == 1
    assert presents["evidence_distance"] == 1
    assert presents["image_dependent"]
    cat = frame.loc["ada-ben#0"]
    assert (cat["evidence_distance"], cat["question_words"], cat["f1"]) == (2, 7, 1.0)
    assert not cat["image_dependent"]
    assert frame["meteor"].dtype == "float64"
    assert frame["evidence_distance"].dtype == "Int64"


def test_the_data_must_be_the_runs(tmp_path: Path, talk_file: Path) -> None:
    folder = _run(tmp_path, talk_file)
    run = load_run(folder)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(talk_file.read_text()), indent=3))
    with pytest.raises(DataError, match="SHA-256"):
        slices.dataset_of(run, other)
    with pytest.raises(DataError, match="give --data FILE"):
        slices.dataset_of(run, tmp_path / "none.json")
