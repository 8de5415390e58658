"""Stands in for the `vllm` program: the command line of `vllm serve`, a server behind it, and trouble on request.

    python tests/support/fake_vllm.py serve MODEL --host 127.0.0.1 --port N [any vLLM flag ...]

Trouble comes through the environment, so that the command line stays vLLM's own: FAKE_VLLM_FAIL=text prints it and exits
with 1; FAKE_VLLM_HANG=1 never answers; FAKE_VLLM_WORKER=file starts a worker process that ignores polite signals, as a
stuck GPU worker would, and writes its pid there; FAKE_VLLM_PID=file gets this process's pid.
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

from tests.support.fake_openai import FakeOpenAI

WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model_tag")
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--served-model-name")
    serve.add_argument("--reasoning-parser")
    options, rest = parser.parse_known_args()
    print(f"starting {options.model_tag} on {options.host}:{options.port} with {rest}", flush=True)
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
    model = options.served_model_name or options.model_tag
    with FakeOpenAI(port=options.port, models=[model], reasoning_parser=bool(options.reasoning_parser)):
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
