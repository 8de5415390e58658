"""`memfly serve`, `estimate` and `verify` as commands: what they print, their exit codes, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from eval.summary import ESTIMATE
from memfly.llm import vllm_server
from memfly.llm.vllm_server import _free_port
from scripts.cli import main
from tests.memfly.llm.test_vllm_server import FAKE, gone_soon
from tests.support.fake_openai import FakeOpenAI, from_schema
from tests.support.processes import hears_ctrl_c
from tests.support.runs import arguments, run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def serve(*words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scripts.cli", "serve", "qwen3-8b", f"llm.serve_executable={FAKE}", *words]
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
        env=os.environ | environment | {"PYTHONPATH": str(root)},
    )


def test_a_served_model_runs_until_ctrl_c_and_a_run_reuses_it(tmp_path: Path) -> None:
    port = _free_port()
    process = serve("--port", str(port), "--logs", str(tmp_path / "logs"), FAKE_VLLM_PID=str(tmp_path / "pid"))
    assert process.stdout is not None
    try:
        assert (
            f" serve Qwen/Qwen3-8B --host 127.0.0.1 --port {port} --enable-prompt-tokens-details"
            in process.stdout.readline()
        )
        line = process.stdout.readline()
        assert line.startswith(f"serving Qwen/Qwen3-8B at http://127.0.0.1:{port}/v1; log {tmp_path}/logs/")
        pid = int((tmp_path / "pid").read_text())
        words = ("llm=qwen3-8b", "llm.serve=none", f"llm.base_url=http://127.0.0.1:{port}/v1", "method=no_context")
        assert run(tmp_path, *words).summary["n_error"] == 0
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert err == "memfly: interrupted; run the same command again to continue\n"
    assert gone_soon(pid)


def test_a_run_whose_server_dies_ends_in_one_line_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vllm_server, "DEFAULT_PORT", _free_port())
    monkeypatch.setenv("FAKE_VLLM_DIES", "3")
    served = ("llm=qwen3-8b", "llm.serve=auto", f"llm.serve_executable={FAKE}", "method=no_context", "concurrency=1")
    words = arguments(tmp_path, *served)
    assert main(["run", *words]) == 2
    err = capsys.readouterr().err.splitlines()
    assert "the server ended with code 7; log " in err[-1]
    assert err[-1].endswith("start the same run again, it continues where it stopped")
    monkeypatch.setenv("FAKE_VLLM_DIES", "1000000")
    GlobalHydra.instance().clear()
    summary = run(tmp_path, *served).summary
    assert summary["n_error"] == 0
    assert summary["process"]["role_totals"]["answer"]["billed_calls"] == summary["n_questions"], "none is paid twice"


def test_a_server_that_does_not_start_or_ends_is_one_line(tmp_path: Path) -> None:
    port = str(_free_port())
    _, err = serve("--port", port, FAKE_VLLM_FAIL="CUDA out of memory").communicate(timeout=60)
    assert err.startswith("memfly: "), err
    assert "CUDA out of memory" in err
    assert err.count("\n") == 1
    process = serve("--port", port, FAKE_VLLM_PID=str(tmp_path / "pid"))
    assert process.stdout is not None
    while not process.stdout.readline().startswith("serving "):
        assert process.poll() is None
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("memfly: serve: the server ended with code 9; log ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["extractive"], "serve: llm=extractive is no served model; try qwen3-8b or qwen3-14b"),
        (["qwen3-9b"], "config: no llm called 'qwen3-9b'; did you mean qwen3-8b?"),
        (["qwen3-8b", "llm.serve_executable=no-such-program"], "no-such-program"),
    ],
)
def test_mistakes_of_serve_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1


def test_estimate_prints_and_keeps_its_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeOpenAI(answer=from_schema) as server:
        words = arguments(tmp_path, "llm=openai", "llm.model=m", f"llm.base_url={server.url}", "concurrency=4")
        assert main(["estimate", "--latency", "0.5", *words]) == 0
        assert server.requests == []
    out = capsys.readouterr().out
    assert "| **all** | " in out
    assert "- cost: none per token (no model, or a server of your own; llm.price sets a price)" in out
    assert "- time at 0.5 s a call, 4 in flight: " in out
    assert out.splitlines()[-1].startswith("kept for comparison with the run: ")
    assert len(list((tmp_path / "runs").glob(f"memfly-openai-*/{ESTIMATE}"))) == 1


def test_estimate_needs_no_key_and_takes_no_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *arguments(tmp_path, "llm=gpt-4o-mini", "method=no_context")]) == 0
    out = capsys.readouterr().out
    assert "- cost: $0.00 (prices of " in out
    assert "kept for comparison" not in out
    GlobalHydra.instance().clear()
    assert main(["estimate", *arguments(tmp_path, "method.tua_m=1")]) == 2
    assert "method.tua_m: unknown option; did you mean tau_m?" in capsys.readouterr().err


def test_verify_tells_a_sound_run_from_a_changed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path).folder
    assert main(["verify", str(folder)]) == 0
    assert "FAILED" not in capsys.readouterr().out
    answers = folder / "answers.jsonl"
    answers.write_text(answers.read_text(encoding="utf-8").replace('"state":"answered"', '"state":"error"', 1))
    assert main(["verify", str(folder)]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert main(["verify", str(tmp_path)]) == 2


def test_a_killed_serve_takes_its_server_along(tmp_path: Path) -> None:
    process = serve("--port", str(_free_port()), FAKE_VLLM_PID=str(tmp_path / "pid"))
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert gone_soon(int((tmp_path / "pid").read_text()))
