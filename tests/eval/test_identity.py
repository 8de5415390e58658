"""Names of runs and memories: everything that can change them, and nothing else."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from eval import identity
from eval.identity import conversation_hash, git_state, made_by, memory_fingerprint, system_identity, task_identity
from eval.locomo import load
from memfly.memfly import MemFly
from memfly.tasks import answer as answer_task
from memfly.tasks.gate import GATE
from memfly.types import Observation, SessionNotes


def test_the_conversation_hash_covers_what_a_system_can_see(talk_file: Path) -> None:
    talk = load(talk_file).conversations[0]
    base = conversation_hash(talk)
    assert conversation_hash(load(talk_file).conversations[0]) == base
    session, turn = talk.sessions[0], talk.sessions[0].turns[0]

    def with_turn(**change: Any) -> Any:
        turns = (dataclasses.replace(turn, **change), *session.turns[1:])
        return dataclasses.replace(talk, sessions=(dataclasses.replace(session, turns=turns), *talk.sessions[1:]))

    def with_notes(notes: SessionNotes) -> Any:
        return dataclasses.replace(talk, sessions=(dataclasses.replace(session, notes=notes), *talk.sessions[1:]))

    changed = [
        with_turn(text="x"), with_turn(id="D9:9"), with_turn(speaker="Eve"), with_turn(caption="c"), with_turn(date="d"),
        with_notes(SessionNotes(summary="s")), with_notes(SessionNotes((Observation("Ada", "f", ()),))),
        dataclasses.replace(talk, id="other"), dataclasses.replace(talk, speakers=("Ada", "Eve")),
        dataclasses.replace(talk, sessions=talk.sessions[:-1]),
    ]  # fmt: skip
    assert len({base, *map(conversation_hash, changed)}) == len(changed) + 1


def test_the_memory_fingerprint_changes_with_each_part(talk_file: Path) -> None:
    a, b = load(talk_file).conversations
    base = memory_fingerprint({"s": 1}, {"llm": 1}, a, 0)
    assert base == memory_fingerprint({"s": 1}, {"llm": 1}, a, 0)
    others = [
        memory_fingerprint({"s": 2}, {"llm": 1}, a, 0),
        memory_fingerprint({"s": 1}, {"llm": 2}, a, 0),
        memory_fingerprint({"s": 1}, {"llm": 1}, b, 0),
        memory_fingerprint({"s": 1}, {"llm": 1}, a, 1),
    ]
    assert len({base, *others}) == 5


def test_a_task_s_identity_has_prompt_version_and_schema() -> None:
    base = task_identity(GATE)
    for change in ({"version": 9}, {"system": "other"}, {"name": "other"}):
        assert task_identity(dataclasses.replace(GATE, **change)) != base  # type: ignore[arg-type]
    assert base["schema"]["properties"]["verdicts"]


def test_a_task_s_identity_has_the_wording_of_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited instruction must be another run, without anybody remembering to raise a version."""
    source = Path(str(answer_task.__file__)).read_text(encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for name, text in (("same", source), ("edited", source.replace("Answer with a short phrase.", "In French."))):
        (tmp_path / f"wording_{name}.py").write_text(text, encoding="utf-8")
        found.append(task_identity(importlib.import_module(f"wording_{name}").ANSWER))
    assert found[0] == task_identity(answer_task.ANSWER)
    assert {key for key in found[0] if found[0][key] != found[1][key]} == {"wording"}


def test_every_program_that_worked_on_a_run_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    first = made_by(path)
    path.write_text(json.dumps({"made_by": first}), encoding="utf-8")
    assert made_by(path) == first
    monkeypatch.setattr(identity, "git_state", lambda: {"commit": "other", "dirty": True})
    second = made_by(path)
    assert (len(first), len(second)) == (1, 2)
    assert second[0] == first[0]
    path.write_text("[1]", encoding="utf-8")
    assert made_by(path) == second[1:]


@pytest.mark.parametrize(("attribute", "value"), [("version", 99), ("tasks", ())])
def test_a_system_s_identity_has_version_and_tasks(attribute: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    base = system_identity(MemFly, {"tau_m": 0.7}, build_only=True)
    monkeypatch.setattr(MemFly, attribute, value)
    assert system_identity(MemFly, {"tau_m": 0.7}, build_only=True) != base


def test_the_code_version_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    base = system_identity(MemFly, {}, build_only=True)
    monkeypatch.setattr(identity, "CODE_VERSION", -1)
    assert system_identity(MemFly, {}, build_only=True) != base


def test_build_identity_leaves_out_what_only_recall_reads() -> None:
    names = {task["name"] for task in system_identity(MemFly, {}, build_only=True)["tasks"]}
    assert names == {"ingest", "gate", "gate_merge", "gate_one_strength", "merge"}
    every = {task["name"] for task in system_identity(MemFly, {}, build_only=False)["tasks"]}
    assert every - names == {"question", "sufficiency", "subquery", "interim_answer"}
    chosen = {"tau_m": 0.7, "retrieval": {"k_final": 3}, "refine": None, "note_view": "raw"}
    assert system_identity(MemFly, chosen, build_only=True)["options"] == {"tau_m": 0.7}
    assert system_identity(MemFly, chosen, build_only=False)["options"] == chosen


def test_a_user_s_own_system_is_named_by_its_source_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from memfly.memfly import MemFly\nclass Mine(MemFly):\n    pass\n"
    found = []
    monkeypatch.syspath_prepend(str(tmp_path))
    for text in (code, code, code + "# edited\n"):
        (tmp_path / "mine_of_identity_test.py").write_text(text)
        sys.modules.pop("mine_of_identity_test", None)
        importlib.invalidate_caches()
        module = importlib.import_module("mine_of_identity_test")
        found.append(system_identity(module.Mine, {}, build_only=True))
    assert found[0] == found[1] != found[2]
    assert found[0]["class"] == "mine_of_identity_test.Mine"


def test_git_state_is_of_this_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (identity.ROOT / ".git").exists():
        assert len(git_state()["commit"]) == 40
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    assert git_state() == {}
