"""The runner end to end, without a model: resume, reuse, concurrency, failures. What is on disk is what counts."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.progress import Silent
from eval.records import final_records, read_lines
from eval.runner import Runner
from memfly.embed import Embedder
from memfly.errors import BackendError, BudgetExceeded, ConfigError, DataError
from memfly.llm.base import Call
from memfly.llm.client import LLM
from memfly.tasks.base import Task
from tests.support import talks
from tests.support.runs import answers, config, events, lasting, on_call, run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls that reached the extractive backbone, by task."""
    counter: Counter[str] = Counter()
    on_call(monkeypatch, lambda call: counter.update([call.task.name]))
    return counter


# -- finished runs -----------------------------------------------------------------------------------------------


def test_a_run_keeps_everything_and_the_same_again_calls_nothing(tmp_path: Path, calls: Counter[str]) -> None:
    result = run(tmp_path)
    assert sorted(p.name for p in result.folder.iterdir()) == [
        "answers.jsonl", "events.jsonl", "lock", "manifest.json", "scores.jsonl", "summary.json", "table.md"
    ]  # fmt: skip
    summary = result.summary
    assert (summary["status"], summary["n_questions"], summary["n_error"], summary["n_unscored"]) == (
        "finished",
        10,
        0,
        0,
    )
    assert {name: cell["n"] for name, cell in summary["categories"].items()} == {
        "multi_hop": 2, "temporal": 2, "open_domain": 1, "single_hop": 3, "adversarial": 2
    }  # fmt: skip
    assert summary["memory"]["turns"] == talks.N_TURNS
    assert summary["calls"]["ingest"] == calls["ingest"] == talks.N_TURNS
    assert summary["calls"]["answer"] == calls["answer"] == talks.N_QUESTIONS
    assert sum(summary["calls"].values()) == calls.total()
    assert [a["id"] for a in answers(result)] == [f"ada-ben#{i}" for i in range(6)] + [
        f"cleo-dev#{i}" for i in range(4)
    ]
    assert len(events(result.folder, "answer")) == 10
    steps = Counter(event["kind"] for event in events(result.folder))
    assert (
        steps["append"] + steps["merge"] + len({(e["conversation"], e["note"]) for e in events(result.folder, "link")})
        == 21
    )
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["data"]["n_turns"] == talks.N_TURNS
    assert manifest["config"]["method"]["tau_m"] == 0.7
    assert manifest["made_by"][0]["packages"]["pydantic"]
    kept = {p.name: p.read_bytes() for p in result.folder.iterdir()}
    calls.clear()
    again = run(tmp_path)
    assert again.reused
    assert again.summary == json.loads(kept["summary.json"])
    assert not calls
    assert {p.name: p.read_bytes() for p in result.folder.iterdir()} == kept


def test_another_scoring_needs_no_call_and_no_other_run(tmp_path: Path, calls: Counter[str]) -> None:
    first = run(tmp_path)
    calls.clear()
    second = run(tmp_path, "scoring=locomo")
    assert (second.folder, second.reused) == (first.folder, True)
    assert (first.summary["protocol"], second.summary["protocol"]) == ("amem", "locomo")
    assert not calls
    assert lasting(run(tmp_path).summary) == lasting(first.summary), "and back"


def test_lost_answers_are_made_again_from_the_log(tmp_path: Path, calls: Counter[str]) -> None:
    result = run(tmp_path)
    before = (result.folder / "answers.jsonl").read_bytes()
    (result.folder / "answers.jsonl").unlink()
    calls.clear()
    again = run(tmp_path)
    assert (result.folder / "answers.jsonl").read_bytes() == before
    assert not calls
    assert lasting(again.summary) == lasting(result.summary)


DERIVED = ("manifest.json", "answers.jsonl", "scores.jsonl", "summary.json")
CONTENTS = (None, b"", b"\xff\x00\xca", b"[1]", b"{}\n")


@pytest.mark.parametrize(("name", "content"), [("table.md", None), *itertools.product(DERIVED, CONTENTS)])
def test_damaged_results_of_a_finished_run_are_made_again_from_the_log(
    name: str, content: bytes | None, tmp_path: Path, calls: Counter[str]
) -> None:
    result = run(tmp_path)
    assert run(tmp_path).reused
    before = (result.folder / name).read_bytes()
    (result.folder / name).unlink()
    if content is not None:
        (result.folder / name).write_bytes(content)
    calls.clear()
    again = run(tmp_path)
    assert not calls
    assert not again.reused
    assert lasting(again.summary) == lasting(result.summary)
    if name.endswith(".jsonl"):
        assert (result.folder / name).read_bytes() == before
    assert run(tmp_path).reused


