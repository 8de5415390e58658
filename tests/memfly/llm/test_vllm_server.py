"""A server started on demand: found, started, logged, and gone afterwards whatever happens to its parent."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.errors import ConfigError
from memfly.llm import vllm_server, watchdog
from memfly.llm.config import OpenAIConfig, llm_config
from memfly.llm.stack import build_llm
from memfly.llm.vllm_server import command_line, find_or_start, start
from memfly.tasks.ingest import INGEST, IngestInput
from tests.support.fake_openai import FakeOpenAI

ROOT = Path(__file__).resolve().parents[3]
FAKE = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'tests/support/fake_vllm.py'))}"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of these tests may meet a real server on vLLM's own port."""
    monkeypatch.setattr(vllm_server, "DEFAULT_PORT", vllm_server._free_port())


def settings(**changes: Any) -> OpenAIConfig:
    plain = {"model": "Qwen/Qwen3-8B", "serve": "auto", "serve_executable": FAKE, "serve_timeout_s": 60.0}
    return OpenAIConfig.model_validate({**plain, **changes})


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone_soon(pid: int, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)


async def pid_in(file: Path) -> int:
    while not (file.exists() and file.read_text()):
        await asyncio.sleep(0.05)
    return int(file.read_text())


async def test_starts_on_loopback_answers_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_PID", str(tmp_path / "pid"))
    config = settings(serve_args=["--tensor-parallel-size", "2", "--data-parallel-size", "4"], revision="abc")
    server = await find_or_start(config, tmp_path / "serve")
    pid = await pid_in(tmp_path / "pid")
    record = server.record()
    assert record["reused"] is False
    assert "serve Qwen/Qwen3-8B --host 127.0.0.1 --port" in record["command"]
    assert record["command"].endswith("--revision abc --tensor-parallel-size 2 --data-parallel-size 4")
    assert server.url.startswith("http://127.0.0.1:")
    assert "starting Qwen/Qwen3-8B" in Path(record["log"]).read_text()
    assert alive(pid)
    await asyncio.to_thread(server.stop)
    assert not alive(pid)
    server.stop()  # again does no harm


async def test_a_running_server_is_reused_and_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAI(models=["Qwen/Qwen3-8B"]) as running:
        monkeypatch.setattr(vllm_server, "DEFAULT_PORT", running.port)
        for config in (settings(base_url=running.url), settings()):
            server = await find_or_start(config, tmp_path)
            assert server.record() == {"url": running.url, "reused": True}
            server.stop()
        assert vllm_server._models(running.url) == ["Qwen/Qwen3-8B"]


async def test_a_running_server_of_another_model_is_not_used(tmp_path: Path) -> None:
    with FakeOpenAI(models=["another"]) as running:
        server = await find_or_start(settings(base_url=running.url), tmp_path)
        assert server.url != running.url
        await asyncio.to_thread(server.stop)


async def test_failure_shows_command_and_end_of_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_FAIL", "CUDA out of memory\nTried to allocate 20 GiB")
    with pytest.raises(ConfigError) as caught:
        await start(settings(), tmp_path)
    message = str(caught.value)
    for part in (
        "serve Qwen/Qwen3-8B",
        "ended with code 1",
        "CUDA out of memory | Tried to allocate 20 GiB",
        str(tmp_path),
    ):
        assert part in message
    assert "\n" not in message


async def test_a_server_that_never_answers_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_HANG", "1")
    monkeypatch.setenv("FAKE_VLLM_PID", str(tmp_path / "pid"))
    with pytest.raises(ConfigError, match=r"did not answer in 3 s"):
        await start(settings(serve_timeout_s=3), tmp_path)
    assert not alive(await pid_in(tmp_path / "pid"))


async def test_cancelling_the_wait_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_HANG", "1")
    monkeypatch.setenv("FAKE_VLLM_PID", str(tmp_path / "pid"))
    task = asyncio.create_task(start(settings(), tmp_path))
    pid = await pid_in(tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone_soon(pid)


def test_a_missing_executable_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"no executable 'no-such-vllm'; install vllm"):
        command_line(settings(serve_executable="no-such-vllm"), 1)


async def test_another_model_behind_the_started_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"serves other instead of Qwen/Qwen3-8B"):
        await start(settings(serve_args=["--served-model-name", "other"]), tmp_path)


@pytest.mark.parametrize("thinking", ["on", "off"])
async def test_the_whole_stack_starts_uses_and_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thinking: str
) -> None:
    monkeypatch.setenv("FAKE_VLLM_PID", str(tmp_path / "pid"))
    config = {**settings(thinking=thinking, structured="guided").model_dump(), "kind": "openai"}
    llm = build_llm(llm_config(config), embedder=Embedder(Hashing()), cache_dir=tmp_path / "cache", seed=1)
    output = await llm.run(INGEST, IngestInput("1 May", "Ann", "I saw a bird"))
    assert output.context
    found = await llm.start()
    assert found["probe"]["reasoned"] is (thinking == "on")
    assert found["server"]["reused"] is False
    pid = await pid_in(tmp_path / "pid")
    await llm.aclose()
    assert not alive(pid)

    again = build_llm(llm_config(config), embedder=Embedder(Hashing()), cache_dir=tmp_path / "cache", seed=1)
    (tmp_path / "pid").unlink()
    assert await again.run(INGEST, IngestInput("1 May", "Ann", "I saw a bird")) == output
    await again.aclose()
    assert not (tmp_path / "pid").exists()  # all replies were in the cache: no server was started


PARENT = """
import asyncio, sys
from pathlib import Path
from memfly.llm.config import OpenAIConfig
from memfly.llm.vllm_server import start
async def main():
    config = OpenAIConfig(model="m", serve="auto", serve_executable=sys.argv[1])
    server = await start(config, Path(sys.argv[2]))
    print("ready", flush=True)
    await asyncio.sleep(3600)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_the_server_and_its_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    env = {**os.environ, "FAKE_VLLM_PID": str(tmp_path / "pid"), "FAKE_VLLM_WORKER": str(tmp_path / "worker")}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, FAKE, str(tmp_path)], cwd=ROOT, env=env, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    server, worker = (int((tmp_path / name).read_text()) for name in ("pid", "worker"))
    assert alive(server)
    assert alive(worker)
    parent.send_signal(number)
    parent.wait(40)
    parent.stdout.close()
    assert gone_soon(server)
    assert gone_soon(worker)  # it ignores SIGTERM, as a stuck GPU worker does


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_watchdog_takes_the_server_along(tmp_path: Path) -> None:
    env = {**os.environ, "FAKE_VLLM_PID": str(tmp_path / "pid"), "FAKE_VLLM_HANG": "1"}
    command = [*shlex.split(FAKE), "serve", "m", "--host", "127.0.0.1"]
    dog = subprocess.Popen(
        [sys.executable, "-P", watchdog.__file__, str(os.getpid()), str(tmp_path / "log"), *command],
        env=env, stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    server = asyncio.run(pid_in(tmp_path / "pid"))
    dog.kill()
    dog.communicate()
    assert gone_soon(server)
