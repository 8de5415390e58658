"""What the reply cache adds to a call, measured beside the same calls without it, in one run.

    python scripts/bench/bench_cache.py [--calls 2000] [--repeats 5]

Prints microseconds per call for the bare backend, a miss (call and store) and a hit, and their differences to the bare
backend; medians over the repeats, whose order alternates. The backend answers at once, so all of a difference is the
cache's own work (hashing the call, SQLite, the commit).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memfly.llm.base import Backend, Call, Reply
from memfly.llm.cache import Cache
from memfly.tasks.gate import GATE, GateCandidate, GateInput
from memfly.types import Usage


class Instant:
    """A backend that answers at once."""

    identity: Mapping[str, Any] = {"kind": "instant"}

    async def complete(self, call: Call) -> Reply:
        return Reply('{"verdicts": []}', usage=Usage(500, 100), model="instant")

    async def aclose(self) -> None:
        pass


def calls(count: int) -> list[Call]:
    """Gate calls of usual size (7 candidates), each different."""
    stored = tuple(
        GateCandidate(i, "8 May, 2023", "A stored note of some length about a plan.", ("a", "b")) for i in range(7)
    )
    made = []
    for number in range(count):
        value = GateInput("9 May, 2023", f"Note number {number} about something that happened", ("note",), stored)
        messages = (("system", GATE.system), ("user", GATE.render(value)))
        made.append(Call(GATE, value, messages, 0.0, GATE.max_tokens, number))
    return made


async def per_call_us(backend: Backend, count: int) -> float:
    work = calls(count)
    start = time.perf_counter()
    for call in work:
        await backend.complete(call)
    return (time.perf_counter() - start) / count * 1e6


async def measure(count: int, repeats: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"bare": [], "miss": [], "hit": []}
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            cache = Cache(Instant(), Path(folder))
            if repeat % 2:
                times["bare"].append(await per_call_us(Instant(), count))
            times["miss"].append(await per_call_us(cache, count))
            times["hit"].append(await per_call_us(cache, count))
            if not repeat % 2:
                times["bare"].append(await per_call_us(Instant(), count))
            await cache.aclose()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    medians = {k: statistics.median(v) for k, v in asyncio.run(measure(options.calls, options.repeats)).items()}
    for name, value in medians.items():
        print(f"{name:5} {value:8.1f} us/call   cache adds {value - medians['bare']:8.1f} us")
    added = medians["miss"] - medians["bare"]
    print(f"of a call of 0.5 s a hit takes {medians['hit'] / 5e5:.4%}, and a miss adds {added / 5e5:.4%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