def test_concurrency_does_not_change_a_byte(tmp_path: Path) -> None:
    one, many = run(tmp_path / "a", "concurrency=1"), run(tmp_path / "b", "concurrency=16")
    assert one.folder.name == many.folder.name
    for name in ("answers.jsonl", "scores.jsonl"):
        assert (one.folder / name).read_bytes() == (many.folder / name).read_bytes(), name
    assert lasting(one.summary) == lasting(many.summary)
    for memory in (tmp_path / "a" / "runs" / "memory").iterdir():
        other = tmp_path / "b" / "runs" / "memory" / memory.name
        assert (memory / "memory.json").read_bytes() == (other / "memory.json").read_bytes()


# -- interrupted runs --------------------------------------------------------------------------------------------


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt is none."""


@pytest.mark.parametrize("after", [3, 30, 45, 70])
@pytest.mark.parametrize(
    "error", [Stop(), RuntimeError("a bug"), BudgetExceeded("llm.budget: spent")], ids=["stop", "bug", "budget"]
)
def test_a_run_that_broke_off_continues_to_the_same_result(
    after: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [after]

    def stop(call: Call) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    whole = run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        on_call(patch, stop)
        with pytest.raises(type(error)):
            run(tmp_path / "parts", "concurrency=3")
    folder = tmp_path / "parts" / "runs" / whole.folder.name
    part = json.loads((folder / "summary.json").read_text())
    assert part["status"] == ("stopped" if isinstance(error, BudgetExceeded) else "failed")
    assert part["n_unscored"] == 10 - len(answers(folder))
    made = run(tmp_path / "parts", "concurrency=3")
    assert not made.reused
    assert (made.folder / "answers.jsonl").read_bytes() == (whole.folder / "answers.jsonl").read_bytes()
    assert lasting(made.summary) == lasting(whole.summary)


@pytest.mark.parametrize("after", [5, 40, 75])
async def test_a_cancelled_run_leaves_no_task_behind(
    after: int, tmp_path: Path, calls: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    runner = Runner(config(tmp_path), Silent())
    task = asyncio.create_task(runner.run())
    while calls.total() < after:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not caplog.records


def test_kill_9_at_any_moment_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    arguments = [
        "data=sample", "embedder=hashing", f"run_root={tmp_path}/killed", "concurrency=2", "data.limit_questions=20"
    ]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "scripts.run", *arguments], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            logs = list((tmp_path / "killed").glob("*/events.jsonl"))
            if logs and sum(event["kind"] == "answer" for event in read_lines(logs[0])) >= 5:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait(30)
    (folder,) = (path.parent for path in (tmp_path / "killed").glob("*/events.jsonl"))
    done = final_records(folder / "events.jsonl", keep_errors=True)
    assert 5 <= len(done) < 40, "killed in the middle"
    common = ("data=sample", "data.name=sample", "data.path=null", "data.limit_questions=20")
    made = run(tmp_path, f"run_root={tmp_path}/killed", *common)
    whole = run(tmp_path, f"run_root={tmp_path}/whole", *common)
    assert made.folder == folder
    assert {
        id: record for id, record in final_records(folder / "events.jsonl", keep_errors=True).items() if id in done
    } == done
    assert (folder / "answers.jsonl").read_bytes() == (whole.folder / "answers.jsonl").read_bytes()
    assert lasting(made.summary) == lasting(whole.summary)


def test_a_torn_line_in_the_log_costs_one_question(tmp_path: Path, calls: Counter[str]) -> None:
    whole = run(tmp_path)
    before = (whole.folder / "answers.jsonl").read_bytes()
    log = whole.folder / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"kind":"answer"' in line)
    log.write_bytes(b"".join(lines[: last + 1])[:-30])
    (whole.folder / "summary.json").unlink()
    calls.clear()
    again = run(tmp_path)
    assert (calls["ingest"], calls["answer"]) == (0, 1)
    assert (again.folder / "answers.jsonl").read_bytes() == before
    assert lasting(again.summary) == lasting(whole.summary)


# -- shared memories ---------------------------------------------------------------------------------------------

READING_SIDE = ["memfly_wo_topic", "memfly_wo_keyword", "memfly_wo_neighbor", "memfly_wo_ier"]
BUILDING_SIDE = ["memfly_wo_update", "memfly_wo_denoise", "memfly_wo_link", "memfly_wo_merge"]


def test_reading_side_ablations_reuse_the_memory_and_building_side_ones_do_not(
    tmp_path: Path, calls: Counter[str]
) -> None:
    full = run(tmp_path)
    memories = set((tmp_path / "runs" / "memory").iterdir())
    assert len(memories) == 2
    folders = {full.folder}
    for method in READING_SIDE:
        calls.clear()
        result = run(tmp_path, f"method={method}")
        assert not calls.keys() & {"ingest", "gate", "merge"}, method
        assert calls["answer"] == 10
        assert "ingest" not in result.summary["calls"]
        assert result.summary["memory"]["reused"] == 2
        assert result.summary["memory"]["build_calls"]["ingest"] == talks.N_TURNS
        assert len(events(result.folder, "memory_reused")) == 2
        folders.add(result.folder)
    assert set((tmp_path / "runs" / "memory").iterdir()) == memories
    for method in BUILDING_SIDE:
        calls.clear()
        result = run(tmp_path, f"method={method}")
        assert calls["ingest"] == talks.N_TURNS, method
        folders.add(result.folder)
    assert len(folders) == 9
    assert len(set((tmp_path / "runs" / "memory").iterdir())) == 10


def test_a_damaged_memory_is_built_again(tmp_path: Path, calls: Counter[str]) -> None:
    full = run(tmp_path)
    damaged = tmp_path / "runs" / "memory"
    for folder in damaged.iterdir():
        if "ada-ben" in (folder / "info.json").read_text():
            whole = (folder / "memory.json").read_bytes()
            (folder / "memory.json").write_bytes(whole[:-9])
            hurt = folder / "memory.json"
    calls.clear()
    result = run(tmp_path, "method=memfly_wo_ier")
    assert calls["ingest"] == 14
    assert hurt.read_bytes() == whole
    assert result.summary["memory"]["reused"] == 1
    assert full.summary["memory"]["notes"] == result.summary["memory"]["notes"]


def test_a_system_sees_one_conversation_and_no_gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text of one conversation, no gold answer and no trap reaches the other's building calls."""
    seen: dict[str, set[str]] = {"Ada": set(), "Cleo": set()}

    def look(call: Call) -> None:
        text = "\n".join(content for _, content in call.messages)
        if call.task.name in ("ingest", "gate", "merge"):
            assert "harbour museum in Porto" not in text, "a gold answer that is no one's words"
            for name in seen:
                if f"Speaker: {name}" in text:
                    seen[name].add(text)
        assert "categor" not in text.lower()

    on_call(monkeypatch, look)
    run(tmp_path)
    assert seen["Ada"]
    assert not any("Porto" in text for text in seen["Ada"])
    assert not any("Miso" in text for text in seen["Cleo"])


