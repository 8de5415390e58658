"""The start-up probe: what it records, and one clear line when a server cannot do what the configuration asks."""

from __future__ import annotations

from typing import Any

import pytest

from memfly.errors import BackendError, ConfigError
from memfly.llm import probe as module
from memfly.llm.config import OpenAIConfig
from memfly.llm.probe import probe
from tests.support.fake_openai import FakeOpenAI, Script

QUICK = {"base_s": 0.001, "tries": 8}


async def probed(*servers: FakeOpenAI, **config: Any) -> dict[str, Any]:
    plain = {"model": "fake-model", "timeout_s": 2.0, "retry": QUICK, **config}
    _, found = await probe(OpenAIConfig.model_validate(plain), tuple(server.url for server in servers))
    return found


@pytest.mark.parametrize("structured", ["json_schema", "guided", "json_object", "plain"])
@pytest.mark.parametrize("thinking", [None, "on", "off"])
async def test_a_server_that_does_all_is_recorded(structured: str, thinking: str | None) -> None:
    with FakeOpenAI(reasoning_parser=True) as server:
        found = await probed(server, structured=structured, thinking=thinking)
    usage = found["servers"][0].pop("usage")
    assert usage["prompt_tokens"] > 10 < usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["estimated"] is False
    assert found == {
        "model": "fake-model",
        "structured": structured,
        "thinking": thinking,
        "servers": [
            {
                "url": server.url,
                "model_listed": True,
                "model_reported": "fake-model",
                "schema_followed": True,
                "reasoned": thinking == "on",
                "finish": "stop",
                "tries": 1,
            }
        ],
    }


async def test_thinking_in_tags_is_seen_where_no_schema_binds_the_reply() -> None:
    with FakeOpenAI() as server:
        assert (await probed(server, structured="plain", thinking="on"))["servers"][0]["reasoned"]


def always(kind: str) -> Script:
    return lambda number, body: kind


@pytest.mark.parametrize(
    ("server", "config", "text"),
    [
        ({"models": ["another"]}, {}, r"llm\.model: .* does not have fake-model; it has another"),
        (
            {"script": always("prose")},
            {"structured": "json_schema"},
            r"json_schema: the server at .* ignores the schema",
        ),
        ({"script": always("wrong_schema")}, {"structured": "guided"}, r"guided: the server at .* ignores the schema"),
        (
            {"ignores_thinking": True, "reasoning_parser": True},
            {"thinking": "off"},
            r"llm\.thinking=off: the model at .* reasons all the same",
        ),
        ({}, {"thinking": "on"}, r"llm\.thinking=on: the model at .* gave no reasoning; .*needs --reasoning-parser"),
        ({}, {"thinking": "on", "structured": "guided"}, r"llm\.thinking=on: .*needs --reasoning-parser"),
        ({"script": always("unclosed")}, {"thinking": "on"}, r"did not finish its reasoning"),
        ({"script": always("400")}, {}, r"failed the start-up probe: .*400"),
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
    assert found["servers"][0]["schema_followed"] is False


async def test_passing_trouble_is_waited_out_as_long_as_the_configuration_says() -> None:
    trouble = ["429", "500", "drop", "429", "500", "429"]
    with FakeOpenAI(script_probe=True, script=trouble) as server:
        assert (await probed(server))["servers"][0]["tries"] == 7
    with (
        FakeOpenAI(script_probe=True, script=always("500")) as server,
        pytest.raises(BackendError, match="500") as caught,
    ):
        await probed(server)
    assert len(server.requests) == QUICK["tries"]
    assert caught.value.transient
    assert str(caught.value).startswith("llm: the server failed the start-up probe: http://127.0.0.1")


async def test_nobody_there_is_told_after_a_few_tries() -> None:
    with FakeOpenAI() as server:
        pass
    with pytest.raises(BackendError, match=r"llm\.base_url: cannot reach http://127\.0\.0\.1:\d+/v1.*start the server"):
        await probed(server, retry={**QUICK, "tries": 10**9})


async def test_every_server_is_asked_and_the_line_names_the_one_at_fault() -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"script": always("prose"), "script_probe": True}, "ignores the schema"),
        ({"ignores_thinking": True, "reasoning_parser": True}, "reasons all the same"),
        ({"models": ["another"]}, "does not have fake-model"),
        ({"needs_key": "another-key"}, "check the key"),
    ]
    for fault, text in faults:
        with FakeOpenAI() as good, FakeOpenAI(**fault) as bad, pytest.raises(ConfigError, match=text) as caught:
            await probed(good, bad, structured="guided", thinking="off")
        assert bad.url in str(caught.value)
        assert good.url not in str(caught.value)


@pytest.mark.parametrize("trouble", ["drop", "500", "hang"])
async def test_a_server_that_cannot_be_reached_is_left_out_while_others_can(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_S", 1.0)
    with FakeOpenAI(script_probe=True, script=always(trouble)) as bad, FakeOpenAI() as server:
        config = OpenAIConfig.model_validate({"model": "fake-model", "timeout_s": 60, "retry": QUICK})
        urls, found = await probe(config, (bad.url, server.url))
    assert urls == (server.url,)
    assert [one["url"] for one in found["servers"]] == [server.url]
    assert list(found["left_out"]) == [bad.url]
