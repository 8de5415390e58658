"""Starts `vllm serve MODEL` on a free loopback port, or finds one that already serves the model, and always stops its own.

vLLM runs as a program, never imported: any executable with the same command line will do (`llm.serve_executable`).
"""

from __future__ import annotations

import asyncio
import atexit
import http.client
import json
import os
import re
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
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from memfly.errors import ConfigError
from memfly.llm import watchdog
from memfly.llm.config import OpenAIConfig
from memfly.llm.redaction import after_secret_flags, one_line, redact_command

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
"""Where `vllm serve` and `memfly serve` listen unless told otherwise; looked at before a server is started."""
ANSWER_S = (2.0, 8.0, 30.0, 60.0)
"""Given to each try of a health check on a port that is open but slow: a loaded vLLM can take half a minute."""
TAIL_LINES = 12
ERROR_LINES = 5
SHORTEST_SECRET = 4
"""Shorter ones are not looked for in the log: that would garble it."""

_ERROR = re.compile(r"\w*(?:Error|Exception): .*|.*out of memory.*|.*CUDA error.*")
_ERROR_HINT = re.compile(r".*(?:ERROR|Error|Exception|CUDA).*")


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
        self._owner = os.getpid()
        if process is not None:
            atexit.register(self.stop)

    def record(self) -> dict[str, Any]:
        """For the manifest: where it is, whether it was there before, and the exact command and log if not."""
        started = {"command": shown(self.command), "log": str(self.log)} if self.command else {}
        return {"url": self.url, "reused": not self.command, **started}

    @property
    def exit_code(self) -> int | None:
        """Of the server's process; None while it runs, and always None for one that was not started here."""
        return None if self._process is None else self._process.poll()

    async def ended(self, within_s: float = 5 * watchdog.TICK_S) -> bool:
        """Whether the server has ended, or does so right now: its connections break a moment before it is gone."""
        until = time.monotonic() + within_s
        while self._process is not None and self.exit_code is None and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return self.exit_code is not None

    def post_mortem(self) -> str:
        """For a message about a server that ended: the code, and what its log says."""
        return f"ended with code {self.exit_code}; {self.log_says()}"

    def log_says(self) -> str:
        """The log's place, its last lines, and the last errors before them, on one line. A server of several processes
        names the cause long before the last of them gives up."""
        if self.log is None or not self.log.exists():
            return "no log"
        lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        rest, tail = lines[:-TAIL_LINES], lines[-TAIL_LINES:]
        errors = _last_errors(rest, _ERROR) or _last_errors(rest, _ERROR_HINT)
        before = f"errors: {self._joined(errors, 400)}; " if errors else ""
        return f"{before}log {self.log} ends: {self._joined(tail, 200) or '(empty)'}"

    def _joined(self, lines: Sequence[str], limit: int) -> str:
        return " | ".join(one_line(_masked(line, self.command), limit) for line in lines)

    def stop(self) -> None:
        if self._process is None or os.getpid() != self._owner:  # a forked child inherits the object, not the server
            return
        process, self._process = self._process, None
        atexit.unregister(self.stop)
        process.terminate()  # the watchdog then ends the server and all its workers
        if process.stdin is not None:
            process.stdin.close()
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
    flags = ["--enable-prompt-tokens-details", *_reasoning_parser(config), *revision, *config.serve_flags]
    names = _values(config.serve_args, "--served-model-name")
    if names and config.model not in names:
        raise ConfigError(
            f"llm.serve_args: --served-model-name {' '.join(names)} must contain llm.model={config.model}"
        )
    return [*program, "serve", config.model, "--host", HOST, "--port", str(port), *flags]


def _reasoning_parser(config: OpenAIConfig) -> list[str]:
    """The flag without which vLLM puts the schema on the reasoning too, so that there is none."""
    if config.thinking != "on" or config.structured == "plain" or _values(config.serve_args, "--reasoning-parser"):
        return []
    if "qwen3" in config.model.lower():
        return ["--reasoning-parser", "qwen3"]
    raise ConfigError(
        "llm.thinking=on with llm.serve=auto needs llm.serve_args=[--reasoning-parser, NAME] (vLLM's name for the "
        "model's family), or llm.structured=plain"
    )


def _values(arguments: Sequence[str], flag: str) -> list[str]:
    """The values of a flag, given as `--flag a b` or as `--flag=a`."""
    found: list[str] = []
    reading = False
    for word in arguments:
        name, equals, value = word.replace("_", "-").partition("=")
        if word.startswith("--"):
            reading = name == flag
            found += [word.partition("=")[2]] if reading and equals and value else []
        elif reading:
            found.append(word)
    return found