# -- failures ----------------------------------------------------------------------------------------------------


def test_a_failed_answer_is_an_error_record_and_asked_again_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: Call) -> None:
        if call.task.name == "answer" and "Where does Cleo work?" in call.messages[1][1]:
            raise BackendError("400: too long", transient=False)

    with monkeypatch.context() as patch:
        on_call(patch, fail)
        result = run(tmp_path)
    summary = result.summary
    assert (summary["n_questions"], summary["n_error"], summary["n_unscored"]) == (10, 1, 0)
    assert summary["errors"] == {"answer: BackendError": 1}
    assert summary["categories"]["single_hop"]["n_error"] == 1
    (failed,) = [a for a in answers(result) if a["state"] == "error"]
    assert (failed["id"], failed["prediction"]) == ("cleo-dev#0", None)
    assert failed["error"] == {"kind": "BackendError", "stage": "answer", "message": "400: too long"}
    assert failed["shown_turns"], "what had been retrieved is kept"
    assert "errors 1 (answer: BackendError 1)" in (result.folder / "table.md").read_text()
    seen: list[str] = []
    on_call(monkeypatch, lambda call: seen.append(call.task.name))
    again = run(tmp_path)
    assert seen.count("answer") == 1
    assert again.summary["n_error"] == 0
    clean = run(tmp_path / "clean")
    assert (again.folder / "answers.jsonl").read_bytes() == (clean.folder / "answers.jsonl").read_bytes()
    assert lasting(again.summary) == lasting(clean.summary)


def test_a_failed_build_fails_its_questions_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(call: Call) -> None:
        if call.task.name == "ingest" and "Rosa" in call.messages[1][1]:
            raise BackendError("500", transient=False)

    on_call(monkeypatch, fail)
    result = run(tmp_path)
    states = Counter((a["conversation"], a["state"]) for a in answers(result))
    assert states == {("ada-ben", "error"): 6, ("cleo-dev", "answered"): 4}
    assert result.summary["errors"] == {"build: BackendError": 6}
    assert len(list((tmp_path / "runs" / "memory").iterdir())) == 1
    assert result.summary["process"]["role_totals"]["ingest"]["failed_calls"] >= 1, "failed calls are counted"
    assert not caplog.records, "and nothing is left for the event loop to complain about"


