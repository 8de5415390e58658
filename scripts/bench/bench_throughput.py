"""How much faster one LLM server answers when the harness keeps it busy: the same run, one call at a time and side by side.

A loopback server with a fixed latency per call and room for `--slots` calls at once stands in for the LLM server; its
replies depend on the request alone, so both runs must end with the same answers.jsonl, which is checked. Embeddings are
the hashing encoder's, to leave only the calls. Run from the repository: python -m scripts.bench.bench_throughput
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from eval.config import RunConfig, validate
from eval.locomo import SAMPLE
from eval.runner import execute
from tests.support.fake_openai import FakeOpenAI, from_schema


def config(url: str, root: Path, concurrency: int, overrides: list[str]) -> RunConfig:
    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("conf", version_base="1.3"):
        composed = hydra.compose(
            "config",
            [
                "llm=openai",
                f"llm.base_url={url}",
                "llm.model=fake-model",
                "embedder=hashing",
                f"run_root={root}",
                f"concurrency={concurrency}",
                f"llm.max_concurrency={concurrency}",
                *overrides,
            ],
        )
    plain: Any = OmegaConf.to_container(composed, resolve=True)
    return validate({**plain, "method_name": "memfly", "llm_name": "fake"})


def copies(n: int, folder: Path) -> Path:
    """The bundled sample's two conversations `n` times over, under new ids: as many conversations as LoCoMo at n = 5."""
    samples = json.loads(SAMPLE.read_text(encoding="utf-8"))
    many = [{**sample, "sample_id": f"{sample['sample_id']}-{i}"} for i in range(n) for sample in samples]
    path = folder / "copies.json"
    path.write_text(json.dumps(many), encoding="utf-8")
    return path


def timed(latency: float, slots: int, concurrency: int, overrides: list[str]) -> tuple[float, int, bytes]:
    """(seconds, calls, answers.jsonl) of one run from empty caches."""
    room = asyncio.Semaphore(slots)

    async def answer(body: dict[str, Any]) -> str:
        async with room:
            await asyncio.sleep(latency)
        return from_schema(body)

    with tempfile.TemporaryDirectory() as folder, FakeOpenAI(answer=answer) as server:
        started = time.perf_counter()
        result = execute(config(server.url, Path(folder), concurrency, overrides))
        elapsed = time.perf_counter() - started
        assert result.summary["n_error"] == 0, result.summary["errors"]
        return elapsed, len(server.requests), (result.folder / "answers.jsonl").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.08, help="seconds per call (default 0.08)")
    parser.add_argument("--slots", type=int, default=64, help="calls the server works on at once (default 64)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--copies", type=int, default=1, help="copies of the sample; 5 = ten conversations")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, e.g. data=locomo10 data.path=FILE")
    chosen = parser.parse_args()
    first: tuple[float, int, bytes] | None = None
    scratch = tempfile.TemporaryDirectory()
    overrides = list(chosen.overrides)
    if chosen.copies > 1:
        overrides.append(f"data.path={copies(chosen.copies, Path(scratch.name))}")
    for concurrency in chosen.concurrency:
        seconds, calls, answers = timed(chosen.latency, chosen.slots, concurrency, overrides)
        first = first or (seconds, calls, answers)
        same = "same answers" if answers == first[2] else "DIFFERENT ANSWERS"
        print(
            f"concurrency {concurrency:3d}: {calls} calls in {seconds:6.1f} s, {calls / seconds:6.1f} calls/s, "
            f"ratio {first[0] / seconds:5.1f}, {same}"
        )
    scratch.cleanup()


if __name__ == "__main__":
    main()
