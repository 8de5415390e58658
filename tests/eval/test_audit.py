from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.audit import apply, audit_for, ceiling
from eval.locomo import Dataset
from eval.runs import load_run
from eval.scoring import protocol
from memfly.errors import DataError
from tests.eval.conftest import shared_file
from tests.support.fake_runs import questions, write_run

QUESTIONS = {r.id: r.question for r in questions(4)}


def _issue(conversation: int, question: int, kind: str = "HALLUCINATION") -> dict[str, Any]:
    text = QUESTIONS.get(f"conv-{conversation}#{question}", "?")
    base = {"question_id": f"locomo_{conversation}_qa{question}", "question": text, "error_type": kind}
    return {**base, "correct_answer": "quince"}


def _write(tmp_path: Path, issues: Any) -> Path:
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(issues))
    return path


def test_all_kinds_but_a_wrong_citation_corrupt_the_score(tmp_path: Path) -> None:
    issues = [_issue(0, 1), _issue(0, 2, "WRONG_CITATION"), _issue(3, 0, "AMBIGUOUS")]
    audit = apply(_write(tmp_path, issues), QUESTIONS)
    assert audit.corrupting == {"conv-0#1", "conv-3#0"}
    assert (audit.entries, audit.matched) == (3, 3)
    assert audit.conversations == {0: "conv-0", 3: "conv-3"}


def test_conversations_are_matched_by_text_so_a_subset_or_another_order_works(tmp_path: Path) -> None:
    renamed = {id.replace("conv-3#", "other#"): text for id, text in QUESTIONS.items() if id.startswith("conv-3")}
    issues = [_issue(0, 1), {**_issue(3, 0), "question_id": "locomo_7_qa0"}]
    audit = apply(_write(tmp_path, issues), renamed)
    assert audit.corrupting == {"other#0"}
    assert audit.matched == 1


def test_a_text_that_does_not_fit_its_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"locomo_0_qa2 is not the question conv-0#2"):
        apply(_write(tmp_path, [_issue(0, 1), {**_issue(0, 2), "question": "Who?"}]), QUESTIONS)
    with pytest.raises(DataError, match="audit of other data"):
        apply(_write(tmp_path, [{**_issue(0, 1), "question": "Who?"}]), QUESTIONS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"a": 1}, "expected a list"),
        ([{"question_id": "x"}], "entry 0: needs the texts"),
        ([{"question_id": "x", "question": "?", "error_type": "A"}], "no id like locomo_0_qa12"),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        apply(_write(tmp_path, content), QUESTIONS)
    with pytest.raises(DataError, match="cannot read"):
        apply(tmp_path / "none.json", QUESTIONS)


def test_the_configured_file_is_used_unless_another_or_none_is_given(tmp_path: Path) -> None:
    path = _write(tmp_path, [_issue(0, 1)])
    run = load_run(write_run(tmp_path, audit=str(path)))
    found = audit_for([run], None)
    assert found is not None
    assert found.corrupting == {"conv-0#1"}
    assert audit_for([run], "none") is None
    assert audit_for([load_run(write_run(tmp_path, "amem"))], None) is None


def test_the_ceiling_is_what_right_answers_score_against_wrong_golds(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path))
    issues = [_issue(0, question) for question in (0, 1)]  # two of the 20 multi-hop questions
    found = ceiling(run, apply(_write(tmp_path, issues), QUESTIONS), protocol("amem"))
    assert found["multi_hop"].mean["f1"] == pytest.approx(18 / 20)
    assert found["temporal"].mean["f1"] == 1.0


def test_the_real_file_names_the_right_questions(locomo10_data: Dataset) -> None:
    texts = {q.id: q.text for q in locomo10_data.questions}
    audit = apply(shared_file("locomo_audit_errors.json"), texts)
    assert (audit.entries, audit.matched, len(audit.corrupting)) == (156, 156, 99)
    order = [c.id for c in locomo10_data.conversations]
    assert dict(audit.conversations) == {i: order[i] for i in audit.conversations}, "position in the file is the index"
