"""Stands in for the `vllm` program: the command line of `vllm serve`, a server behind it, and trouble on request.

    python tests/support/fake_vllm.py serve MODEL --host 127.0.0.1 --port N [any vLLM flag ...]

Trouble comes through the environment, so that the command line stays vLLM's own: FAKE_VLLM_FAIL=text prints it and exits
with 1; FAKE_VLLM_HANG=1 never answers; FAKE_VLLM_WORKER=file starts a worker process that ignores polite signals, as a
stuck GPU worker would, and writes its pid there; FAKE_VLLM_PID=file gets this process's pid; FAKE_VLLM_SERVES=name is
served whatever was asked for; FAKE_VLLM_DIES=n ends it, without a word, at the request after the n-th. As in vLLM, a key
(--api-key or VLLM_API_KEY) is asked for under /v1 and the arguments are printed, keys included.
"""

# ruff: noqa: T201 - what it prints is the log the tests look at
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_openai import Body, FakeOpenAI

WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model_tag")
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--served-model-name", nargs="+")
    serve.add_argument("--reasoning-parser")
    serve.add_argument("--api-key", default=os.environ.get("VLLM_API_KEY"))
    options, rest = parser.parse_known_args()
    print(f"starting {options.model_tag} on {options.host}:{options.port} with {rest}, {vars(options)}", flush=True)
    if file := os.environ.get("FAKE_VLLM_PID"):
        Path(file).write_text(str(os.getpid()))
    if file := os.environ.get("FAKE_VLLM_WORKER"):
        Path(file).write_text(str(subprocess.Popen([sys.executable, "-c", WORKER]).pid))
    if text := os.environ.get("FAKE_VLLM_FAIL"):
        print(text, file=sys.stderr, flush=True)
        return 1
    if options.host != "127.0.0.1":
        print("refusing to listen anywhere but on loopback", file=sys.stderr)
        return 2
    if os.environ.get("FAKE_VLLM_HANG"):
        threading.Event().wait()
    models = [os.environ.get("FAKE_VLLM_SERVES") or name for name in options.served_model_name or [options.model_tag]]
    parser, last = bool(options.reasoning_parser), int(os.environ.get("FAKE_VLLM_DIES", "1000000"))

    def die_or_answer(number: int, _body: Body) -> str:
        if number >= last:
            os._exit(7)
        return "json"

    with FakeOpenAI(
        port=options.port, models=models, reasoning_parser=parser, needs_key=options.api_key, script=die_or_answer
    ):
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
