"""The openai backend against a real loopback server: every kind of reply and trouble, several servers, and no key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from memfly.embed import Embedder, Hashing
from memfly.errors import BackendError, BudgetExceeded, ConfigError, MemflyError, ParseError
from memfly.llm.base import Reply
from memfly.llm.client import LLM
from memfly.llm.config import OpenAIConfig, llm_config
from memfly.llm.ledger import Tally, scope
from memfly.llm.openai_server import OpenAIServer, retry_after
from memfly.llm.stack import build_llm
from memfly.tasks.gate import GATE, GateCandidate, GateInput
from memfly.tasks.ingest import INGEST, IngestInput
from tests.support.calls import AGENT, ToyInput, toy_call
from tests.support.fake_openai import FakeOpenAI

SECRET = "sk-planted-0123456789abcdef"


def backend(server: FakeOpenAI, **config: Any) -> OpenAIServer:
    return OpenAIServer(OpenAIConfig(model="fake-model", base_url=server.url, **config))


async def ask(server: FakeOpenAI, **config: Any) -> Reply:
    client = backend(server, **config)
    try:
        return await client.complete(toy_call("one two"))
    finally:
        await client.aclose()


def stack(server: FakeOpenAI, folder: Path, **config: Any) -> LLM:
    plain = {"kind": "openai", "model": "fake-model", "base_url": server.url, "retry": {"base_s": 0.001, "tries": 4}}
    return build_llm(llm_config({**plain, **config}), embedder=Embedder(Hashing()), cache_dir=folder, seed=1)


async def run(server: FakeOpenAI, folder: Path, **config: Any) -> tuple[Any, Tally]:
    """One gate call through the whole stack: (output or error, counts)."""
    llm = stack(server, folder, **config)
    value = GateInput("1 May", "Ann bought a car", ("car",), (GateCandidate(3, "1 May", "Ann likes cars", ("cars",)),))
    with scope("conv-1", "q") as tally:
        try:
            return await llm.run(GATE, value), tally
        except MemflyError as error:
            return error, tally
        finally:
            await llm.aclose()


@pytest.mark.parametrize(
    ("kind", "failures", "truncated", "retries"),
    [
        ("json", 0, 0, 0),
        ("fenced", 0, 0, 0),
        ("think", 0, 0, 0),
        ("reasoning_field", 0, 0, 0),
        ("wrong_field", 0, 0, 0),
        ("unknown_ids", 0, 0, 0),  # ids and scores are judged one by one by the gate, not by the parser
        ("out_of_range", 0, 0, 0),
        ("slow", 0, 0, 0),
        ("unclosed", 1, 1, 0),
        ("truncated", 1, 1, 0),
        ("prose", 1, 0, 0),
        ("empty", 1, 0, 0),
        ("null", 1, 0, 0),
        ("garbage", 1, 0, 0),
        ("wrong_schema", 1, 0, 0),
        ("429", 0, 0, 1),
        ("500", 0, 0, 1),
        ("drop", 0, 0, 1),
        ("hang", 0, 0, 1),
        ("no_choices", 0, 0, 1),
        ("not_json", 0, 0, 1),
    ],
)
async def test_each_kind_of_reply_is_counted_where_it_belongs(
    tmp_path: Path, kind: str, failures: int, truncated: int, retries: int
) -> None:
    with FakeOpenAI(script=[kind], slow_s=0.05) as server:
        output, tally = await run(server, tmp_path, timeout_s=0.5)
    assert not isinstance(output, Exception), output
    assert len(output.verdicts) == 1
    count = tally.role("gate")
    assert (count.parse_failures, count.truncated, count.retries) == (failures, truncated, retries)
    assert count.calls == count.billed_calls == 1 + failures
    assert count.failed_calls == 0
    assert server.kinds[kind] == 1


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("400", BackendError, "maximum context length"),
        ("401", ConfigError, "check the key"),
        ("404", ConfigError, "check llm.model"),
        ("quota", BudgetExceeded, "add credit"),
    ],
)
async def test_permanent_trouble_is_one_line_and_not_tried_again(
    tmp_path: Path, kind: str, error: type[Exception], text: str
) -> None:
    with FakeOpenAI(script=[kind] * 9) as server:
        output, tally = await run(server, tmp_path)
    assert isinstance(output, error)
    assert text in str(output)
    assert "\n" not in str(output)
    assert len(server.requests) == 1
    assert tally.role("gate").calls == 0


@pytest.mark.parametrize("kind", ["500", "drop", "not_json"])
async def test_trouble_without_end_is_a_counted_error_never_an_answer(tmp_path: Path, kind: str) -> None:
    with FakeOpenAI(script=[kind] * 99) as server:
        output, tally = await run(server, tmp_path)
    assert isinstance(output, BackendError)
    assert "gave up after 4 tries" in str(output)
    count = tally.role("gate")
    assert (count.failed_calls, count.retries, count.calls) == (1, 3, 0)


async def test_a_rate_limit_without_end_ends_with_the_deadline(tmp_path: Path) -> None:
    with FakeOpenAI(script=["429"] * 9999) as server:
        output, tally = await run(server, tmp_path, retry={"base_s": 0.001, "tries": 4, "deadline_s": 0.5})
    assert isinstance(output, BackendError)
    assert "gave up after" in str(output)
    assert tally.role("gate").failed_calls == 1
    assert tally.role("gate").retries > 4


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
        (429, {"code": "insufficient_quota"}, BudgetExceeded, None),
        (429, {"code": "billing_not_active"}, BudgetExceeded, None),
        (400, {"code": "billing_hard_limit_reached"}, BudgetExceeded, None),
        (400, {"code": None, "type": "insufficient_quota"}, BudgetExceeded, None),
        (402, {"message": "Insufficient credits"}, BudgetExceeded, None),
        (429, {"code": "rate_limit_exceeded", "message": "Request too large: Limit 3"}, BackendError, "context_length"),
        (429, {"code": "rate_limit_exceeded", "message": "Rate limit reached"}, BackendError, "rate_limit"),
        (503, {}, BackendError, "overloaded"),
        (504, {}, BackendError, "timeout"),
        (502, {}, BackendError, "server"),
        (401, {}, ConfigError, None),
    ],
)  # fmt: skip
def test_what_a_status_means(status: int, body: dict[str, Any], error: type[Exception], kind: str | None) -> None:
    server = OpenAIServer(OpenAIConfig(model="m", base_url="http://127.0.0.1:1/v1"))
    message = f"Error code: {status} - {body.get('message', 'no')}"
    found = server._status_error(server.urls[0], status, {}, body, message)
    assert type(found) is error
    assert "\n" not in str(found)
    if isinstance(found, BackendError):
        assert (found.kind, found.transient) == (kind, kind != "context_length")
    if isinstance(found, BudgetExceeded):
        assert "start the same run again" in str(found)


async def test_a_server_that_answers_500_gives_way_to_another(tmp_path: Path) -> None:
    with FakeOpenAI(script=["500"] * 99) as bad, FakeOpenAI() as good:
        llm = stack(bad, tmp_path, base_url=None, base_urls=[bad.url, good.url], retry={"base_s": 0.001, "tries": 6})
        for number in range(4):
            with scope(f"c{number}", "q"):
                await llm.run(INGEST, IngestInput("1 May", "Ann", f"hi {number}"))
        await llm.aclose()
    assert len(good.requests) == 4


async def test_a_health_check_that_is_refused_is_no_end_of_the_run() -> None:
    with FakeOpenAI(needs_key="x" * 20) as locked:
        client = backend(locked)
        assert not await client._healthy(locked.url)
        await client.aclose()


@pytest.mark.parametrize("value", ["abcdefgh\n", "abcd\r\nefgh", "schlüssel-geheim", " abcdefgh"])
def test_a_key_that_can_be_none_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_LLM_AUTH", value)
    with pytest.raises(ConfigError, match="the value of MY_LLM_AUTH holds a line end, a blank or a char") as caught:
        OpenAIServer(OpenAIConfig(model="m", base_url="http://127.0.0.1:1/v1", api_key_env="MY_LLM_AUTH"))
    assert value.strip() not in str(caught.value)


def test_regional_servers_are_openais_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    server = OpenAIServer(OpenAIConfig(model="gpt-4o", base_url="https://eu.api.openai.com/v1"))
    assert server.key_env == "OPENAI_API_KEY"
    other = OpenAIServer(OpenAIConfig(model="gpt-4o", base_url="https://api.openai.com.example.org/v1"))
    assert other.key_env is None


@pytest.mark.parametrize("kind", ["prose", "empty", "truncated", "unclosed", "wrong_schema"])
async def test_unusable_replies_without_end_are_a_parse_error(tmp_path: Path, kind: str) -> None:
    with FakeOpenAI(script=[kind] * 99) as server:
        output, tally = await run(server, tmp_path)
    assert isinstance(output, ParseError)
    assert (tally.role("gate").calls, tally.role("gate").parse_failures) == (3, 3)


async def test_a_cut_reply_gets_a_larger_budget_and_any_other_one_the_reason(tmp_path: Path) -> None:
    with FakeOpenAI(script=["truncated", "prose"]) as server:
        output, _ = await run(server, tmp_path)
    assert not isinstance(output, Exception)
    limits = [body["max_tokens"] for body in server.requests]
    assert limits == [700, 1400, 1400]
    assert [len(body["messages"]) for body in server.requests] == [2, 2, 4]
    assert "not a JSON object" in server.requests[2]["messages"][-1]["content"]


async def test_a_rerun_makes_no_request_and_needs_no_server(tmp_path: Path) -> None:
    with FakeOpenAI(script=["prose"]) as server:
        first, before = await run(server, tmp_path)
    assert len(server.requests) == 2
    second, after = await run(server, tmp_path)  # the server is gone
    assert second == first
    assert after.logical() == before.logical()
    assert (before.role("gate").billed_calls, after.role("gate").billed_calls) == (2, 0)


async def test_usage_model_and_reasoning_reach_the_reply() -> None:
    with FakeOpenAI(script=["think"]) as server:
        reply = await ask(server)
    assert reply.model == "fake-model"
    assert reply.reasoning.startswith("Let me see")
    assert reply.usage.prompt_tokens > 0 < reply.usage.cached_prompt_tokens
    assert reply.latency_s > 0


async def test_tool_calls_make_the_round_trip() -> None:
    def answer(_body: dict[str, Any]) -> str:
        return '{"content": "hm", "calls": [{"name": "search", "arguments": {"query": "cats"}}]}'

    with FakeOpenAI(answer=answer) as server:
        client = backend(server)
        output = await LLM(client).run(AGENT, ToyInput("find cats"))
        await client.aclose()
    assert server.requests[0]["tools"][0]["function"]["name"] == "search"
    assert (output.content, output.calls[0].name, output.calls[0].arguments) == ("hm", "search", {"query": "cats"})


@pytest.mark.parametrize("structured", ["json_schema", "guided", "json_object", "plain"])
@pytest.mark.parametrize("parser", [False, True], ids=["tags", "field"])
async def test_thinking_models_work_in_every_mode(tmp_path: Path, structured: str, parser: bool) -> None:
    with FakeOpenAI(reasoning_parser=parser) as server:
        output, _ = await run(server, tmp_path, structured=structured, thinking="on")
    if structured != "plain" and not parser:  # the schema leaves no room for reasoning
        assert isinstance(output, ConfigError)
        assert "needs --reasoning-parser" in str(output)
        return
    assert not isinstance(output, Exception), output
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": True}


def test_no_key_for_openai_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        OpenAIServer(OpenAIConfig(model="gpt-4o-mini-2024-07-18"))
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        OpenAIServer(OpenAIConfig(model="m", base_url="https://llm.example/v1", api_key_env="MY_KEY"))


async def test_openais_key_is_not_sent_to_other_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MY_KEY", "another-key-12345")
    with FakeOpenAI() as server:
        await ask(server)
        await ask(server, api_key_env="MY_KEY")
    assert server.headers[0]["authorization"] == "Bearer none"
    assert server.headers[1]["authorization"] == "Bearer another-key-12345"


async def test_a_key_appears_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    with FakeOpenAI(needs_key="the-right-key") as server:  # its 401 quotes the key it was sent, as some servers do
        llm = stack(server, tmp_path, api_key_env="OPENAI_API_KEY")
        for _ in range(2):
            with pytest.raises(ConfigError) as caught:
                await llm.run(INGEST, IngestInput("1 May", "Ann", "hi"))
            error: BaseException | None = caught.value
            while error is not None:
                seen += [str(error), repr(error), repr(vars(error))]
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        seen += [repr(llm), repr(vars(llm)), repr(llm.identity), repr(llm.backend)]
        await llm.aclose()
    with FakeOpenAI(needs_key=SECRET) as server:
        llm = stack(server, tmp_path, api_key_env="OPENAI_API_KEY")
        await llm.run(INGEST, IngestInput("1 May", "Ann", "hi"))
        seen += [repr(await llm.start()), repr(backend(server, api_key_env="OPENAI_API_KEY"))]
        await llm.aclose()
    seen += [caplog.text, *capfd.readouterr()]
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(seen) > 8
    assert not [text for text in seen if "planted" in text]


async def test_an_unreachable_server_is_one_clear_line(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        pass
    output, _ = await run(server, tmp_path, probe=False)
    assert isinstance(output, BackendError)
    assert "cannot reach http://127.0.0.1" in str(output)
    assert (output.kind, output.transient) == ("connection", True)


async def test_a_proxy_is_never_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with FakeOpenAI() as server:
        assert (await ask(server)).text


async def test_a_conversation_stays_on_its_server_and_load_is_spread() -> None:
    with FakeOpenAI() as a, FakeOpenAI() as b:
        client = OpenAIServer(OpenAIConfig(model="fake-model", base_urls=(a.url, b.url)))
        for _ in range(3):
            for conversation in ("c1", "c2", "c3", "c4"):
                with scope(conversation, "q"):
                    await client.complete(toy_call(conversation))
        await client.aclose()

    def conversations(server: FakeOpenAI) -> set[str]:
        return {body["messages"][1]["content"] for body in server.requests}

    assert conversations(a) & conversations(b) == set()
    assert len(conversations(a)) == len(conversations(b)) == 2
    assert len(a.requests) == len(b.requests) == 6


async def test_when_a_server_dies_its_conversations_move(tmp_path: Path) -> None:
    with FakeOpenAI() as a, contextlib.ExitStack() as until_dead:
        b = until_dead.enter_context(FakeOpenAI())
        llm = stack(a, tmp_path, base_url=None, base_urls=[a.url, b.url])
        await llm.start()

        async def ask_all(text: str) -> None:
            for conversation in ("c1", "c2"):
                with scope(conversation, text):
                    await llm.run(INGEST, IngestInput("1 May", "Ann", text))

        await ask_all("before")
        assert (len(a.requests), len(b.requests)) == (1, 1)
        until_dead.close()
        await ask_all("after")
        await llm.aclose()
    assert len(a.requests) == 3


async def test_transient_faults_change_no_result(tmp_path: Path) -> None:
    """20 % mixed transport faults from the server: same outputs as without, none lost."""

    async def everything(server: FakeOpenAI, folder: Path) -> list[Any]:
        llm = stack(server, folder, timeout_s=0.3, retry={"base_s": 0.001, "tries": 12})
        try:
            with scope("c", "q"):
                return list(
                    await asyncio.gather(
                        *(llm.run(INGEST, IngestInput("1 May", "Ann", f"I saw {i} birds")) for i in range(60))
                    )
                )
        finally:
            await llm.aclose()

    with FakeOpenAI() as server:
        clean = await everything(server, tmp_path / "clean")
    with FakeOpenAI(rates={"429": 0.05, "500": 0.05, "drop": 0.05, "hang": 0.02, "not_json": 0.03}) as server:
        faulty = await everything(server, tmp_path / "faulty")
        assert sum(server.kinds[kind] for kind in ("429", "500", "drop", "hang", "not_json")) > 5
    assert faulty == clean


def test_retry_after_in_all_its_forms() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert retry_after({"retry-after": "7"}) == 7.0
    assert retry_after({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert 80 < (retry_after({"retry-after": later}) or 0) <= 90
    assert retry_after({"retry-after": "-3"}) == 0.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


def test_the_package_is_not_imported_before_the_first_call() -> None:
    code = (
        "import sys; from memfly.llm.openai_server import OpenAIServer; from memfly.llm.config import OpenAIConfig; "
        "OpenAIServer(OpenAIConfig(model='m', base_url='http://127.0.0.1:1/v1')); "
        "print([m for m in ('openai', 'torch', 'httpx', 'xllamacpp') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