def test_an_unusable_reading_is_a_recall_error_only_where_the_system_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(call: Call) -> None:
        if call.task.name == "question":
            raise BackendError("no", transient=False)

    on_call(monkeypatch, fail)
    result = run(tmp_path)
    assert result.summary["errors"] == {"recall: BackendError": 10}
    assert result.summary["evidence"]["n"] == 0
    assert result.summary["average"]["f1"] == 0.0


def test_one_process_per_run(tmp_path: Path) -> None:
    made = Runner(config(tmp_path), Silent())
    made.folder.mkdir(parents=True)
    with (made.folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(
            ConfigError, match="another process is working on this run; wait for it, or change the config"
        ):
            run(tmp_path)
    assert run(tmp_path).summary["n_error"] == 0


def test_a_run_root_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        ConfigError, match=r"^run_root: cannot write to .*/file/runs: .*; free space or choose another$"
    ):
        run(tmp_path, f"run_root={tmp_path}/file/runs")
    with pytest.raises(ConfigError, match=r"^cache\.dir: cannot write to "):
        run(tmp_path, f"cache.dir={tmp_path}/file")
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(ConfigError, match="Permission denied"):
            run(tmp_path, f"run_root={tmp_path}/closed")


def test_wrong_options_leave_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method\.tau_m: 3\.0 is outside"):
        run(tmp_path, "method.tau_m=3.0")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["cache"]


def test_data_without_questions_is_refused(tmp_path: Path) -> None:
    sample = talks.samples()[0] | {"qa": []}
    talks.write(tmp_path, [sample])
    with pytest.raises(DataError, match="has no questions in the conversations chosen"):
        run(tmp_path)


def test_part_of_the_data_is_a_run_of_its_own(tmp_path: Path, calls: Counter[str]) -> None:
    full = run(tmp_path)
    calls.clear()
    part = run(tmp_path, "data.conversations=[cleo-dev]", "data.limit_questions=2")
    assert part.folder != full.folder
    assert [a["id"] for a in answers(part)] == ["cleo-dev#0", "cleo-dev#1"]
    assert calls["ingest"] == 0, "the conversation's memory is the same"
    assert [a for a in answers(full) if a["id"] in ("cleo-dev#0", "cleo-dev#1")] == answers(part)


def test_the_token_budget_is_kept_and_does_not_touch_the_memory(tmp_path: Path, calls: Counter[str]) -> None:
    run(tmp_path)
    calls.clear()
    cut = run(tmp_path, "answer.token_budget=40")
    assert calls["ingest"] == 0
    assert 0 < max(a["evidence_tokens"] for a in answers(cut)) <= 42


def test_an_embedder_that_fails_is_the_user_s_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Embedder, texts: Any) -> Any:
        raise ConfigError("embedder.path: no folder")

    monkeypatch.setattr(Embedder, "embed", broken)
    with pytest.raises(ConfigError, match=r"^embedder\.path: no folder$"):
        run(tmp_path)


def test_the_fallback_counts_of_a_bad_backbone_reach_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LLM.run

    async def poor(self: LLM, task: Task[Any, Any], value: Any, **more: Any) -> Any:
        if task.name == "gate" and len(value.context) % 2:
            from memfly.errors import ParseError

            raise ParseError("no")
        return await real(self, task, value, **more)

    monkeypatch.setattr(LLM, "run", poor)
    result = run(tmp_path)
    assert result.summary["memory"]["gate_fallback"] == len(events(result.folder, "gate_fallback")) > 0


def test_a_system_s_own_answer_is_taken_only_where_the_question_is_the_same_for_all(tmp_path: Path) -> None:
    """Under a token budget, and for a choice of two options, MemGPT's evidence goes to the answerer all others have."""
    own = answers(run(tmp_path, "method=memgpt"))
    assert {a["native"] for a in own if a["category"] != 5} == {True}
    assert all((a["style"] == "native") == a["native"] == (a["options"] == []) for a in own)
    assert all(a["prediction"] in a["options"] for a in own if a["category"] == 5)
    shared = answers(run(tmp_path, "method=memgpt", "answer.native=false"))
    assert not any(a["native"] for a in shared)
    cut = run(tmp_path, "method=memgpt", "answer.token_budget=30")
    assert not any(a["native"] or a["evidence_tokens"] > 32 for a in answers(cut))
    assert cut.summary["calls"]["answer"] == len(own)
    assert all(set(a["ranked_turns"]) <= set(a["shown_turns"]) for a in answers(cut))