def shown(command: Sequence[str]) -> str:
    """A command as it may be shown and kept: without the values of flags that take secrets."""
    words = (word if "***" in word else shlex.quote(word) for word in redact_command(command))
    return one_line(" ".join(words), 2000)


def _masked(text: str, command: Sequence[str]) -> str:
    """`text` of the server's log without the secrets of its command line, which servers print."""
    for hidden in after_secret_flags(command):
        text = text.replace(hidden, "***") if len(hidden) >= SHORTEST_SECRET else text
    return text


async def find_or_start(config: OpenAIConfig, log_dir: Path) -> VLLMServer:
    """A server of the model: one that runs (at `base_url`, or on the default port), else one started now.

    A running server is not used when `revision` or `serve_args` are set, because it cannot be asked what it was started
    with. Raises ConfigError with the end of the log when the started one does not come up in `serve_timeout_s`.
    """
    if not (config.revision or config.serve_args):
        for url in config.urls or (f"http://{HOST}:{DEFAULT_PORT}/v1",):
            if config.model in await _running(url, config):
                return VLLMServer(url.rstrip("/"))
    return await start(config, log_dir)


async def _running(url: str, config: OpenAIConfig) -> tuple[str, ...]:
    """Models of a server that runs; empty when there is none. A busy one is waited for, because a second server on the
    same GPU would end both."""
    seen = Seen("absent")
    for timeout_s in ANSWER_S:
        seen = await asyncio.to_thread(_look, url, config, timeout_s)
        if seen.state != "busy":
            break
    if seen.state == "locked" and config.urls:
        raise ConfigError(f"llm.base_url: {one_line(url)} {_wants_key(config)}")
    return seen.models


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
        says = server.log_says()
        server.stop()
        if last or port is not None or "address already in use" not in says.lower():
            break  # else somebody took the free port between our look and the server's: try another one
    raise ConfigError(f"llm.serve=auto: `{shown(server.command)}` {problem}; {says}")


def _launch(config: OpenAIConfig, log_dir: Path, port: int) -> VLLMServer:
    command = command_line(config, port)
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        log = log_dir / f"server-{os.getpid()}-{port}.log"
        log.write_text(f"$ {shown(command)}\n", encoding="utf-8")
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
        seen = await asyncio.to_thread(_look, server.url, config, 5.0)
        if seen.state == "locked":
            return _wants_key(config)
        if seen.models:
            return None if config.model in seen.models else f"serves {', '.join(seen.models)} instead of {config.model}"
        await asyncio.sleep(0.25)
    return f"did not answer in {config.serve_timeout_s:g} s (llm.serve_timeout_s)"


def _wants_key(config: OpenAIConfig) -> str:
    if config.api_key_env is None:
        return "wants a key; name its environment variable in llm.api_key_env (VLLM_API_KEY for vLLM's own)"
    return f"refuses the key in {config.api_key_env} (llm.api_key_env)"


class Seen(NamedTuple):
    """What is at an address: nothing of use, something that takes connections but is slow, a server that wants another
    key, or a healthy server and the ids of its models."""

    state: Literal["absent", "busy", "locked", "up"]
    models: tuple[str, ...] = ()


def _look(url: str, config: OpenAIConfig, timeout_s: float) -> Seen:
    root = url.rstrip("/").removesuffix("/v1")
    parts = urlsplit(root)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except OSError:
        return Seen("absent")
    try:
        _get(f"{root}/health", config, timeout_s)
        data = json.loads(_get(f"{root}/v1/models", config, timeout_s))["data"]
        return Seen("up", tuple(str(item["id"]) for item in data))
    except urllib.error.HTTPError as error:
        return Seen("locked" if error.code in (401, 403) else "absent")
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        slow = isinstance(getattr(error, "reason", error), TimeoutError)
        return Seen("busy" if slow else "absent")


def _get(url: str, config: OpenAIConfig, timeout_s: float) -> bytes:
    key = os.environ.get(config.api_key_env, "") if config.api_key_env else ""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout_s) as response:
        return bytes(response.read())


def _last_errors(lines: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """What the last lines with an error say, each once, in order."""
    said = [match.group() for line in lines if (match := pattern.search(line))]
    return list(dict.fromkeys(reversed(said)))[:ERROR_LINES][::-1]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])
