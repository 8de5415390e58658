"""Runs on a loopback server that misbehaves: nothing may be dropped, and trouble that passes may change nothing.

Three runs of MemFly on the bundled sample, or on the data given: a well server; one whose faults pass (429, 500, dropped
connections, slow replies, 20 % in all), whose answers.jsonl must equal the first byte for byte; one with mixed faults that
spoil replies too (20 %: cut, garbage, empty, wrong schema besides), where every question must end as answered or as a
counted error. Run: python -m scripts.bench.fault_runs [data=locomo10 data.path=FILE data.conversations=[conv-26]]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.records import read_answers
from eval.runner import RunResult, execute
from scripts.bench.bench_throughput import config
from tests.support.fake_openai import FakeOpenAI

PASSING = {"429": 0.08, "500": 0.06, "drop": 0.04, "slow": 0.02}
MIXED = {
    "429": 0.05, "500": 0.03, "drop": 0.02, "slow": 0.01,
    "truncated": 0.03, "garbage": 0.02, "empty": 0.02, "wrong_schema": 0.02,
}  # fmt: skip


def run(
    rates: Mapping[str, float], overrides: list[str], root: Path, concurrency: int
) -> tuple[RunResult, dict[str, int]]:
    """One run, and how often the server served each kind of reply."""
    with FakeOpenAI(rates=dict(rates), seed=1, slow_s=0.2) as server:
        started = time.monotonic()
        result = execute(config(server.url, root, concurrency, overrides))
        kinds = dict(sorted(server.kinds.items()))
    print(f"{len(server.requests)} requests in {time.monotonic() - started:.0f} s, served {kinds}", flush=True)
    return result, kinds


def states(result: RunResult) -> dict[str, Any]:
    """Questions by how they ended; raises AssertionError when one is missing or counted wrongly."""
    records, summary = read_answers(result.folder), result.summary
    failed = [record for record in records if record.state == "error"]
    assert len(records) == len({record.id for record in records}) == summary["n_questions"], "a question is missing"
    assert summary["n_error"] == len(failed), "an error is not counted"
    assert all(record.error is not None for record in failed)
    assert all(record.prediction is not None for record in records if record.state == "answered")
    return {"questions": len(records), "answered": len(records) - len(failed), "errors": summary["errors"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, e.g. data=locomo10 data.path=FILE")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        clean, _ = run({}, chosen.overrides, root / "clean", chosen.concurrency)
        passing, kinds = run(PASSING, chosen.overrides, root / "passing", chosen.concurrency)
        assert all(kinds[kind] for kind in PASSING), "a fault was never served"
        same = (passing.folder / "answers.jsonl").read_bytes() == (clean.folder / "answers.jsonl").read_bytes()
        retries = passing.summary["process"]["paid"]["retries"]
        print(f"faults that pass: {states(passing)}, {retries} retries; answers.jsonl equal: {same}", flush=True)
        mixed, kinds = run(MIXED, chosen.overrides, root / "mixed", chosen.concurrency)
        assert all(kinds[kind] for kind in MIXED), "a fault was never served"
        print(f"mixed faults: {states(mixed)}; unusable replies {json.dumps(mixed.summary['parse_failures'])}, "
              f"cut {json.dumps(mixed.summary['truncated'])}")  # fmt: skip
        assert same, "faults that pass changed an answer"


if __name__ == "__main__":
    main()
