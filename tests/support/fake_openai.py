"""A loopback server that speaks the chat completions protocol, for tests: real sockets, scripted trouble.

It answers tasks properly by default (a reply made from the schema and the words of the prompt, the same for the same
request), and as badly as told otherwise. Not a model. Runs in a thread of its own; as a program it serves until ended:
`python tests/support/fake_openai.py --port 8000 --model NAME`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import inspect
import json
import pkgutil
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

Body = dict[str, Any]
Answer = Callable[[Body], str | Awaitable[str]]
Script = Callable[[int, Body], str]
"""(number of the request, body) -> kind of reply, one of KINDS."""

KINDS = (
    "json", "fenced", "think", "unclosed", "truncated", "prose", "empty", "null", "garbage", "unknown_ids",
    "out_of_range", "wrong_schema", "reasoning_field", "wrong_field", "no_choices", "not_json",
    "400", "401", "404", "429", "500", "quota", "hang", "drop", "slow",
)  # fmt: skip


def schema_of(body: Body) -> tuple[str, dict[str, Any]]:
    """(task name, schema) a request asks for; a request that carries no schema is recognised by its system text."""
    response = body.get("response_format") or {}
    if response.get("type") == "json_schema":
        return response["json_schema"]["name"], response["json_schema"]["schema"]
    system = body["messages"][0]["content"]
    task = _tasks().get(system)
    if task is not None:
        return task.name, task.schema()
    return "unknown", (body.get("structured_outputs") or {}).get("json") or {"type": "object", "properties": {}}


def _constrained(body: Body) -> bool:
    """Whether a request binds the reply to JSON."""
    return bool(body.get("structured_outputs")) or (body.get("response_format") or {}).get("type", "text") != "text"


_TASKS: dict[str, Any] = {}


def _tasks() -> dict[str, Any]:
    """Every task of the project by its system text."""
    if not _TASKS:
        from memfly.llm.probe import PROBE
        from memfly.tasks.base import Task

        _TASKS[PROBE.system] = PROBE
        for package in ("memfly.tasks", "baselines.tasks"):
            root = importlib.import_module(package)
            for info in pkgutil.iter_modules(root.__path__, f"{package}."):
                for value in vars(importlib.import_module(info.name)).values():
                    if isinstance(value, Task):
                        _TASKS[value.system] = value
    return _TASKS


def from_schema(body: Body) -> str:
    """A valid reply made of the schema and the prompt's own words, the same for the same request."""
    name, schema = schema_of(body)
    prompt = body["messages"][1]["content"] if len(body["messages"]) > 1 else body["messages"][0]["content"]
    if name == "probe":
        return '{"colour": "red", "ripe": true}'
    return json.dumps(_fill(schema, schema.get("$defs", {}), prompt, name), ensure_ascii=False)


def _fill(schema: Mapping[str, Any], defs: Mapping[str, Any], prompt: str, path: str) -> Any:
    draw = random.Random(hashlib.sha256(f"{path}\0{prompt}".encode()).hexdigest())
    if "$ref" in schema:
        return _fill(defs[schema["$ref"].rsplit("/", 1)[-1]], defs, prompt, path)
    for options in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if options:
            return options[0]
    for key in ("anyOf", "allOf"):
        if key in schema:
            return _fill(schema[key][0], defs, prompt, path)
    kind = schema.get("type")
    if kind == "object":
        return {k: _fill(v, defs, prompt, f"{path}.{k}") for k, v in schema.get("properties", {}).items()}
    if kind == "array":
        return _items(schema, defs, prompt, path)
    if kind == "boolean":
        return draw.random() < 0.5
    if kind in ("number", "integer"):
        low, high = float(schema.get("minimum", 0)), float(schema.get("maximum", 1))
        return round(low + (high - low) * draw.random(), 3) if kind == "number" else int(low)
    if path.endswith(".relation"):
        return draw.choice(["SUPPORTS", "CONFLICTS", "RELATED", "NONE"])
    words = re.findall(r"[A-Za-z][\w'-]+", prompt.splitlines()[-1] if prompt.strip() else "") or ["nothing"]
    start = draw.randrange(len(words))
    return " ".join(words[start : start + 8])[: int(schema.get("maxLength", 200))]


