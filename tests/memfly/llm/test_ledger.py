"""Latency percentiles and sums of counts."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from memfly.llm.ledger import RoleCount, Tally
from tests.support.calls import GOOD


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_are_right_to_five_per_cent(share: float) -> None:
    draw = random.Random(1)
    latencies = sorted(draw.lognormvariate(0, 1) for _ in range(2000))
    tally = Tally()
    for latency in latencies:
        tally.record("gate", replace(GOOD, latency_s=latency))
    exact = latencies[int(share * 2000) - 1]
    assert tally.role("gate").latency_quantile(share) == pytest.approx(exact, rel=0.05)


def test_no_call_no_quantile_and_cached_replies_have_no_latency() -> None:
    tally = Tally()
    tally.record("gate", replace(GOOD, from_cache=True))
    assert tally.role("gate").latency_quantile(0.5) is None
    assert RoleCount().latency_quantile(0.5) is None


def test_sums_are_the_same_in_parts_and_through_json() -> None:
    replies = [replace(GOOD, latency_s=0.001 * 3**i, tries=i + 1) for i in range(6)]
    whole, parts = Tally(), Tally()
    for reply in replies:
        whole.record("gate", reply)
        part = Tally()
        part.record("gate", reply)
        parts.add(Tally.from_dict(json.loads(json.dumps(part.to_dict()))))
    assert parts == whole
    assert whole.role("gate").retries == 15
    assert "latency_bins" not in whole.logical()["gate"]
