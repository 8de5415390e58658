"""The chat completions protocol as pure functions: a call -> a request body, a response body -> a reply.

Here and only here `<think>` text is split off, the fields servers use for reasoning are read, and schemas are fitted to
what a server accepts. No network, no state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memfly.errors import BackendError
from memfly.llm.base import Call, Reply, capped
from memfly.llm.config import OpenAIConfig
from memfly.llm.redaction import one_line
from memfly.text import count_tokens
from memfly.types import Usage

MAX_ITEMS = 64
MAX_NUMBER = 1_000_000
"""Bounds put on arrays and numbers a schema leaves open, so that a constrained reply cannot run on: a number between
bounds has a bounded number of digits too."""

_FINISH = {
    **dict.fromkeys(("stop", "tool_calls", "function_call", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "recitation", "prohibited_content"), "content_filter"),
}
"""What servers say at the end of a reply, in our words; an unknown word stays, and never counts as a whole reply."""

_BROKEN_OFF = frozenset({"error", "abort", "aborted", "cancelled"})
"""Ends that are the server's trouble, not the model's: the same call may succeed."""

_LENGTHS = {
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
}
_REFUSED = _LENGTHS | {
    "default",
    "title",
    "format",
    "pattern",
    "multipleOf",
    "uniqueItems",
    "minProperties",
    "maxProperties",
}
"""Keywords OpenAI's strict mode refuses, or refused in some of the pinned snapshots."""


def request_body(call: Call, config: OpenAIConfig, *, own_server: bool) -> dict[str, Any]:
    """Body of the request. `own_server` is False for OpenAI's own, which wants `max_completion_tokens`."""
    new_name = config.reasoning_model or not own_server
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [{"role": role, "content": text} for role, text in call.messages],
        "seed": call.seed,
        "max_completion_tokens" if new_name else "max_tokens": capped(call.max_tokens, config.max_tokens)
        + config.reasoning_room,
        **form(call, config),
    }
    if not config.reasoning_model:
        body["temperature"] = call.temperature if config.temperature is None else config.temperature
        body["top_p"] = config.top_p
    if config.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": config.thinking == "on"}
    return body


