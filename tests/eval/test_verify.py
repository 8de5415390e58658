"""`memfly verify`: a sound run passes every check; damage of any kind is a failed check, never a crash."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from eval.verify import Check, verify
from memfly.errors import BudgetExceeded, DataError
from memfly.llm.base import Call
from scripts.cli import main
from tests.support.runs import on_call, run

PARTS = ("manifest.json", "summary.json", "events.jsonl", "answers.jsonl", "scores.jsonl")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("sound"), "method=rag_bm25").folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound.parent, tmp_path / "runs")
    return tmp_path / "runs" / sound.name


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.passed]


def test_a_sound_run_passes(folder: Path) -> None:
    checks = verify(folder)
    assert [c.name for c in checks] == ["name", "events", "answers", "scores", "summary", "memories"]
    assert failed(checks) == []
    assert "10 of 10 questions have a final record" in checks[2].detail


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("content", [b"", b"\xff\x00\xca", b"{}\n", b"[1]\n", b'{"id": 1'])
def test_damage_is_a_failed_check_or_one_line(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    if name in ("manifest.json", "summary.json") and content != b"{}\n":
        with pytest.raises(DataError, match=name):
            verify(folder)
        return
    checks = verify(folder)
    assert failed(checks)
    assert all("\n" not in check.detail for check in checks)


def test_each_untruth_fails_its_own_check(folder: Path) -> None:
    lines = (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[0])
    row["scores"]["f1"] = 0.123
    (folder / "scores.jsonl").write_text("\n".join([json.dumps(row), *lines[1:]]) + "\n", encoding="utf-8")
    assert failed(verify(folder)) == ["scores"]
    next((folder.parent / "memory").glob("*/memory.json")).write_text("{}")
    assert failed(verify(folder)) == ["scores", "memories"]
    moved = folder.rename(folder.with_name("memfly-extractive-talks-0123456789"))
    assert failed(verify(moved)) == ["name", "scores", "memories"]


def test_a_run_that_was_stopped_or_killed_is_checked_as_far_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(call: Call) -> None:
        if call.task.name == "answer":
            raise BudgetExceeded("llm.budget: spent")

    on_call(monkeypatch, stop)
    with pytest.raises(BudgetExceeded):
        run(tmp_path, "concurrency=1")
    (folder,) = (tmp_path / "runs").glob("memfly-*")
    checks = verify(folder)
    assert failed(checks) == []
    assert checks[-1].detail == "1 memories pass their checksums, 1 were not built"
    (folder / "summary.json").unlink()
    checks = verify(folder)
    assert [check.name for check in checks] == ["name", "events", "answers", "memories"]
    assert failed(checks) == []
    assert "the run has not ended, the same `memfly run` continues it" in checks[2].detail


def test_what_is_no_run_does_not_hide_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder.parent / "memory"), str(folder), str(folder.parent / "cache")]) == 2
    out, err = capsys.readouterr()
    assert out.count("  ok     ") == 6
    assert err.count("\n") == 1
    assert "memory: no manifest.json" in err
    assert "(and 1 more that are no runs)" in err


def test_line_separators_of_other_alphabets_do_not_break_a_sound_run(tmp_path: Path) -> None:
    folder = run(tmp_path, "method=no_context", "data.limit_questions=1").folder
    events = folder / "events.jsonl"
    text = events.read_text(encoding="utf-8")
    said = text.split('"prediction":"', 1)[1].split('"', 1)[0]
    events.write_text(text.replace(f'"prediction":"{said}"', f'"prediction":"a\u2028b\x85{said}"'), encoding="utf-8")
    (folder / "summary.json").unlink()
    again = run(tmp_path, "method=no_context", "data.limit_questions=1").folder
    assert failed(verify(again)) == []


def test_damaged_lines_of_the_log_cost_no_more_than_themselves(tmp_path: Path) -> None:
    folder = run(tmp_path, "method=rag_bm25").folder
    with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
        for line in (
            '{"kind":"answer"}',
            '{"kind":"build_end"}',
            '{"kind":"calls","roles":3}',
            '{"kind":"process_end"}',
        ):
            file.write(line + "\n")
    (folder / "summary.json").unlink()
    again = run(tmp_path, "method=rag_bm25")
    assert again.summary["n_error"] == again.summary["n_unscored"] == 0
