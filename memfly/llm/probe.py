"""One small call to every server before a run, to see that it does what the configuration asks: model, schema, thinking.

The prompt asks for an English sentence while the schema demands JSON: a server that ignores the schema gives itself away.
What was found goes into the manifest, the tokens it took included; what cannot work is a ConfigError that names the
server and the setting to change. Trouble that may pass is retried by `llm.retry` like that of any call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from memfly.errors import BackendError, ConfigError, ParseError
from memfly.llm.base import Call, Reply
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer
from memfly.llm.parse import parse_reply
from memfly.llm.redaction import one_line
from memfly.llm.retry import Retry
from memfly.tasks.base import Task, TaskOutput

NOBODY_TRIES = 5
"""Tries of an address that nobody answers at: that is a wrong address, or a server not started, more often than trouble
that passes."""
LATE_S = 120.0
"""How long servers are waited for that other servers could replace."""


@dataclass(frozen=True)
class ProbeInput:
    schema_only: bool
    """Whether the reply's form is left to the schema; otherwise the prompt asks for JSON."""


class ProbeOutput(TaskOutput):
    colour: Literal["red", "green", "blue"]
    ripe: bool


def _render(value: ProbeInput) -> str:
    if value.schema_only:
        return "In one English sentence: which colour is a ripe tomato?"
    return (
        "Which colour is a ripe tomato? Reply with one JSON object: "
        '{"colour": "red" | "green" | "blue", "ripe": boolean}'
    )


PROBE = Task("probe", 1, "reflect", ProbeInput, ProbeOutput, "You answer in as few words as you can.", _render, 200)


async def probe(config: OpenAIConfig, urls: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The servers that do what the configuration asks, and what was found, for the manifest.

    Every server is asked. One that cannot be reached while others can is left out; one that does something else than
    asked is an error, because its replies would end up in the same tables. Raises ConfigError when a server has another
    model, ignores the schema or does not think as asked; BudgetExceeded when the account is out of credit; a transient
    BackendError when none can be reached now.
    """
    tasks = {url: asyncio.create_task(_probe_one(config, url)) for url in urls}
    try:
        _, late = await asyncio.wait(tasks.values(), timeout=LATE_S)
        if late and not any(_passed(task) for task in tasks.values()):
            await asyncio.wait(tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
        outcomes = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
    well = {url: outcome for url, outcome in outcomes.items() if isinstance(outcome, dict)}
    down = {url: outcome for url, outcome in outcomes.items() if isinstance(outcome, BaseException)}
    final = [error for error in down.values() if not (well and _passing(error))]
    if final:
        raise min(final, key=_passing)  # what waiting cannot mend comes first
    found: dict[str, Any] = {"model": config.model, "structured": config.structured, "thinking": config.thinking}
    found["servers"] = list(well.values())
    if down:
        found["left_out"] = {one_line(url): one_line(str(error) or "no reply in time") for url, error in down.items()}
    return tuple(well), found


def _passed(task: asyncio.Task[dict[str, Any]]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _passing(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError) or (isinstance(error, BackendError) and error.transient)


class _Prober:
    """The two requests of a probe as one call, so that the retry layer repeats them together."""

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server
        self.identity: Mapping[str, Any] = {}
        self.listed = False
        self._nobody = 0

    async def complete(self, call: Call) -> Reply:
        try:
            self.listed = await _lists_model(self.server)
            return await self.server.complete(call)
        except BackendError as error:
            self._nobody += error.kind == "connection"
            if self._nobody >= NOBODY_TRIES:
                raise BackendError(str(error), transient=False, kind="connection") from None
            raise

    async def aclose(self) -> None:
        await self.server.aclose()


async def _probe_one(config: OpenAIConfig, url: str) -> dict[str, Any]:
    """What one server does. Raises as `probe` does."""
    prober = _Prober(OpenAIServer(config, (url,)))
    call = _call(config)
    try:
        reply = await Retry(prober, config.retry).complete(call)
    except BackendError as error:
        if error.kind == "connection":
            text = f"llm.base_url: {error}; start the server, or correct the address"
            raise BackendError(text, transient=True, kind="connection") from None
        text = f"llm: the server failed the start-up probe: {error}"
        raise (BackendError(text, transient=True) if error.transient else ConfigError(text)) from None
    finally:
        await prober.aclose()
    found = {
        "url": one_line(url),
        "model_listed": prober.listed,
        "model_reported": reply.model,
        "schema_followed": _follows(call, reply),
        "reasoned": bool(reply.reasoning.strip()),
        "finish": reply.finish,
        "tries": reply.tries,
        "usage": asdict(reply.usage),
    }
    _judge(config, found, reply)
    return found


async def _lists_model(server: OpenAIServer) -> bool:
    """Whether the server's list of models holds the model; False where a server gives no list."""
    (url,) = server.urls
    try:
        models = await server.models(url)
    except BackendError as error:
        if error.transient and error.kind != "protocol":
            raise
        return False
    except ConfigError as error:
        if " answered 404" in str(error):
            return False
        raise
    if models and server.config.model not in models:
        have = ", ".join(one_line(model, 60) for model in models[:5])
        raise ConfigError(f"llm.model: {one_line(url)} does not have {server.config.model}; it has {have}")
    return bool(models)


def _call(config: OpenAIConfig) -> Call:
    value = ProbeInput(config.structured in ("json_schema", "guided"))
    messages = (("system", PROBE.system), ("user", PROBE.render(value)))
    return Call(PROBE, value, messages, temperature=0.0, max_tokens=PROBE.max_tokens, seed=0)


def _follows(call: Call, reply: Reply) -> bool:
    try:
        parse_reply(PROBE, call.input, reply)
    except ParseError:
        return False
    return True


def _judge(config: OpenAIConfig, found: Mapping[str, Any], reply: Reply) -> None:
    """Raises ConfigError when the server does something else than asked."""
    at = found["url"]
    if reply.finish == "unclosed_think":
        raise ConfigError(
            f"llm: the model at {at} did not finish its reasoning; raise llm.reasoning_tokens or set llm.thinking=off"
        )
    if config.thinking == "off" and found["reasoned"]:
        raise ConfigError(
            f"llm.thinking=off: the model at {at} reasons all the same; its chat template ignores enable_thinking"
        )
    if config.thinking == "on" and not found["reasoned"]:
        raise ConfigError(
            f"llm.thinking=on: the model at {at} gave no reasoning; with a schema vLLM needs --reasoning-parser for it, "
            "or set llm.structured=plain"
        )
    if not found["schema_followed"] and config.structured in ("json_schema", "guided"):
        said = one_line(reply.text, 60) or "nothing"
        raise ConfigError(
            f"llm.structured={config.structured}: the server at {at} ignores the schema (it said {said!r}); "
            "try json_schema, guided, json_object or plain"
        )
