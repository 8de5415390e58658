"""Kills runs at random moments and resumes them: nothing may be lost, changed, or paid for twice.

Every trial starts `memfly run` on a loopback server, kills it with SIGKILL after a random time, and starts it again, until it
ends by itself. Then answers.jsonl and summary.json must equal the uninterrupted run's (timing fields aside), and the
server must not have been asked for more than what was in flight at each kill. Run: python -m scripts.bench.kill_runs
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.fake_openai import FakeOpenAI, from_schema

CONCURRENCY = 8


@dataclass(frozen=True)
class Outcome:
    kills: int
    calls: int
    answers: bytes
    summary: dict[str, Any]


def trial(root: Path, server: FakeOpenAI, overrides: list[str], draw: random.Random | None, longest: float) -> Outcome:
    """One run to its end, killed on the way whenever `draw` says so (never without one)."""
    command = [sys.executable, "-m", "scripts.run", "llm=openai", f"llm.base_url={server.url}", "llm.model=fake-model"]
    command += ["embedder=hashing", f"run_root={root}", f"concurrency={CONCURRENCY}", *overrides]
    before, kills = len(server.requests), 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, trouble = process.communicate(timeout=draw.uniform(0.5, longest) if draw else 600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        if process.returncode != 0:
            raise SystemExit(f"a run ended with {process.returncode}: {trouble.decode()[-500:]}")
        break
    (folder,) = root.glob("memfly-*")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Outcome(kills, len(server.requests) - before, (folder / "answers.jsonl").read_bytes(), timeless(summary))


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without what depends on time or on one process."""
    memory = {k: v for k, v in summary["memory"].items() if k != "build_s"}
    return {k: v for k, v in {**summary, "memory": memory}.items() if k not in ("wall_s", "process")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("overrides", nargs="*", default=["data.conversations=[sample-1]", "data.limit_questions=20"])
    chosen = parser.parse_args()

    async def answer(body: dict[str, Any]) -> str:
        await asyncio.sleep(chosen.latency)
        return from_schema(body)

    with tempfile.TemporaryDirectory() as scratch, FakeOpenAI(answer=answer) as server:
        started = time.monotonic()
        whole = trial(Path(scratch) / "whole", server, chosen.overrides, None, 0)
        length = time.monotonic() - started
        print(f"uninterrupted: {whole.calls} calls in {length:.1f} s")
        draw, kills, extra = random.Random(chosen.seed), 0, 0
        for number in range(chosen.trials):
            found = trial(Path(scratch) / f"{number}", server, chosen.overrides, draw, length)
            kills += found.kills
            extra += found.calls - whole.calls
            assert found.answers == whole.answers, f"trial {number}: answers.jsonl differs"
            assert found.summary == whole.summary, f"trial {number}: summary.json differs"
            assert found.calls - whole.calls <= found.kills * CONCURRENCY, f"trial {number}: {found.calls} calls paid"
            print(
                f"trial {number + 1}: killed {found.kills} times, equal, {found.calls - whole.calls} calls again",
                flush=True,
            )
        print(
            f"{chosen.trials} runs killed {kills} times in all and resumed: answers.jsonl and summary.json equal every "
            f"time; {extra} calls asked again, at most {kills * CONCURRENCY} were in flight"
        )


if __name__ == "__main__":
    main()
