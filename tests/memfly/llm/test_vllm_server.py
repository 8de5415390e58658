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
from tests.support.processes import hears_ctrl_c

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
    assert " --enable-prompt-tokens-details " in record["command"]
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
        assert vllm_server._look(running.url, settings(), 5.0) == ("up", ("Qwen/Qwen3-8B",))


@pytest.mark.parametrize("changes", [{"revision": "0123abcd"}, {"serve_args": ["--quantization", "awq"]}])
async def test_a_running_server_whose_flags_cannot_be_checked_is_not_used(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    with FakeOpenAI(models=["Qwen/Qwen3-8B"]) as running:
        server = await find_or_start(settings(base_url=running.url, **changes), tmp_path)
        assert server.record()["reused"] is False
        await asyncio.to_thread(server.stop)


async def test_a_busy_running_server_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "ANSWER_S", (0.2, 0.4, 30.0))
    with FakeOpenAI(models=["Qwen/Qwen3-8B"], health_s=1.0) as running:
        server = await find_or_start(settings(base_url=running.url), tmp_path)
    assert server.record() == {"url": running.url, "reused": True}


async def test_a_server_that_wants_a_key_gets_the_configured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "server-key-123456")
    with FakeOpenAI(models=["Qwen/Qwen3-8B"], needs_key="server-key-123456") as running:
        server = await find_or_start(settings(base_url=running.url, api_key_env="VLLM_API_KEY"), tmp_path)
        assert server.record()["reused"] is True
        with pytest.raises(ConfigError, match=rf"{running.url} wants a key; name .* in llm\.api_key_env"):
            await find_or_start(settings(base_url=running.url), tmp_path)
        monkeypatch.setenv("ANOTHER", "x" * 12)
        with pytest.raises(ConfigError, match=r"refuses the key in ANOTHER"):
            await find_or_start(settings(base_url=running.url, api_key_env="ANOTHER"), tmp_path)
    server = await start(settings(api_key_env="VLLM_API_KEY"), tmp_path)  # it inherits the key, and asks for it
    await asyncio.to_thread(server.stop)
    with pytest.raises(ConfigError, match=r"wants a key; name .* in llm\.api_key_env"):
        await start(settings(), tmp_path)


async def test_what_is_no_model_server_is_not_used(tmp_path: Path) -> None:
    async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/v1"
        seen = await asyncio.to_thread(vllm_server._look, url, settings(), 5.0)
    assert seen == ("absent", ())


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


CAUSE = (
    "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which "
    "is larger than the available KV cache memory (3.1 GiB). Try increasing gpu_memory_utilization or decreasing max_model_len."
)