def form(call: Call, config: OpenAIConfig) -> dict[str, Any]:
    """The part of the body that says what form the reply has, schemas as they are sent."""
    if call.task.tools and config.tool_calls == "native":
        tools = [_tool(t.name, t.description, t.arguments.model_json_schema(), config) for t in call.task.tools]
        return {"tools": tools, "tool_choice": "auto"}
    if config.structured == "json_schema":
        schema = {"name": call.task.name[:64], "strict": True, "schema": strict_schema(call.schema)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if config.structured == "guided":
        return {"structured_outputs": {"json": bounded_schema(call.schema)}}
    if config.structured == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {}


def _tool(name: str, description: str, schema: dict[str, Any], config: OpenAIConfig) -> dict[str, Any]:
    strict = config.structured == "json_schema"
    function: dict[str, Any] = {"name": name, "description": description}
    function["parameters"] = strict_schema(schema) if strict else bounded_schema(schema)
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def strict_schema(schema: Any) -> Any:
    """The schema as OpenAI's strict mode accepts it: no refused keywords (bounds move into the description), every key
    required, no other keys, nothing beside a `$ref`."""
    if isinstance(schema, list):
        return [strict_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return strict_schema(schema["allOf"][0])
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            out[key] = {name: strict_schema(part) for name, part in value.items()}
        elif key not in _REFUSED:
            out[key] = strict_schema(value) if key in ("items", "anyOf", "prefixItems") else value
    bounds = [f"{key} {schema[key]}" for key in sorted(_LENGTHS & schema.keys())]
    if bounds:
        text = str(schema.get("description", ""))
        out["description"] = f"{text} ({', '.join(bounds)})".strip()
    if schema.get("type") == "object":
        out["additionalProperties"] = False
        out["required"] = list(schema.get("properties", {}))
    return out


def bounded_schema(schema: Any) -> Any:
    """The schema for servers that constrain decoding by it: every array and number bounded, and no string.

    Counting characters is what grammars are slow at (xgrammar 0.1.25 to 0.2.8 took up to 17 s to compile one of our
    schemas, or 240 ms for every token), and the token limit of the call ends a long string anyway."""
    if isinstance(schema, list):
        return [bounded_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            out[key] = {name: bounded_schema(part) for name, part in value.items()}
        elif key not in ("title", "default", "minLength", "maxLength"):
            out[key] = bounded_schema(value) if key in ("items", "anyOf", "allOf", "prefixItems") else value
    if out.get("type") == "array":
        out.setdefault("maxItems", MAX_ITEMS)
    if out.get("type") in ("integer", "number"):
        for side, most in (("minimum", -MAX_NUMBER), ("maximum", MAX_NUMBER)):
            if f"exclusive{side.capitalize()}" not in out:
                out.setdefault(side, most)
    return out


def read_reply(body: Any, call: Call, latency_s: float) -> Reply:
    """The reply in a response body. Raises a transient BackendError when it is not a chat completion, or one that the
    server broke off."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        said = str(choice.get("finish_reason") or "stop").lower()
        refusal = _flat(message.get("refusal") or "")
        broken = choice.get("error") or (f"finish reason {said}" if said in _BROKEN_OFF else "")
        asked = message.get("tool_calls")
        calls = asked if isinstance(asked, list) else []
        model = str(body.get("model") or "")
    except (KeyError, IndexError, TypeError, AttributeError):
        error = body.get("error") if isinstance(body, dict) else None
        but = f" but an error: {one_line(str(error), 150)}" if error else ""
        raise BackendError(f"the response is no chat completion{but}", transient=True, kind="protocol") from None
    if broken:
        text = one_line(str(broken), 150)
        raise BackendError(f"the server broke the reply off: {text}", transient=True, kind="server")
    finish = _FINISH.get(said, said)
    text, reasoning, finish = _sort_out(_flat(content), _flat(reasoning), finish, bool(calls))
    if finish == "refusal" or (refusal and not text):
        text, finish = refusal or text, "refusal"
    elif call.task.tools and finish != "unclosed_think":
        text, finish = _tool_reply(text, calls, finish)
    return Reply(text, finish, reasoning, _usage(body.get("usage"), call, text + reasoning), model, latency_s)


def _flat(content: Any) -> str:
    """Content as one text; some servers send it as a list of typed parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content)


def split_think(text: str) -> tuple[str, str, bool]:
    """(answer, reasoning, closed) of a text that may begin with `<think>` blocks. A template may already have opened
    the block in the prompt, so that only its end is in the text."""
    parts: list[str] = []
    rest = text.lstrip()
    while rest.startswith("<think>"):
        inside, end, after = rest.removeprefix("<think>").partition("</think>")
        parts.append(inside.strip())
        if not end:
            return "", "\n".join(parts), False
        rest = after.lstrip()
    if not parts and not rest.startswith(("{", "[", "```")) and "</think>" in rest:
        inside, _, after = rest.partition("</think>")
        parts.append(inside.strip())
        rest = after.lstrip()
    return (rest if parts else text), "\n".join(part for part in parts if part), True


def _sort_out(content: str, reasoning: str, finish: str, has_calls: bool) -> tuple[str, str, str]:
    """Answer, reasoning and finish, whichever of the two fields the server put each in."""
    text, thought, closed = split_think(content)
    if not closed:
        return "", "\n".join(part for part in (reasoning, thought) if part), "unclosed_think"
    reasoning = "\n".join(part for part in (reasoning, thought) if part)
    if text.strip() or has_calls or not reasoning.strip():
        return text, reasoning, finish
    answer, before, closed = split_think(reasoning)
    if closed and answer.lstrip().startswith(("{", "```")):
        return answer, before, finish
    return "", reasoning, "unclosed_think" if finish == "length" else finish


def _tool_reply(text: str, calls: list[Any], finish: str) -> tuple[str, str]:
    """Tool calls as the JSON of `ToolOutput`; arguments that are no JSON object stay text."""
    if not calls and (finish != "stop" or not text.strip() or _is_tool_output(text)):
        return text, finish  # what was cut is not wrapped: the wrapping would make it look whole
    out: list[dict[str, Any]] = []
    for item in calls:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            continue
        raw = function.get("arguments")
        arguments = raw if isinstance(raw, dict) else _object(str(raw or "{}"))
        if arguments is None and finish != "stop":
            return "", finish
        out.append({"name": str(function.get("name")), "arguments": str(raw) if arguments is None else arguments})
    joined = json.dumps({"content": text, "calls": out}, ensure_ascii=False)
    return joined, finish


def _is_tool_output(text: str) -> bool:
    value = _object(text)
    return value is not None and "calls" in value


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _usage(usage: Any, call: Call, text: str) -> Usage:
    """The server's own counts; an estimate, marked so, where it gives none."""
    if isinstance(usage, Mapping) and isinstance(usage.get("prompt_tokens"), int):
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        written = usage.get("completion_tokens")
        if isinstance(written, int) or written is None:
            return Usage(usage["prompt_tokens"], written or 0, cached if isinstance(cached, int) else 0)
    return Usage(prompt_tokens(call), count_tokens(text), 0, estimated=True)


def prompt_tokens(call: Call) -> int:
    """Estimated prompt tokens of a call: its texts plus 4 per message for the chat template."""
    return sum(count_tokens(text) + 4 for _, text in call.messages)
