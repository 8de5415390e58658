"""A run's numbers from records written by hand: nothing lost, nothing counted twice, errors never hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.memories import BuildInfo
from eval.records import AnswerRecord, ItemError
from eval.scoring import protocol
from eval.summary import score_run, summarise_run, table, write_scores

CALLS = {"answer": {"calls": 1, "prompt_tokens": 50, "completion_tokens": 4, "parse_failures": 1, "truncated": 0}}
HEADER = {
    "run": "r", "status": "finished", "method": "memfly", "backbone": "extractive", "model": None, "embedder": "hashing",
    "data": {"name": "talks", "sha256": "ab" * 32, "captions": "all"}, "prompt_set": "amem", "token_budget": None, "seed": 0,
}  # fmt: skip


def record(n: int, category: int, prediction: str | None, answer: Any = "a grey cat", **more: Any) -> AnswerRecord:
    fields: dict[str, Any] = {"state": "answered", "prediction": prediction}
    if prediction is None:
        fields = {"state": "error", "error": ItemError(kind="BackendError", stage="answer", message="down")}
    gold = {"answer": None, "trap": answer} if category == 5 else {"answer": answer}
    return AnswerRecord(
        id=f"c#{n}", conversation="c", category=category, question="q", calls=CALLS, **gold, **fields | more
    )


def info(by: str, **calls: int) -> BuildInfo:
    return BuildInfo(
        fingerprint="f", system="S", conversation="c", built_by=by, stats={"notes": 5, "links": 2}, build_s=1.0,
        calls={role: {"calls": n, "prompt_tokens": 10 * n, "completion_tokens": n} for role, n in calls.items()},
    )  # fmt: skip


def summary(
    records: list[AnswerRecord],
    infos: list[BuildInfo] | None = None,
    n_asked: int | None = None,
    scoring: str = "amem fixed",
) -> Any:
    return summarise_run(
        records, infos or [], HEADER, run_name="r", scorer=protocol(*scoring.split()), n_asked=n_asked or len(records)
    )


RECORDS = [
    record(0, 4, "a grey cat", gold_evidence=["D1:1"], shown_turns=["D1:1", "D1:2"], evidence_tokens=30),
    record(1, 4, "a dog", gold_evidence=["D1:3"], shown_turns=["D1:1", "D1:2"], evidence_tokens=10),
    record(2, 1, None),
    record(3, 5, "Not mentioned in the conversation"),
    record(4, 5, "a grey cat"),
    record(5, 2, "May 2023", "May 2023"),
]


def test_the_promised_keys_and_their_values() -> None:
    made = summary(RECORDS, [info("r", ingest=5, gate=4), info("other", ingest=7)], n_asked=8)
    assert (made["n_questions"], made["n_error"], made["n_unscored"]) == (8, 1, 2)
    assert {name: cell["n"] for name, cell in made["categories"].items()} == {
        "multi_hop": 1, "temporal": 1, "open_domain": 0, "single_hop": 2, "adversarial": 2
    }  # fmt: skip
    assert made["categories"]["temporal"]["f1"] == pytest.approx(1.0)
    assert made["categories"]["multi_hop"] == {"n": 1, "n_error": 1, "f1": 0.0, "bleu1": 0.0, "exact_match": 0.0}
    assert made["categories"]["open_domain"] == {"n": 0, "n_error": 0, "f1": None, "bleu1": None, "exact_match": None}
    assert made["average"]["n"] == 6
    assert made["average4"]["n"] == 4
    f1s = {row.id: row.scores["f1"] for row in score_run(RECORDS, protocol("amem", "fixed"))[0] if row.scores}
    assert made["average"]["f1"] == pytest.approx(sum(f1s.values()) / 6), "an error counts as 0"
    assert made["average_without_errors"]["f1"] == pytest.approx(sum(f1s.values()) / 5)
    assert made["average_without_errors"]["n"] == 5
    assert made["adversarial"] == {"refusal_rate": 0.5, "trap_rate": 0.5}
    evidence = made["evidence"]
    assert (evidence["recall"], evidence["hit_rate"], evidence["precision"], evidence["n"]) == (0.5, 0.5, 0.25, 2)
    assert evidence["n_left_out"] == 4
    assert made["answer_tokens_mean"] == pytest.approx(8.0)
    assert made["calls"] == {"answer": 6, "gate": 4, "ingest": 5}, "another run's building is not this run's work"
    assert made["tokens"]["ingest"] == {"prompt": 50, "completion": 5}
    assert made["parse_failures"]["answer"] == 6
    assert (made["memory"]["notes"], made["memory"]["links"], made["memory"]["reused"]) == (10, 4, 1)
    assert made["memory"]["build_calls"] == {"gate": 4, "ingest": 12}
    assert made["errors"] == {"answer: BackendError": 1}
    json.dumps(made)


def test_the_table_shows_every_row_both_readings_and_the_errors() -> None:
    text = table(summary(RECORDS, [info("r", ingest=5)], n_asked=8))
    for piece in (
        "| 1 multi_hop | 1 | 1 |", "| 4 single_hop | 2 | 0 |", "| average (all) | 6 | 1 |", "| average (1-4) | 4 | 1 |",
        "refused 50.00", "fell for the trap 50.00", "recall 0.5000, hit rate 0.5000", "8 tokens",
        "errors 1 (answer: BackendError 1), unscored 2", "with errors left out 68.00 over 5 questions",
    ):  # fmt: skip
        assert piece in text, piece
    assert "errors 0" not in table(summary(RECORDS[:2]))


def test_a_run_without_records_has_no_numbers_but_a_table() -> None:
    made = summary([], n_asked=4)
    assert (made["n_questions"], made["n_unscored"], made["n_error"]) == (4, 4, 0)
    assert made["answer_tokens_mean"] is None
    assert "| average (all) | 0 | 0 |" in table(made)
    json.dumps(made, allow_nan=False)


def test_scores_have_one_line_per_question(tmp_path: Path) -> None:
    rows, _ = score_run(RECORDS, protocol("amem", "fixed"))
    write_scores(tmp_path / "scores.jsonl", rows)
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [record.id for record in RECORDS]
    assert (lines[2]["scores"], lines[2]["error"]) == (None, "BackendError")
    assert all(line["scores"] for i, line in enumerate(lines) if i != 2)


def test_a_failed_question_is_an_evidence_of_0_and_both_readings_are_given() -> None:
    records = [*RECORDS[:2], record(6, 4, None, gold_evidence=["D1:1"], shown_turns=["D1:1"])]
    made = summary(records)
    assert (made["evidence"]["recall"], made["evidence"]["n"]) == (pytest.approx(1 / 3), 3)
    assert made["evidence"]["turns_shown_mean"] == 2.0, "what a failed question showed is not known"
    assert made["evidence_without_errors"] == {"recall": 0.5, "hit_rate": 0.5, "n": 2}
    assert "over 3 questions with usable evidence, errors as 0; recall 0.5000 over 2 with errors left out" in table(
        made
    )
    assert "errors as 0; recall" not in table(summary(RECORDS[:2]))


def test_without_traceable_answers_a_failure_is_not_the_one_question_with_a_recall() -> None:
    lost = record(6, 4, None, gold_evidence=["D1:1"])
    for answered in ([r.model_copy(update={"traceable": False}) for r in RECORDS[:2]], []):
        evidence = summary([*answered, lost])["evidence"]
        assert (evidence["recall"], evidence["n"]) == (None, 0)


def test_n_is_what_the_mean_is_over_where_a_protocol_leaves_category_5_out() -> None:
    made = summary(RECORDS, scoring="mem0 fixed")
    assert (made["average"]["n"], made["average4"]["n"], made["categories"]["adversarial"]["n"]) == (4, 4, 0)
    text = table(made)
    assert "| average (all) | 4 | 1 |" in text
    assert "| 5 adversarial | 0 | 0 | - |" in text
    assert "with errors left out 80.00 over 3 questions" in text


def test_where_the_original_scorer_crashes_is_no_error_and_hides_no_refusal() -> None:
    made = summary(RECORDS, scoring="locomo as_is")
    assert (made["n_error"], made["n_unscorable"]) == (1, 2)
    assert (made["average"]["n"], made["categories"]["adversarial"]) == (4, {"n": 0, "n_error": 0, "f1": None})
    assert made["adversarial"] == {"refusal_rate": 0.5, "trap_rate": 0.5}
    text = table(made)
    assert "the original scorer crashes on 2 questions" in text
    assert "errors 1 (answer: BackendError 1)" in text
    assert summary(RECORDS)["n_unscorable"] == 0
    assert "crashes" not in table(summary(RECORDS))


def test_blank_answers_and_reading_side_fallbacks_are_counted_by_question() -> None:
    records = [
        record(0, 4, " "),
        record(1, 4, "a dog", trace={"parse_fallback": True, "rounds": [{"parse_fallback": True}], "stop": "rounds"}),
        record(2, 4, "a dog", trace={"step_fallback": 2, "unanswered": 0}),
        record(3, 4, "", trace={"unanswered": 1, "parse_fallback": True}),
        record(4, 4, None),
    ]
    made = summary(records)
    assert made["questions_with"] == {"blank_answer": 2, "parse_fallback": 2, "step_fallback": 1, "unanswered": 1}
    line = "- questions with: blank_answer 2, parse_fallback 2, step_fallback 1, unanswered 1"
    assert line in table(made | {"process": {}}).splitlines()
    assert "- questions with" not in table(summary(RECORDS) | {"process": {}})
