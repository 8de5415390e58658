"""`memfly serve qwen3-8b`: starts the vLLM server of a preset and keeps it until Ctrl-C, for runs to reuse."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from memfly.errors import ConfigError
from memfly.llm import vllm_server
from memfly.llm.config import OpenAIConfig, llm_config
from scripts.parser import Parser
from scripts.run import compose


def main(arguments: list[str]) -> int:
    parser = Parser(prog="memfly serve", description=__doc__)
    parser.add_argument(
        "preset", help="an llm preset that vLLM can serve: qwen3-8b, qwen3-14b, or openai llm.model=NAME"
    )
    parser.add_argument("--port", type=int, default=vllm_server.DEFAULT_PORT)
    parser.add_argument("--logs", type=Path, default=Path("results/runs/cache"), help="folder of the server's log")
    parser.add_argument(
        "overrides", nargs="*", help='Hydra overrides, e.g. llm.serve_args=[--tensor-parallel-size,"2"]'
    )
    chosen = parser.parse_intermixed_args(arguments)
    config = llm_config(compose([f"llm={chosen.preset}", *chosen.overrides])["llm"])
    if not isinstance(config, OpenAIConfig):
        raise ConfigError(f"serve: llm={chosen.preset} is no served model; try qwen3-8b or qwen3-14b")
    print(vllm_server.shown(vllm_server.command_line(config, chosen.port)), flush=True)
    server = asyncio.run(vllm_server.start(config, chosen.logs, chosen.port))
    try:
        print(f"serving {config.model} at {server.url}; log {server.log}; Ctrl-C stops it", flush=True)
        while server.exit_code is None:
            time.sleep(1)
        raise ConfigError(f"serve: the server {server.post_mortem()}")
    finally:
        server.stop()


if __name__ == "__main__":
    from scripts.cli import guarded

    sys.exit(guarded(main, sys.argv[1:]))
