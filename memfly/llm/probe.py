"""One small call before a run, to see that a server does what the configuration asks: model, schema, thinking, finish.

The prompt asks for an English sentence while the schema demands JSON: a server that ignores the schema gives itself away.
What was found goes into the manifest; what cannot work is a ConfigError with the setting to change.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from memfly.errors import BackendError, ConfigError, ParseError
from memfly.llm.base import Call, Reply
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer
from memfly.llm.parse import parse_reply
from memfly.llm.redaction import one_line
from memfly.tasks.base import Task, TaskOutput

PATIENCE = (0.5, 2.0, 4.0)
"""Seconds waited between tries of a probe that failed for a passing reason."""


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


async def probe(server: OpenAIServer) -> dict[str, Any]:
    """What the server does, for the manifest. Raises ConfigError when it is not reachable, has another model, ignores
    the schema, or does not think as asked; BudgetExceeded when the account is out of credit."""
    config = server.config
    listed = await _listed(server)
    reply, followed = await _ask(server)
    found = {
        "model": config.model,
        "model_listed": listed,
        "model_reported": reply.model,
        "structured": config.structured,
        "schema_followed": followed,
        "thinking": config.thinking,
        "reasoned": bool(reply.reasoning.strip()),
        "finish": reply.finish,
        "usage_reported": not reply.usage.estimated,
    }
    _judge(config, found, reply)
    return found


async def _listed(server: OpenAIServer) -> int:
    """How many of the servers list the model. Servers without a list are left out; all down is an error."""
    count = 0
    down: list[str] = []
    for url in server.urls:
        try:
            models = await _patient(lambda url=url: server.models(url))
        except BackendError as error:
            down.append(str(error))
            continue
        except ConfigError as error:
            if " answered 404" in str(error):
                continue
            raise
        if models and server.config.model not in models:
            have = ", ".join(one_line(model, 60) for model in models[:5])
            raise ConfigError(f"llm.model: {one_line(url)} does not have {server.config.model}; it has {have}")
        count += bool(models)
    if len(down) == len(server.urls):
        raise ConfigError(f"llm.base_url: {down[0]}; start the server, or correct the address")
    return count


async def _ask(server: OpenAIServer) -> tuple[Reply, bool]:
    schema_only = server.config.structured in ("json_schema", "guided")
    value = ProbeInput(schema_only)
    messages = (("system", PROBE.system), ("user", PROBE.render(value)))
    call = Call(PROBE, value, messages, temperature=0.0, max_tokens=PROBE.max_tokens, seed=0)
    try:
        reply = await _patient(lambda: server.complete(call))
    except BackendError as error:
        raise ConfigError(f"llm: the server failed the start-up probe: {error}") from None
    try:
        parse_reply(PROBE, value, reply)
    except ParseError:
        return reply, False
    return reply, True


async def _patient(ask: Any) -> Any:
    for pause in PATIENCE:
        try:
            return await ask()
        except BackendError as error:
            if not error.transient:
                raise
            await asyncio.sleep(max(pause, min(error.retry_after or 0.0, 30.0)))
    return await ask()


def _judge(config: OpenAIConfig, found: dict[str, Any], reply: Reply) -> None:
    if reply.finish == "unclosed_think":
        raise ConfigError(
            "llm: the model did not finish its reasoning; raise llm.reasoning_tokens or set llm.thinking=off"
        )
    if config.thinking == "off" and found["reasoned"]:
        raise ConfigError("llm.thinking=off: the model reasons all the same; its chat template ignores enable_thinking")
    if config.thinking == "on" and not found["reasoned"]:
        raise ConfigError(
            "llm.thinking=on: the model gave no reasoning; with a schema vLLM needs --reasoning-parser for it, "
            "or set llm.structured=plain"
        )
    if not found["schema_followed"] and config.structured in ("json_schema", "guided"):
        said = one_line(reply.text, 60) or "nothing"
        raise ConfigError(
            f"llm.structured={config.structured}: the server ignores the schema (it said {said!r}); "
            "try json_schema, guided, json_object or plain"
        )
