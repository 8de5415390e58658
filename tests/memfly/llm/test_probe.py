"""The start-up probe: what it records, and one clear line when a server cannot do what the configuration asks."""

from __future__ import annotations

from typing import Any

import pytest

from memfly.errors import ConfigError
from memfly.llm import probe as module
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer
from memfly.llm.probe import probe
from tests.support.fake_openai import FakeOpenAI, Script


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", (0.0, 0.0, 0.0))


async def probed(server: FakeOpenAI, **config: Any) -> dict[str, Any]:
    backend = OpenAIServer(OpenAIConfig(**{"model": "fake-model", "base_url": server.url, "timeout_s": 2.0, **config}))
    try:
        return await probe(backend)
    finally:
        await backend.aclose()


@pytest.mark.parametrize("structured", ["json_schema", "guided", "json_object", "plain"])
@pytest.mark.parametrize("thinking", [None, "on", "off"])
async def test_a_server_that_does_all_is_recorded(structured: str, thinking: str | None) -> None:
    with FakeOpenAI() as server:
        found = await probed(server, structured=structured, thinking=thinking)
    assert found == {
        "model": "fake-model",
        "model_listed": 1,
        "model_reported": "fake-model",
        "structured": structured,
        "schema_followed": True,
        "thinking": thinking,
        "reasoned": thinking == "on",
        "finish": "stop",
        "usage_reported": True,
    }


def always(kind: str) -> Script:
    return lambda number, body: kind


@pytest.mark.parametrize(
    ("server", "config", "text"),
    [
        ({"models": ["another"]}, {}, r"llm\.model: .* does not have fake-model; it has another"),
        ({"script": always("prose")}, {"structured": "json_schema"}, r"json_schema: the server ignores the schema"),
        ({"script": always("wrong_schema")}, {"structured": "guided"}, r"guided: the server ignores the schema"),
        ({"ignores_thinking": True}, {"thinking": "off"}, r"llm\.thinking=off: the model reasons all the same"),
        ({"script": always("fenced")}, {"thinking": "on"}, r"llm\.thinking=on: the model gave no reasoning"),
        ({"script": always("unclosed")}, {"thinking": "on"}, r"did not finish its reasoning"),
        ({"script": always("400")}, {}, r"failed the start-up probe: .*400"),
        ({"script": always("500")}, {}, r"failed the start-up probe: .*500"),
        ({"needs_key": "x"}, {}, r"check the key"),
    ],
)
async def test_what_a_server_cannot_do_is_one_clear_line(
    server: dict[str, Any], config: dict[str, Any], text: str
) -> None:
    with FakeOpenAI(script_probe=True, **server) as fake, pytest.raises(ConfigError, match=text) as caught:
        await probed(fake, **config)
    assert "\n" not in str(caught.value)


async def test_schemas_that_are_not_asked_for_are_not_demanded() -> None:
    with FakeOpenAI(script_probe=True, script=always("prose")) as server:
        found = await probed(server, structured="plain")
    assert found["schema_followed"] is False


async def test_passing_trouble_is_waited_out() -> None:
    with FakeOpenAI(script_probe=True, script=["429", "500", "drop"]) as server:
        assert (await probed(server))["schema_followed"]


async def test_nobody_there() -> None:
    with FakeOpenAI() as server:
        pass
    with pytest.raises(ConfigError, match=r"llm\.base_url: cannot reach http://127\.0\.0\.1:\d+/v1.*start the server"):
        await probed(server)


async def test_one_of_several_servers_may_be_down() -> None:
    with FakeOpenAI() as gone:
        pass
    with FakeOpenAI() as server:
        found = await probed(server, base_url=None, base_urls=[gone.url, server.url])
    assert found["model_listed"] == 1
