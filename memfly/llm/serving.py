"""Readies the `openai` backend: finds or starts its server, then probes it. Joins `openai_server`, `vllm_server`, `probe`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memfly.llm.base import Backend
from memfly.llm.config import OpenAIConfig
from memfly.llm.openai_server import OpenAIServer
from memfly.llm.probe import probe
from memfly.llm.startup import Startup
from memfly.llm.vllm_server import VLLMServer, find_or_start


def openai_startup(config: OpenAIConfig, cache_dir: Path) -> Startup:
    """A backend that is ready at its first call. A missing key is reported here, before anything starts."""
    backend = OpenAIServer(config)
    started: list[VLLMServer] = []

    async def prepare() -> tuple[Backend, Mapping[str, Any]]:
        found: dict[str, Any] = {}
        ready = backend
        if config.serve == "auto":
            server = await find_or_start(config, cache_dir / "serve")
            started.append(server)
            ready = OpenAIServer(config, [server.url])
            found["server"] = server.record()
        if config.probe:
            found["probe"] = await probe(ready)
        return ready, found

    async def release() -> None:
        await backend.aclose()
        for server in started:
            server.stop()

    return Startup(backend.identity, prepare, release)
