"""Kills runs at random moments of every phase and resumes them: nothing may be lost, changed, or paid for twice.

Every trial starts `memfly run` on a loopback server and kills it with SIGKILL three times, at a random moment of the build, of
the answering and of the scoring, then lets it end. Then answers.jsonl and summary.json must equal the uninterrupted run's
(timing fields aside), and the server must not have been asked for more than what was in flight at each kill.
Run: python -m scripts.bench.kill_runs
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_openai import FakeOpenAI, from_schema

CONCURRENCY = 8
KINDS = (b"build_start", b"build_end", b"answer")
"""Events that tell the phase."""

PHASES = ("start", "build", "answer", "score", "end")
POLL_S = 0.002
"""Between two looks at a run's folder: well below the length of the shortest phase, scoring."""


@dataclass(frozen=True)
class Outcome:
    calls: int
    answers: bytes
    summary: dict[str, Any]
    kills: Counter[str] = field(default_factory=Counter)
    """Kills by the phase they hit, as the folder showed it after the kill."""


class Trial:
    """One run in a root of its own."""

    def __init__(self, root: Path, server: FakeOpenAI, overrides: list[str], n_questions: int) -> None:
        self.root, self.server, self.n_questions = root, server, n_questions
        self._read, self._kinds = 0, Counter[bytes]()
        self.command = [sys.executable, "-m", "scripts.run", "llm=openai", f"llm.base_url={server.url}"]
        self.command += ["llm.model=fake-model", "embedder=hashing", f"run_root={root}", f"concurrency={CONCURRENCY}"]
        self.command += overrides

    def phase(self) -> str:
        """How far the run is, from what stands in its folder. Reads on where the last look ended: it is looked at often,
        by the process that also serves the replies."""
        folder = next(iter(self.root.glob("memfly-*")), None)
        if folder is None:
            return "start"
        if (folder / "summary.json").exists():
            return "end"
        if (folder / "events.jsonl").exists():
            with (folder / "events.jsonl").open("rb") as file:
                file.seek(self._read)
                for line in file.read().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        self._read += len(line)
                        self._kinds.update(kind for kind in KINDS if b'"kind":"%s"' % kind in line)
        if self._kinds[b"answer"] >= self.n_questions:
            return "score"
        if self._kinds[b"build_end"]:
            return "answer"
        return "build" if self._kinds[b"build_start"] else "start"

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def lengths(self) -> dict[str, float]:
        """Run to the end, never killed; the seconds each phase took."""
        process, seconds, before = self.start(), dict.fromkeys(PHASES, 0.0), time.monotonic()
        while process.poll() is None:
            now, at = time.monotonic(), self.phase()
            seconds[at] += now - before
            before = now
            time.sleep(POLL_S)
        ended(process)
        return seconds

    def killed(self, lengths: dict[str, float], draw: Callable[[float, float], float]) -> Outcome:
        """Run to the end, killed once in every phase; a run that is faster than the kill goes unharmed."""
        before, kills = len(self.server.requests), Counter[str]()
        for aim in ("build", "answer", "score"):
            process = self.start()
            while process.poll() is None and PHASES.index(self.phase()) < PHASES.index(aim):
                time.sleep(POLL_S)
            time.sleep(draw(0, 0.8 * lengths[aim]))  # less than all of it: this run may be the faster one
            process.kill()
            if process.wait() < 0:
                kills[self.phase()] += 1
        ended(self.start())
        return self.outcome(before, kills)

    def outcome(self, calls_before: int, kills: Counter[str]) -> Outcome:
        (folder,) = self.root.glob("memfly-*")
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        calls = len(self.server.requests) - calls_before
        return Outcome(calls, (folder / "answers.jsonl").read_bytes(), timeless(summary), kills)


def ended(process: subprocess.Popen[bytes]) -> None:
    _, trouble = process.communicate(timeout=600)
    if process.returncode != 0:
        raise SystemExit(f"a run ended with {process.returncode}: {trouble.decode()[-500:]}")


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without what depends on time or on one process."""
    memory = {k: v for k, v in summary["memory"].items() if k != "build_s"}
    return {k: v for k, v in {**summary, "memory": memory}.items() if k not in ("wall_s", "process")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("overrides", nargs="*", default=["data.conversations=[sample-1]"])
    chosen = parser.parse_args()
    overrides = [*chosen.overrides, f"data.limit_questions={chosen.questions}"]

    async def answer(body: dict[str, Any]) -> str:
        await asyncio.sleep(chosen.latency)
        return from_schema(body)

    with tempfile.TemporaryDirectory() as scratch, FakeOpenAI(answer=answer) as server:
        trial = Trial(Path(scratch) / "whole", server, overrides, chosen.questions)
        lengths = trial.lengths()
        whole = trial.outcome(0, Counter())
        shares = ", ".join(f"{name} {lengths[name]:.2f} s" for name in PHASES)
        print(f"uninterrupted: {whole.calls} calls; {shares}", flush=True)
        draw, kills, extra = random.Random(chosen.seed), Counter[str](), 0
        for number in range(1, chosen.trials + 1):
            found = Trial(Path(scratch) / f"{number}", server, overrides, chosen.questions).killed(
                lengths, draw.uniform
            )
            again, n_kills = found.calls - whole.calls, sum(found.kills.values())
            assert found.answers == whole.answers, f"trial {number}: answers.jsonl differs"
            assert found.summary == whole.summary, f"trial {number}: summary.json differs"
            assert again <= n_kills * CONCURRENCY, f"trial {number}: {again} calls asked again after {n_kills} kills"
            print(f"trial {number}: killed in {by_phase(found.kills)}; equal, {again} calls again", flush=True)
            kills += found.kills
            extra += again
        print(
            f"{chosen.trials} runs killed {sum(kills.values())} times ({by_phase(kills)}) and resumed: answers.jsonl and "
            f"summary.json equal every time; {extra} calls asked again, at most {sum(kills.values()) * CONCURRENCY} "
            "were in flight"
        )


def by_phase(kills: Counter[str]) -> str:
    return ", ".join(f"{name} {kills[name]}" for name in PHASES if kills[name]) or "no phase"


if __name__ == "__main__":
    main()
