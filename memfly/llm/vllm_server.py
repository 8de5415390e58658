"""Starts `vllm serve MODEL` on a free loopback port, or finds one that already serves the model, and always stops its own.

vLLM runs as a program, never imported: any executable with the same command line will do (`llm.serve_executable`).
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memfly.errors import ConfigError
from memfly.llm import watchdog
from memfly.llm.config import OpenAIConfig
from memfly.llm.redaction import one_line

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
"""Where `vllm serve` and `memfly serve` listen unless told otherwise; looked at before a server is started."""
TAIL_LINES = 12


class VLLMServer:
    """A server that answers at `url`. `stop` ends it if it was started here and does nothing otherwise."""

    def __init__(
        self,
        url: str,
        command: Sequence[str] = (),
        log: Path | None = None,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.url = url
        self.command = tuple(command)
        self.log = log
        self._process = process
        if process is not None:
            atexit.register(self.stop)

    def record(self) -> dict[str, Any]:
        """For the manifest: where it is, whether it was there before, and the exact command and log if not."""
        started = {"command": one_line(shlex.join(self.command), 2000), "log": str(self.log)} if self.command else {}
        return {"url": self.url, "reused": not self.command, **started}

    @property
    def exit_code(self) -> int | None:
        """Of the server's process; None while it runs, and always None for one that was not started here."""
        return None if self._process is None else self._process.poll()

    def tail(self) -> str:
        """The log's last lines, on one line."""
        if self.log is None or not self.log.exists():
            return "(no log)"
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return " | ".join(one_line(line, 200) for line in lines if line.strip()) or "(empty log)"

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.stop)
        if process.stdin is not None:
            process.stdin.close()  # the watchdog ends the server and all its workers
        try:
            process.wait(2 * watchdog.GRACE_S + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def command_line(config: OpenAIConfig, port: int) -> list[str]:
    """The command that serves a configuration's model on a loopback port. Raises ConfigError without the executable."""
    program = shlex.split(config.serve_executable)
    if not program or shutil.which(program[0]) is None:
        raise ConfigError(
            f"llm.serve=auto: no executable {config.serve_executable!r}; install vllm (pip install vllm, needs a GPU), "
            "set llm.serve_executable, or start the server yourself and give llm.base_url"
        )
    revision = ["--revision", config.revision] if config.revision else []
    return [*program, "serve", config.model, "--host", HOST, "--port", str(port), *revision, *config.serve_args]


async def find_or_start(config: OpenAIConfig, log_dir: Path) -> VLLMServer:
    """A server of the model: one that runs (at `base_url`, or on the default port), else one started now.

    Raises ConfigError with the tail of the log when it does not come up in `serve_timeout_s`.
    """
    for url in config.urls or (f"http://{HOST}:{DEFAULT_PORT}/v1",):
        if config.model in await asyncio.to_thread(_models, url):
            return VLLMServer(url.rstrip("/"))
    return await start(config, log_dir)


async def start(config: OpenAIConfig, log_dir: Path, port: int | None = None) -> VLLMServer:
    """Start a server and wait until it answers; on `port`, or on a free one. Stopped again on any failure or Ctrl-C."""
    for last in (False, True):
        server = _launch(config, log_dir, port or _free_port())
        try:
            problem = await _wait(server, config)
        except BaseException:
            server.stop()
            raise
        if problem is None:
            return server
        tail = server.tail()
        server.stop()
        if last or port is not None or "address already in use" not in tail.lower():
            break  # else somebody took the free port between our look and the server's: try another one
    raise ConfigError(f"llm.serve=auto: `{shlex.join(server.command)}` {problem}; log {server.log} ends: {tail}")


def _launch(config: OpenAIConfig, log_dir: Path, port: int) -> VLLMServer:
    command = command_line(config, port)
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        log = log_dir / f"server-{os.getpid()}-{port}.log"
        log.write_text(f"$ {shlex.join(command)}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"llm.serve=auto: cannot write the server's log in {log_dir}: {error.strerror}") from None
    process = subprocess.Popen(
        [sys.executable, "-P", str(watchdog.__file__), str(os.getpid()), str(log), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C in the terminal is ours to handle
    )
    return VLLMServer(f"http://{HOST}:{port}/v1", command, log, process)


async def _wait(server: VLLMServer, config: OpenAIConfig) -> str | None:
    """None once the server answers and lists the model; otherwise what went wrong."""
    deadline = time.monotonic() + config.serve_timeout_s
    while time.monotonic() < deadline:
        if server.exit_code is not None:
            return f"ended with code {server.exit_code}"
        models = await asyncio.to_thread(_models, server.url)
        if models:
            return None if config.model in models else f"serves {', '.join(models)} instead of {config.model}"
        await asyncio.sleep(0.25)
    return f"did not answer in {config.serve_timeout_s:g} s (llm.serve_timeout_s)"


def _models(url: str) -> list[str]:
    """Ids a healthy server lists; empty when it is not there, not healthy yet, or something else."""
    root = url.rstrip("/").removesuffix("/v1")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{root}/health", timeout=2):
            pass
        with opener.open(f"{root}/v1/models", timeout=5) as response:
            data = json.load(response)["data"]
        return [str(item["id"]) for item in data]
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
        return []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])
