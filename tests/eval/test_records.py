"""The event log survives torn lines; final records; files replaced at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.records import (
    AnswerRecord,
    EventWriter,
    counts,
    final_records,
    item_error,
    read_answers,
    read_lines,
    write_answers,
    write_atomic,
)
from memfly.errors import BackendError, DataError


def record(id: str, state: Any = "answered", **more: Any) -> AnswerRecord:
    fields: dict[str, Any] = {"prediction": "Miso"} if state == "answered" else {"error": item_error("answer", DOWN)}
    base = {"id": id, "conversation": "c", "category": 4, "question": "q", "answer": "Miso", "state": state}
    return AnswerRecord(**base | fields | more)


DOWN = BackendError("server\ndown " + "x" * 900, transient=False)


def write(path: Path, *records: AnswerRecord) -> None:
    events = EventWriter(path)
    for item in records:
        events.write("merge", {"note": 3})
        events.write("answer", {"record": item.model_dump(mode="json")}, durable=True)
    events.close()


def test_the_last_record_of_a_question_counts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, record("a", "error"), record("b"), record("c", "error"))
    write(path, record("a", prediction="Ünïcode\n🐝"), record("b", "error"))
    kept = final_records(path, keep_errors=True)
    assert {k: r.state for k, r in kept.items()} == {"a": "answered", "b": "error", "c": "error"}
    assert list(final_records(path, keep_errors=False)) == ["a"]
    assert kept["a"].prediction == "Ünïcode\n🐝"
    assert len(list(read_lines(path))) == 10


@pytest.mark.parametrize("cut", [1, 7, 40, 200])
def test_a_torn_line_costs_that_line_only(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, record("a"), record("b", prediction="🐝" * 40))
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(final_records(path, keep_errors=True)) == (["a", "b"] if cut == 1 else ["a"])
    write(path, record("c"))
    assert list(final_records(path, keep_errors=True)) == (["a", "b", "c"] if cut == 1 else ["a", "c"])


def test_a_durable_event_is_on_disk_before_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventWriter(path)
    events.write("link", {"a": 1})
    events.write("answer", {"record": {}}, durable=True)
    assert [event["kind"] for event in read_lines(path)] == ["link", "answer"]
    events.close()


def test_a_full_disk_names_the_file() -> None:
    writer = EventWriter(Path("/dev/full"))
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        writer.write("answer", {}, durable=True)
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        writer.close()


def test_no_file_and_foreign_lines_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert list(read_lines(path)) == []
    path.write_bytes(b'3\n"x"\n[1]\n\n\xff\xfe\n{"kind": "ok"}\n')
    assert list(read_lines(path)) == [{"kind": "ok"}]
    (tmp_path / "empty").write_bytes(b"")
    EventWriter(tmp_path / "empty").close()


def test_answers_are_one_sorted_line_each_and_come_back(tmp_path: Path) -> None:
    records = [record("b", answer=2022, trap="t"), record("a", "error")]
    write_answers(tmp_path / "answers.jsonl", records)
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["b", "a"]
    assert all(list(json.loads(line)) == sorted(json.loads(line)) for line in lines)
    assert read_answers(tmp_path) == records
    assert isinstance(read_answers(tmp_path)[0].answer, int)
    with pytest.raises(DataError, match=r"no answers\.jsonl; name the folder of a finished run"):
        read_answers(tmp_path / "none")


def test_a_record_refuses_unknown_fields() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        record("a", score=1.0)


def test_files_are_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"


def test_only_the_project_s_own_errors_become_records() -> None:
    found = item_error("answer", DOWN)
    assert (found.kind, found.stage, len(found.message)) == ("BackendError", "answer", 500)
    with pytest.raises(KeyError):
        item_error("answer", KeyError("bug"))


def test_counts_add_up_by_role() -> None:
    assert counts([{"gate": {"calls": 2}}, {"answer": {"calls": 1}, "gate": {"calls": 3, "truncated": 1}}, {}]) == {
        "answer": {"calls": 1},
        "gate": {"calls": 5, "truncated": 1},
    }
