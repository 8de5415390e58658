"""Readies the `openai` backend: finds or starts its server, then probes it. Joins `openai_server`, `vllm_server`, `probe`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memfly.errors import MemflyError
from memfly.llm.base import Backend
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer, identity
from memfly.llm.probe import probe
from memfly.llm.startup import Startup
from memfly.llm.vllm_server import VLLMServer, command_line, find_or_start


def openai_startup(config: OpenAIConfig, cache_dir: Path) -> Startup:
    """A backend that is ready at its first call. A missing key or executable is reported here, before anything starts."""
    if config.serve == "auto":
        command_line(config, 0)
    else:
        OpenAIServer(config)
    started: list[VLLMServer] = []

    async def prepare() -> tuple[Backend, Mapping[str, Any]]:
        found: dict[str, Any] = {}
        urls: tuple[str, ...] = ()
        if config.serve == "auto":
            server = await find_or_start(config, cache_dir / "serve")
            started.append(server)
            urls = (server.url,)
            found["server"] = server.record()
        backend = OpenAIServer(config, urls)
        if config.probe:
            try:
                found["probe"] = await probe(backend)
            except MemflyError:
                await backend.aclose()
                raise
        return backend, found

    async def release() -> None:
        for server in started:
            await asyncio.to_thread(server.stop)

    return Startup(identity(config), prepare, release)