def _items(schema: Mapping[str, Any], defs: Mapping[str, Any], prompt: str, path: str) -> list[Any]:
    item = schema.get("items", {})
    target = defs.get(item.get("$ref", "").rsplit("/", 1)[-1], item)
    ids = list(dict.fromkeys(re.findall(r"\bid (\d+)", prompt)))
    if "id" in target.get("properties", {}) and ids:
        return [{**_fill(item, defs, prompt, f"{path}.{i}"), "id": int(i)} for i in ids]
    return [_fill(item, defs, prompt, f"{path}.{i}") for i in range(min(3, int(schema.get("maxItems", 3))))]


class FakeOpenAI:
    """`with FakeOpenAI(script=["429", "json"]) as server: ... server.url`.

    `script` is a list of kinds used up in order (then "json"), or a function of (request number, body); it does not
    touch the start-up probe unless `script_probe`. `rates` gives seeded shares of kinds by request and how often it was
    seen. `reasoning_parser` puts thinking in `reasoning_content` instead of in `<think>` tags; without it a constrained
    reply has no thinking at all, because the schema binds from the first token, as in vLLM.
    """

    def __init__(
        self,
        *,
        answer: Answer = from_schema,
        script: Sequence[str] | Script = (),
        rates: Mapping[str, float] | None = None,
        seed: int = 0,
        models: Sequence[str] = ("fake-model",),
        port: int = 0,
        retry_after: str = "0.01",
        slow_s: float = 0.3,
        script_probe: bool = False,
        reasoning_parser: bool = False,
        ignores_thinking: bool = False,
        needs_key: str | None = None,
        health_s: float = 0.0,
    ) -> None:
        self.answer = answer
        self.script = script if callable(script) else _in_order(script)
        self.rates = dict(rates or {})
        self.seed = seed
        self.models = list(models)
        self.port = port
        self.retry_after = retry_after
        self.slow_s = slow_s
        self.script_probe = script_probe
        self.reasoning_parser = reasoning_parser
        self.ignores_thinking = ignores_thinking
        self.needs_key = needs_key
        self.health_s = health_s
        """How long /health takes, as under load."""
        self.requests: list[Body] = []
        """Bodies of all chat requests, in order of arrival, the probe's left out."""
        self.headers: list[dict[str, str]] = []
        self.kinds: Counter[str] = Counter()
        """How often each kind was served."""
        self.most_at_once = 0
        self._now = 0
        self._seen: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> FakeOpenAI:
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the fake server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(10)

    async def serve(self) -> None:
        """Serve until stopped."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        open_now: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_now.add(task)
            try:
                await self._connection(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                open_now.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            try:
                response = await self._respond(method, path, headers, raw)
            finally:
                self._now -= 1
            if response is None:
                writer.transport.abort()
                return
            status, extra, payload = response
            fields = {"Content-Type": "application/json", "Content-Length": str(len(payload)), **extra}
            text = "".join(f"{k}: {v}\r\n" for k, v in fields.items())
            writer.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode() + payload)
            await writer.drain()

    async def _respond(
        self, method: str, path: str, headers: dict[str, str], raw: bytes
    ) -> tuple[int, dict[str, str], bytes] | None:
        """(status, headers, body), or None to drop the connection."""
        if path == "/health":
            await asyncio.sleep(self.health_s)
            return 200, {}, b"{}"
        if self.needs_key and headers.get("authorization") != f"Bearer {self.needs_key}":
            return _error(401, f"Incorrect API key provided: {headers.get('authorization')}", "invalid_api_key")
        if path == "/v1/models":
            return _json({"object": "list", "data": [{"id": model, "object": "model"} for model in self.models]})
        if method != "POST" or path != "/v1/chat/completions":
            return _error(404, f"no route {path}", "not_found")
        body = json.loads(raw)
        kind = "json"
        if self.script_probe or schema_of(body)[0] != "probe":
            self.requests.append(body)
            self.headers.append(headers)
            kind = self._kind(body, raw)
            self.kinds[kind] += 1
        return await self._reply(kind, body)

    def _kind(self, body: Body, raw: bytes) -> str:
        if self.rates:
            content = hashlib.sha256(raw).hexdigest()
            self._seen[content] += 1
            point = random.Random(f"{self.seed} {content} {self._seen[content]}").random()
            for kind, rate in self.rates.items():
                if point < rate:
                    return kind
                point -= rate
        return self.script(len(self.requests) - 1, body)

    async def _reply(self, kind: str, body: Body) -> tuple[int, dict[str, str], bytes] | None:
        if kind in ("hang", "drop", "slow"):
            await asyncio.sleep({"hang": 3600, "drop": 0, "slow": self.slow_s}[kind])
            if kind != "slow":
                return None
        if kind in _ERRORS:
            status, code, text = _ERRORS[kind]
            return _error(status, text, code, {"Retry-After": self.retry_after} if status == 429 else {})
        if kind == "not_json":
            return 200, {"Content-Type": "text/html"}, b"<html>gateway says hello</html>"
        if kind == "no_choices":
            return _json({"id": "x", "object": "chat.completion", "choices": []})
        made = self.answer(body)
        text = await made if inspect.isawaitable(made) else made
        message, finish = self._message(kind, text, body)
        prompt = sum(len(m["content"].split()) for m in body["messages"])
        return _json(
            {
                "id": f"chatcmpl-{len(self.requests)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": len(text.split()),
                    "total_tokens": prompt + len(text.split()),
                    "prompt_tokens_details": {"cached_tokens": prompt // 4},
                },
            }
        )

    def _message(self, kind: str, text: str, body: Body) -> tuple[dict[str, Any], str]:
        if kind == "json" and body.get("tools"):
            return _tool_message(text), "tool_calls"
        thinks = (body.get("chat_template_kwargs") or {}).get("enable_thinking") or self.ignores_thinking
        if kind == "json" and thinks and self.reasoning_parser:
            kind = "reasoning_field"
        elif kind == "json" and thinks and not _constrained(body):
            kind = "think"
        thought = 'Let me see: {"draft": true}, or rather'
        content = {
            "fenced": f"Here it is:\n```json\n{text}\n```\nI hope that helps.",
            "think": f"<think>\n{thought}\n</think>\n\n{text}",
            "unclosed": f"<think>\n{thought}",
            "truncated": text[: max(1, len(text) // 2)],
            "prose": "I am afraid I would rather talk about something else.",
            "empty": "",
            "null": None,
            "garbage": "}{]] 7f <|im_end|> \\u00 {{",
            "unknown_ids": re.sub(r'"id": \d+', '"id": 999999', text),
            "out_of_range": re.sub(r"\b0\.\d+", "7.5", text),
            "wrong_schema": '{"unexpected": [1, 2, 3]}',
            "wrong_field": None,
        }.get(kind, text)
        finish = "length" if kind in ("truncated", "unclosed") else "stop"
        message: dict[str, Any] = {"content": content}
        if kind == "reasoning_field":
            message["reasoning_content"] = thought
        if kind == "wrong_field":
            message["reasoning_content"] = text
        return message, finish


_ERRORS = {
    "400": (400, "bad_request", "this model's maximum context length is 4096 tokens"),
    "401": (401, "invalid_api_key", "no"),
    "404": (404, "model_not_found", "the model does not exist"),
    "429": (429, "rate_limit_exceeded", "slow down"),
    "500": (500, "server_error", "something broke"),
    "quota": (429, "insufficient_quota", "you exceeded your current quota"),
}


def _tool_message(text: str) -> dict[str, Any]:
    value = json.loads(text)
    calls = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])},
        }
        for i, c in enumerate(value.get("calls", []))
    ]
    return {"content": value.get("content"), "tool_calls": calls}


def _in_order(kinds: Sequence[str]) -> Script:
    return lambda number, _body: kinds[number] if number < len(kinds) else "json"


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return status, dict(headers or {}), json.dumps(value).encode()


def _error(
    status: int, message: str, code: str, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    return _json({"error": {"message": message, "type": code, "code": code}}, status, headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="fake-model")
    parser.add_argument("--rates", type=json.loads, default={}, help='e.g. {"429": 0.05, "hang": 0.01}')
    options = parser.parse_args()
    server = FakeOpenAI(port=options.port, models=[options.model], rates=options.rates)
    with server:
        print(server.url, flush=True)  # noqa: T201 - the address is this program's output
        threading.Event().wait()


if __name__ == "__main__":
    main()
