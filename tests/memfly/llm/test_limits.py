"""Concurrency, rates and the budget: never more than allowed, never stuck, never lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memfly.errors import BackendError, BudgetExceeded
from memfly.llm.base import Call, Reply
from memfly.llm.config import BudgetConfig
from memfly.llm.limits import Adapter, Bucket, Budget, Limits, Slots
from memfly.llm.prices import FREE, Price
from memfly.types import Usage
from tests.support.calls import GOOD, Clock, Inner, toy_call, transient


async def many(layer: Limits, count: int) -> list[Reply | BaseException]:
    calls = (layer.complete(toy_call(f"call {i}")) for i in range(count))
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_never_more_at_once_than_allowed() -> None:
    inner = Inner(delay=lambda: asyncio.sleep(0.001))
    results = await many(Limits(inner, max_concurrency=3), 30)
    assert results == [GOOD] * 30
    assert inner.most_at_once == 3


async def test_slots_are_first_come_first_served_and_survive_cancellation() -> None:
    slots = Slots(1)
    order: list[int] = []

    async def worker(number: int) -> None:
        await slots.acquire()
        order.append(number)
        await asyncio.sleep(0)
        slots.release()

    tasks = [asyncio.create_task(worker(i)) for i in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 5]
    assert slots.held == 0


async def test_slots_stay_sound_under_random_cancellation() -> None:
    draw = random.Random(5)
    slots = Slots(3)
    inside = most = 0

    async def worker() -> None:
        nonlocal inside, most
        await slots.acquire()
        try:
            inside += 1
            most = max(most, inside)
            for _ in range(draw.randrange(3)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            slots.release()

    tasks = [asyncio.create_task(worker()) for _ in range(200)]
    for _ in range(60):
        await asyncio.sleep(0)
        draw.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (slots.held, inside) == (0, 0)
    assert most == 3


async def test_429_halves_concurrency_once_per_wave_and_success_restores_it() -> None:
    slots = Slots(16)
    adapter = Adapter(slots)
    for _ in range(5):  # five calls begun together are refused together: one signal, not five
        adapter.refused(began=10.0, now=11.0)
    assert slots.cap == 8
    adapter.refused(began=12.0, now=13.0)
    assert slots.cap == 4
    for i in range(400):
        adapter.replied("toy", 1.0, 20.0 + i, 21.0 + i)
    assert slots.cap == 16


async def test_latency_far_above_the_best_lowers_concurrency() -> None:
    slots = Slots(16)
    adapter = Adapter(slots)
    for i in range(20):
        adapter.replied("toy", 1.0, i, i + 0.5)
    for i in range(20, 120):
        adapter.replied("toy", 20.0, i, i + 0.5)
    assert slots.cap < 4
    low = slots.cap
    for i in range(120, 140):
        adapter.replied("long task", 20.0, i, i + 0.5)  # slow by nature is not slow by load
    assert slots.cap > low


async def test_cap_never_falls_below_one_and_work_goes_on() -> None:
    refused = [transient("rate_limit")] * 40
    inner = Inner([*refused, GOOD])
    layer = Limits(inner, max_concurrency=8)
    results = await many(layer, 60)
    assert sum(isinstance(r, BackendError) for r in results) == 40
    assert layer.slots.cap >= 1
    assert layer.slots.held == 0


async def test_requests_per_minute() -> None:
    clock = Clock()
    layer = Limits(Inner(), max_concurrency=100, rpm=60, sleep=clock.sleep, clock=clock)
    for i in range(36):  # 6 at once (a tenth of a minute's worth), then one a second
        await layer.complete(toy_call(str(i)))
    assert clock.time - 1000.0 == pytest.approx(30.0)


async def test_tokens_per_minute_use_real_counts_once_known() -> None:
    clock = Clock()
    small = replace(GOOD, usage=Usage(10, 10))
    layer = Limits(Inner([small]), max_concurrency=1, tpm=600, sleep=clock.sleep, clock=clock)
    for i in range(33):  # 33 x 20 tokens = 660: the first 60 at once, then 10 a second
        await layer.complete(toy_call(str(i)))
    assert clock.time - 1000.0 == pytest.approx(60.0, abs=6.0)


def test_a_bucket_keeps_later_takers_behind_earlier_ones() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    waits = [bucket.take(1) for _ in range(10)]
    assert waits[:6] == [0.0] * 6
    assert waits[6:] == pytest.approx([1.0, 2.0, 3.0, 4.0])


PRICE = Price(prompt=1000.0, cached=500.0, completion=1000.0)  # a tenth of a cent per token


CHEAP = replace(GOOD, usage=Usage(10, 20))


def priced(inner: Inner, **limit: Any) -> Limits:
    return Limits(inner, max_concurrency=8, budget=Budget(BudgetConfig(**limit), PRICE))


async def test_budget_in_dollars_is_never_passed_and_all_paid_replies_arrive() -> None:
    inner = Inner([CHEAP], delay=lambda: asyncio.sleep(0.001))
    layer = priced(inner, usd=1.0)
    results = await many(layer, 40)
    paid = [r for r in results if isinstance(r, Reply)]
    assert all(isinstance(r, Reply | BudgetExceeded) for r in results)
    assert layer.budget is not None
    assert layer.budget.usd == pytest.approx(len(paid) * 0.03)
    assert 0.9 < layer.budget.usd <= 1.0
    assert len(paid) == len(inner.calls)  # nothing was called that was not delivered
    message = str(next(r for r in results if isinstance(r, BudgetExceeded)))
    assert "llm.budget.usd=1" in message
    assert "continues where it stopped" in message


async def test_budget_in_tokens() -> None:
    layer = Limits(Inner([CHEAP]), max_concurrency=4, budget=Budget(BudgetConfig(tokens=500), FREE))
    results = await many(layer, 30)
    assert [type(r).__name__ for r in results].count("Reply") in (14, 15, 16)
    assert layer.budget is not None
    assert layer.budget.tokens <= 500


async def test_budget_counts_no_failed_call_and_frees_its_reservation() -> None:
    layer = priced(Inner([transient(), transient(), CHEAP]), usd=0.09)
    results = [(await many(layer, 1))[0] for _ in range(4)]
    assert [type(r).__name__ for r in results] == ["BackendError", "BackendError", "Reply", "BudgetExceeded"]


async def test_estimates_follow_a_server_that_counts_more() -> None:
    long = replace(GOOD, usage=Usage(500, 20))
    layer = priced(Inner([long]), usd=2.0)
    results = [(await many(layer, 1))[0] for _ in range(6)]
    assert layer.budget is not None
    assert layer.budget.usd == pytest.approx(3 * 0.52)  # a fourth could not be known to fit
    assert [type(r).__name__ for r in results].count("Reply") == 3


async def test_a_zero_budget_allows_no_call() -> None:
    inner = Inner()
    with pytest.raises(BudgetExceeded):
        await priced(inner, usd=0.0).complete(toy_call())
    assert inner.calls == []


@pytest.mark.parametrize("limit", [{"usd": 2.0}, {"tokens": 3000}])
async def test_budget_holds_whatever_calls_cost(limit: dict[str, float]) -> None:
    draw = random.Random(3)

    def outcome(_: Call) -> Reply | Exception:
        if draw.random() < 0.2:
            return transient()
        return replace(GOOD, usage=Usage(10, draw.randrange(1, 50)))

    delay: Callable[[], Any] = lambda: asyncio.sleep(draw.random() * 0.002)  # noqa: E731
    layer = priced(Inner(outcome, delay=delay), **limit)
    results = await many(layer, 300)
    assert layer.budget is not None
    assert layer.budget.usd <= limit.get("usd", 1e9)
    assert layer.budget.tokens <= limit.get("tokens", 1e9)
    assert any(isinstance(r, BudgetExceeded) for r in results)
    assert layer.slots.held == 0