async def test_the_cause_is_shown_when_it_is_far_above_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shape of vLLM's log: the engine fails, then the server in front of it with a long traceback of its own."""
    frames = [
        f'(APIServer pid=1)   File "frame_{i}.py", line {i}, in run\n(APIServer pid=1)     run()' for i in range(15)
    ]
    engine = [f'(EngineCore pid=2) ERROR 11-30 core.py:1]   File "engine_{i}.py", line {i}' for i in range(9)]
    log = [
        "INFO 11-30 Capturing CUDA graphs",
        *engine,
        f"(EngineCore pid=2) ERROR 11-30 core.py:1] {CAUSE}",
        f"(EngineCore pid=2) {CAUSE}",
        "[rank0]:[W1130] Warning: destroy_process_group() was not called before program exit",
        "(APIServer pid=1) Traceback (most recent call last):",
        *frames,
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    monkeypatch.setenv("FAKE_VLLM_FAIL", "\n".join(log))
    with pytest.raises(ConfigError) as caught:
        await start(settings(), tmp_path)
    message = str(caught.value)
    assert f"; errors: {CAUSE}; log " in message  # once, though two lines of the log say it
    assert message.endswith("See root cause above.")


async def test_an_error_without_an_exception_is_shown_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM_FAIL", "ERROR 11-30 no GPU was found\n" + "bye\n" * 20)
    with pytest.raises(ConfigError, match=r"; errors: ERROR 11-30 no GPU was found; log .* ends: bye \| bye"):
        await start(settings(), tmp_path)


async def test_secrets_of_the_command_line_are_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ["hidden-pass-xyz", "second-pass-xyz", "not-key-like", "under-score-xyz"]
    flags = [
        "--api-key",
        *secrets[:2],
        f"--hf-token={secrets[2]}",
        "--max-num-batched-tokens",
        "77",
        "--my_token",
        secrets[3],
    ]
    monkeypatch.setenv("SRV", "hidden-pass-xyz")
    config = settings(serve_args=[*flags[:2], *flags[3:]], api_key_env="SRV")
    server = await start(config, tmp_path)
    record, log, says = server.record(), Path(server.record()["log"]), server.log_says()
    assert record["command"].endswith("--api-key *** --hf-token=*** --max-num-batched-tokens 77 --my_token ***")
    assert log.read_text().splitlines()[0] == f"$ {record['command']}"
    assert "'--hf-token=***', '--max-num-batched-tokens', '77'" in says  # the server itself prints its arguments
    await asyncio.to_thread(server.stop)
    monkeypatch.setenv("FAKE_VLLM_FAIL", f"Error: cannot use {secrets[2]}")
    with pytest.raises(ConfigError) as caught:
        await start(config, tmp_path)
    shown = vllm_server.shown(command_line(settings(serve_args=flags), 1))
    assert "--api-key *** *** --hf-token" in shown
    assert "77" in shown
    for text in (str(record), says, str(caught.value), shown):
        assert not [secret for secret in secrets if secret in text], text


@pytest.mark.parametrize(
    ("changes", "parser"),
    [
        ({}, []),
        ({"thinking": "off"}, []),
        ({"thinking": "on"}, ["--reasoning-parser", "qwen3"]),
        ({"thinking": "on", "structured": "plain"}, []),
        ({"thinking": "on", "serve_args": ["--reasoning-parser", "mine"]}, ["--reasoning-parser", "mine"]),
        ({"thinking": "on", "serve_args": ["--reasoning_parser=mine"]}, ["--reasoning_parser=mine"]),
    ],
)
def test_thinking_gets_the_parser_it_needs_before_the_model_is_loaded(
    changes: dict[str, Any], parser: list[str]
) -> None:
    command = command_line(settings(**changes), 1)
    assert command[command.index("--enable-prompt-tokens-details") + 1 :] == parser


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": "org/other", "thinking": "on"}, r"needs llm\.serve_args=\[--reasoning-parser, NAME\]"),
        ({"serve_args": ["--served-model-name", "other", "--seed", "1"]}, r"--served-model-name other must contain"),
        ({"serve_args": ["--served-model-name=other"]}, r"--served-model-name other must contain"),
    ],
)
def test_flags_that_cannot_work_are_reported_before_the_model_is_loaded(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        command_line(settings(**changes), 1)


def test_several_served_names_are_fine_and_numbers_are_words() -> None:
    flags = ["--served-model-name", "short", "Qwen/Qwen3-8B", "--tensor-parallel-size", 2]
    config = llm_config({"kind": "openai", "model": "Qwen/Qwen3-8B", "serve_executable": FAKE, "serve_args": flags})
    assert isinstance(config, OpenAIConfig)
    assert command_line(config, 1)[-5:] == [str(flag) for flag in flags]


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


async def test_another_model_behind_the_started_server_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM_SERVES", "other")
    with pytest.raises(ConfigError, match=r"serves other instead of Qwen/Qwen3-8B"):
        await start(settings(), tmp_path)


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
    assert found["probe"]["servers"][0]["reasoned"] is (thinking == "on")
    assert ("--reasoning-parser qwen3" in found["server"]["command"]) is (thinking == "on")
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
        [sys.executable, "-c", PARENT, FAKE, str(tmp_path)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        preexec_fn=hears_ctrl_c,
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


async def test_stopping_is_prompt_and_complete_while_a_forked_child_holds_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PID", "WORKER"):
        monkeypatch.setenv(f"FAKE_VLLM_{name}", str(tmp_path / name))
    server = await start(settings(), tmp_path)
    pid, worker = (int((tmp_path / name).read_text()) for name in ("PID", "WORKER"))
    child = os.fork()
    if child == 0:
        server.stop()  # as an exit handler would: the server is not the child's
        time.sleep(60)
        os._exit(0)
    try:
        await asyncio.sleep(0.5)
        assert server.exit_code is None
        began = time.monotonic()
        await asyncio.to_thread(server.stop)
        assert time.monotonic() - began < 5
        assert not alive(pid)
        assert gone_soon(worker, 2)  # it ignores SIGTERM
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


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
