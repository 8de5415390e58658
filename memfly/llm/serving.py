"""Readies the `openai` backend: finds or starts its server, then probes it. Joins `openai_server`, `vllm_server`, `probe`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memfly.errors import BackendError, ConfigError
from memfly.llm.base import Backend, Call, Reply
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer, identity
from memfly.llm.probe import probe
from memfly.llm.startup import Startup
from memfly.llm.vllm_server import VLLMServer, command_line, find_or_start


class Started:
    """The backend of a server this process started. Once that server has ended, a call it would have answered ends the
    run: it is not started again, because what killed it (memory, a GPU fault, a person) would most likely do so again."""

    def __init__(self, inner: Backend, server: VLLMServer) -> None:
        self.inner = inner
        self.server = server

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    async def complete(self, call: Call) -> Reply:
        """As the inner backend; raises ConfigError with the end of the server's log when the server has ended."""
        try:
            return await self.inner.complete(call)
        except BackendError as error:
            if error.kind == "connection" and await self.server.ended():
                raise _ended(self.server) from None
            raise

    async def aclose(self) -> None:
        await self.inner.aclose()


def _ended(server: VLLMServer) -> ConfigError:
    return ConfigError(
        f"llm.serve=auto: the server {server.post_mortem()}; start the same run again, it continues where it stopped"
    )


def openai_startup(config: OpenAIConfig, cache_dir: Path) -> Startup:
    """A backend that is ready at its first call. A missing key or executable is reported here, before anything starts."""
    if config.serve == "auto":
        command_line(config, 0)
    else:
        OpenAIServer(config)
    server: VLLMServer | None = None

    async def prepare() -> tuple[Backend, Mapping[str, Any]]:
        nonlocal server
        found: dict[str, Any] = {}
        urls = OpenAIServer(config).urls if config.serve == "none" else ()
        if config.serve == "auto":
            if server is None:
                server = await find_or_start(config, cache_dir / "serve")
            urls = (server.url,)
            found["server"] = server.record()
        if config.probe:
            try:
                urls, found["probe"] = await probe(config, urls)
            except BackendError:
                if server is not None and await server.ended():
                    raise _ended(server) from None
                raise
        backend = OpenAIServer(config, urls)
        return (backend if server is None else Started(backend, server)), found

    async def release() -> None:
        if server is not None:
            await asyncio.to_thread(server.stop)

    return Startup(identity(config), prepare, release)
