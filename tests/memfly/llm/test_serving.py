"""The backend as a run gets it: several servers of which one fails, and a server of our own that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, ConfigError
from memfly.llm import vllm_server
from memfly.llm.client import LLM
from memfly.llm.config import llm_config
from memfly.llm.ledger import scope
from memfly.llm.serving import Started
from memfly.llm.stack import build_llm
from memfly.llm.vllm_server import VLLMServer
from memfly.tasks.ingest import INGEST, IngestInput
from tests.memfly.llm.test_vllm_server import FAKE
from tests.support.calls import Inner, toy_call, transient
from tests.support.fake_openai import FakeOpenAI


def stack(folder: Path, *servers: FakeOpenAI, **data: Any) -> LLM:
    urls = {"base_urls": [server.url for server in servers]} if servers else {}
    plain = {"kind": "openai", "model": "fake-model", "retry": {"base_s": 0.001, "tries": 6}, "cache": "off"}
    return build_llm(llm_config({**plain, **urls, **data}), embedder=Embedder(Hashing()), cache_dir=folder, seed=1)


async def ask(llm: LLM, conversation: str, text: str) -> None:
    with scope(conversation, text):
        assert (await llm.run(INGEST, IngestInput("1 May", "Ann", text))).context


@pytest.mark.parametrize("trouble", ["500", "not_json", "no_choices", "drop", "404", "401"])
async def test_a_server_that_always_fails_is_left_for_a_well_one(tmp_path: Path, trouble: str) -> None:
    """It passes the probe and every health check, as a web server with a broken engine behind it does."""
    with FakeOpenAI() as good, FakeOpenAI(script=lambda _n, _b: trouble) as bad:
        llm = stack(tmp_path, bad, good)
        for number in range(20):
            await ask(llm, f"c{number % 4}", f"text {number}")
        await llm.aclose()
    assert len(good.requests) == 20
    assert len(bad.requests) <= 4


async def test_a_server_that_is_well_again_is_used_again(tmp_path: Path) -> None:
    broken = True
    with FakeOpenAI() as good, FakeOpenAI(script=lambda _n, _b: "500" if broken else "json") as bad:
        llm = stack(tmp_path, bad, good)
        await ask(llm, "c0", "one")
        servers = (await llm.startup.ready()).servers  # type: ignore[union-attr, attr-defined]
        assert (len(bad.requests), len(good.requests)) == (2, 1)
        broken = False
        servers.servers[0].rest_until = 0.0
        for number in range(6):
            await ask(llm, f"d{number}", "two")
        await llm.aclose()
    assert len(bad.requests) > 4


async def test_a_refused_health_check_does_not_end_the_run(tmp_path: Path) -> None:
    with FakeOpenAI() as good, FakeOpenAI(script=lambda _n, _b: "drop") as bad:
        llm = stack(tmp_path, bad, good)
        await ask(llm, "c0", "one")
        servers = (await llm.startup.ready()).servers  # type: ignore[union-attr, attr-defined]
        bad.needs_key = "x"  # what a gateway answers while the server behind it is away
        for number in range(5):
            servers.servers[0].rest_until = 0.0
            await ask(llm, f"d{number}", "two")
        assert len(good.requests) == 6
        good.needs_key = "x"
        with pytest.raises(ConfigError, match="check the key"):  # nobody is left
            await ask(llm, "c0", "three")
        await llm.aclose()


async def test_a_passing_refusal_at_the_start_is_waited_out(tmp_path: Path) -> None:
    with FakeOpenAI(script=["429"] * 5, script_probe=True) as server:
        llm = stack(tmp_path, server)
        await ask(llm, "c", "one")
        assert (await llm.start())["probe"]["servers"][0]["tries"] == 6
        await llm.aclose()
    with FakeOpenAI(script=["500"] * 6, script_probe=True) as server:
        llm = stack(tmp_path, server)
        with pytest.raises(ConfigError, match="something broke"):
            await ask(llm, "c", "one")
        await ask(llm, "c", "two")  # the server is well again, and nothing else was remembered
        await llm.aclose()


async def test_a_server_of_our_own_that_dies_ends_the_run_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "DEFAULT_PORT", vllm_server._free_port())
    monkeypatch.setenv("FAKE_VLLM_PID", str(tmp_path / "pid"))
    llm = stack(tmp_path, serve="auto", serve_executable=FAKE, serve_timeout_s=60.0, retry={"tries": 1})
    await ask(llm, "c", "one")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    for number in range(2):
        with pytest.raises(ConfigError) as caught:
            await ask(llm, "c", f"two {number}")
        message = str(caught.value)
        assert "the server ended with code 9; log " in message
        assert "starting fake-model" in message
        assert message.endswith("start the same run again, it continues where it stopped")
        assert "\n" not in message
    await llm.aclose()


async def test_a_lost_connection_to_a_server_that_lives_is_only_that() -> None:
    backend = Started(Inner([transient("connection")]), VLLMServer("http://127.0.0.1:1/v1"))
    with pytest.raises(BackendError, match="connection trouble"):
        await backend.complete(toy_call())
