"""Backend `openai`: one call to any server that speaks the chat completions protocol (OpenAI, vLLM, llama.cpp ...).

Does no retries, no caching and no limiting: the layers do. Every failure becomes a one-line BackendError that says
whether trying again can help, and never holds a key. The `openai` package is imported at the first call.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from memfly.errors import BackendError, BudgetExceeded, ConfigError, MemflyError
from memfly.llm.base import Call, Reply
from memfly.llm.config import OpenAIConfig, is_loopback, is_openai
from memfly.llm.ledger import current_scope
from memfly.llm.redaction import one_line, register_variable
from memfly.llm.servers import Servers
from memfly.llm.wire import read_reply, request_body

OPENAI_URL = "https://api.openai.com/v1"

OUT_OF_CREDIT = frozenset(
    {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance"}
)
"""Error codes, whatever the status, after which every further call fails too until somebody pays. So does status 402."""

UNWELL = frozenset({"connection", "timeout", "server", "overloaded", "protocol"})
"""Kinds of failure that speak against the server (a proxy without its server, a dead engine), not against the call."""


def identity(config: OpenAIConfig) -> dict[str, Any]:
    """All settings that can change a reply. Addresses are left out: the same model on another server or port is the
    same backbone (`revision` tells different weights under one name apart)."""
    return {
        "kind": "openai",
        "model": config.model,
        "revision": config.revision,
        "structured": config.structured,
        "tool_calls": config.tool_calls,
        "thinking": config.thinking,
        "reasoning_model": config.reasoning_model,
        "reasoning_tokens": config.reasoning_room,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
    }


class OpenAIServer:
    """The backend. `urls` replaces the configured addresses (a server started by `serve=auto`).

    Raises ConfigError when there is no server to ask, or no key where one is needed.
    """

    def __init__(self, config: OpenAIConfig, urls: Sequence[str] = ()) -> None:
        self.config = config
        self.urls = tuple(url.rstrip("/") for url in (urls or config.urls or (OPENAI_URL,)))
        self.servers = Servers(self.urls, self._healthy)
        self._clients: dict[str, Any] = {}
        asks_openai = all(is_openai(url) for url in self.urls)
        if asks_openai and "/" in config.model:  # a repository's name, which OpenAI's models never have
            raise ConfigError(
                f"llm: no server for {config.model}; set llm.base_url to one, or llm.serve=auto to start it"
            )
        self.key_env = config.api_key_env or ("OPENAI_API_KEY" if asks_openai else None)
        if self.key_env and not os.environ.get(self.key_env):
            raise ConfigError(
                f"llm.api_key_env: the environment variable {self.key_env} is not set; set it to your key, or give "
                "llm.base_url for a server that needs none"
            )
        register_variable(self.key_env)
        key = self._key()
        if not key.isascii() or not key.isprintable() or key != key.strip():
            raise ConfigError(
                f"llm.api_key_env: the value of {self.key_env} holds a line end, a blank or a character that no key has; "
                "set it to the key alone"
            )

    def _key(self) -> str:
        return os.environ.get(self.key_env, "") if self.key_env else ""

    def __repr__(self) -> str:
        return f"OpenAIServer(model={self.config.model!r}, urls={[one_line(url) for url in self.urls]})"

    @property
    def identity(self) -> Mapping[str, Any]:
        return identity(self.config)

    async def complete(self, call: Call) -> Reply:
        """One reply from the server its conversation belongs to.

        Raises BackendError; BudgetExceeded when the account has no credit left; ConfigError when the server refuses the
        key or does not know the model, because then every further call would fail too.
        """
        server = await self.servers.pick(current_scope().conversation)
        body = request_body(call, self.config, own_server=not is_openai(server.url))
        server.in_flight += 1
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self.config.timeout_s):
                raw = await self._create(server.url, body)
        except BackendError as error:
            if error.kind in UNWELL:
                self.servers.failed(server)
            raise
        except ConfigError as error:
            if not self.servers.others(server):
                raise
            self.servers.failed(server)  # the others do take the key and know the model: this one is at fault
            raise BackendError(str(error), transient=True, kind="server") from None
        except TimeoutError:
            self.servers.failed(server)
            raise BackendError(
                f"no reply from {one_line(server.url)} in {self.config.timeout_s:g} s", transient=True, kind="timeout"
            ) from None
        finally:
            server.in_flight -= 1
        latency_s = time.perf_counter() - start
        try:
            reply = read_reply(raw, call, latency_s)
        except BackendError:
            self.servers.failed(server)
            raise
        self.servers.well(server)
        return reply

    async def models(self, url: str | None = None) -> list[str]:
        """Ids of the models a server offers. Raises as `complete` does."""
        url = url or self.urls[0]
        raw = await self._request(url, lambda client: client.models.with_raw_response.list(timeout=10.0))
        try:
            return [str(item["id"]) for item in raw["data"]]
        except (KeyError, TypeError):
            raise BackendError(
                f"{one_line(url)}/models is no list of models", transient=True, kind="protocol"
            ) from None

    async def _healthy(self, url: str) -> bool:
        try:
            await self.models(url)
        except MemflyError:  # one server of several that refuses the key is unwell, not the end of the run
            return False
        return True

    async def _create(self, url: str, body: dict[str, Any]) -> Any:
        extra = {key: body.pop(key) for key in ("structured_outputs", "chat_template_kwargs") if key in body}
        return await self._request(
            url, lambda client: client.chat.completions.with_raw_response.create(**body, extra_body=extra or None)
        )

    async def _request(self, url: str, send: Any) -> Any:
        """The decoded JSON body of a response; the package's exceptions become ours."""
        import openai

        failure: Exception
        try:
            raw = await send(self._client(url))
            return json.loads(raw.http_response.content)
        except openai.APIStatusError as error:
            failure = self._status_error(url, error.status_code, error.response.headers, error.body, error.message)
        except openai.APITimeoutError:
            failure = BackendError(f"no reply from {one_line(url)} in time", transient=True, kind="timeout")
        except openai.APIConnectionError as error:
            reason = one_line(str(error.__cause__ or error), 120)
            failure = BackendError(f"cannot reach {one_line(url)}: {reason}", transient=True, kind="connection")
        except ValueError:
            failure = BackendError(f"{one_line(url)} sent no JSON", transient=True, kind="protocol")
        except openai.OpenAIError as error:
            failure = BackendError(f"{one_line(url)}: {one_line(str(error))}", transient=False, kind="client")
        raise failure from None  # the cause holds the request and its headers

    def _status_error(self, url: str, status: int, headers: Mapping[str, str], body: Any, message: str) -> Exception:
        codes = {str(body.get(key) or "") for key in ("code", "type")} if isinstance(body, Mapping) else set()
        said = re.sub(r"^Error code: \d+ - ", "", message)
        text = f"{one_line(url)} answered {status}: {one_line(said, 200)}"
        if status == 402 or codes & OUT_OF_CREDIT:
            return BudgetExceeded(f"{text}; add credit and start the same run again, it continues where it stopped")
        if status in (401, 403):
            return ConfigError(f"{text}; check the key in {self.key_env or 'llm.api_key_env'}")
        if status == 404:
            return ConfigError(f"{text}; check llm.model ({self.config.model}) and llm.base_url")
        if status == 413 or (status == 429 and "request too large" in message.lower()):
            return BackendError(text, transient=False, kind="context_length")  # no waiting makes it smaller
        if status in (408, 409, 429) or status >= 500:
            kind = {429: "rate_limit", 503: "overloaded", 529: "overloaded", 408: "timeout", 504: "timeout"}
            return BackendError(text, transient=True, retry_after=retry_after(headers), kind=kind.get(status, "server"))
        if "tool" in message and self.config.tool_calls == "native":
            text += "; if the server has no tools API set llm.tool_calls=json"
        too_long = any("context" in code for code in codes) or "context length" in message
        return BackendError(text, transient=False, kind="context_length" if too_long else "bad_request")

    def _client(self, url: str) -> Any:
        if url not in self._clients:
            import openai

            self._clients[url] = openai.AsyncOpenAI(
                api_key=self._key() or "none",
                base_url=url,
                timeout=self.config.timeout_s,
                max_retries=0,
                http_client=openai.DefaultAsyncHttpxClient(trust_env=not is_loopback(url)),
            )
        return self._clients[url]

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        try:
            return max(0.0, float(value))
        except ValueError:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
