"""Concurrency, rates and the budget: never more than allowed, never stuck, never lost."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from memfly.errors import BackendError, BudgetExceeded
from memfly.llm.base import Call, Reply
from memfly.llm.budget import Budget, forget_budgets, shared_budget
from memfly.llm.config import BudgetConfig, RetryConfig
from memfly.llm.limits import Adapter, Bucket, Limits, Slots
from memfly.llm.prices import Price
from memfly.llm.retry import Retry
from memfly.llm.wire import prompt_tokens
from memfly.types import Usage
from tests.support.calls import GOOD, Clock, Inner, toy_call, transient


class VirtualClock:
    """Time that jumps to the next one who sleeps, once nothing else can run; any number may sleep at once."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, self._count, turn))
        await turn

    async def advance(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)
        if self._sleepers:
            self.time, _, turn = heapq.heappop(self._sleepers)
            if not turn.done():
                turn.set_result(None)


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


Latency = Callable[[random.Random, int], float]
"""Seconds of a call, from a draw and the number of calls in flight when it begins."""


@dataclass
class Run:
    """A closed loop in virtual time: as many calls as the cap allows, each ended after its latency."""

    latency: Latency
    calls: int = 6000
    most: int = 64
    seed: int = 1
    refused_at: int | None = None
    """This call, by its end, is refused with a 429."""
    capacity: int | None = None
    """Calls beyond this many in flight are refused."""
    up_at: float = 0.0
    """The server starts answering then."""
    seconds: float = 0.0
    caps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw, slots = random.Random(self.seed), Slots(self.most)
        adapter = Adapter(slots)
        flights: list[tuple[float, int, float, bool, bool]] = []
        now, begun, done = 0.0, 0, 0
        while done < self.calls:
            while len(flights) < int(slots.cap) and done + len(flights) < self.calls:
                counts, refused = adapter.began(now), bool(self.capacity and len(flights) >= self.capacity)
                end = now + 0.05 if refused else max(now, self.up_at) + self.latency(draw, len(flights) + 1)
                heapq.heappush(flights, (end, begun, now, counts, refused))
                begun += 1
            now, _, began, counts, refused = heapq.heappop(flights)
            done += not refused
            if refused or done == self.refused_at:
                adapter.refused(began, now)
                adapter.ended(counts, began, "toy", None)
            else:
                adapter.ended(counts, began, "toy", now - began)
            self.caps.append(slots.cap)
        self.seconds = now

    @property
    def settled(self) -> float:
        """Mean cap over the second half."""
        half = self.caps[len(self.caps) // 2 :]
        return sum(half) / len(half)


def lognormal(sigma: float) -> Latency:
    return lambda draw, _: draw.lognormvariate(0, sigma)


def one_of(share: float, other: float, usual: float) -> Latency:
    return lambda draw, _: other if draw.random() < share else usual


SPREADS = {
    **{f"sigma {sigma}": lognormal(sigma) for sigma in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)},
    "constant": lambda draw, _: 1.0,
    "1 % tiny": one_of(0.01, 0.1, 1.2),
    "10 % long": one_of(0.1, 8.0, 0.3),
    "30 % long": one_of(0.3, 8.0, 0.3),
}


@pytest.mark.parametrize("refused_at", [None, 300])
@pytest.mark.parametrize("name", SPREADS)
def test_the_length_of_replies_alone_does_not_throttle(name: str, refused_at: int | None) -> None:
    latency, draw = SPREADS[name], random.Random(9)
    ideal = 6000 / 64 * sum(latency(draw, 1) for _ in range(40_000)) / 40_000
    for seed in range(3):
        run = Run(latency, seed=seed, refused_at=refused_at)
        assert run.seconds < 1.3 * ideal
        assert max(run.caps[-1000:]) == 64


@pytest.mark.parametrize("up_at", [120.0, 300.0])
def test_waiting_for_a_server_to_start_does_not_throttle(up_at: float) -> None:
    run = Run(lognormal(0.5), up_at=up_at)
    assert run.seconds < 1.3 * (up_at + 6000 / 64 * 1.13)
    assert run.caps[-1] == 64


@pytest.mark.parametrize("spread", ["constant", "sigma 0.5"])
@pytest.mark.parametrize("capacity", [20, 24, 32])
def test_calls_that_would_only_queue_at_the_server_are_kept_back(capacity: int, spread: str) -> None:
    """Up to twice the server's own number is kept in flight: less is no gain, more shows as latency only."""
    single = SPREADS[spread]
    run = Run(lambda draw, n: single(draw, n) * max(1.0, n / capacity), calls=20_000)
    assert capacity < run.settled < 2 * capacity
    idle = Run(single, calls=20_000, most=capacity)
    assert run.seconds < 1.15 * idle.seconds


def test_a_server_that_batches_keeps_all_its_calls() -> None:
    """Latency grows with load, but so does what gets done."""
    run = Run(lambda draw, n: draw.lognormvariate(0, 0.5) * (1 + n / 32), calls=20_000)
    assert run.settled > 45
    assert run.seconds < 1.2 * 20_000 / 64 * 3 * math.exp(0.5**2 / 2)  # as with all 64 from the start


@pytest.mark.parametrize("capacity", [8, 16, 32, 48])
def test_a_server_that_refuses_beyond_a_number_gets_about_that_number(capacity: int) -> None:
    run = Run(lognormal(0.5), calls=20_000, capacity=capacity)
    assert 0.8 * capacity < run.settled < 1.1 * capacity


def test_a_server_that_was_slow_for_a_while_gets_all_calls_again() -> None:
    slow_from, slow_to, seen = 2000, 4000, 0

    def latency(draw: random.Random, n: int) -> float:
        nonlocal seen
        seen += 1
        return draw.lognormvariate(0, 0.5) * (max(1.0, n / 8) if slow_from < seen < slow_to else 1.0)

    run = Run(latency, calls=20_000)
    assert min(run.caps[2500:4000]) < 40
    assert run.caps[-1] == 64


def test_a_server_that_is_slower_for_good_gets_all_calls_again() -> None:
    """Longer prompts, or another user of the same machine: no reason to send fewer calls for ever."""
    seen = 0

    def latency(draw: random.Random, _: int) -> float:
        nonlocal seen
        seen += 1
        return draw.lognormvariate(0, 0.5) * (4.0 if seen > 3000 else 1.0)

    assert Run(latency, calls=12_000).caps[-1] == 64


def test_a_429_lowers_concurrency_once_per_wave() -> None:
    slots = Slots(4)
    adapter = Adapter(slots)
    slots.cap = 4.0
    for _ in range(5):  # five calls begun together are refused together: one signal, not five
        adapter.refused(began=10.0, now=11.0)
    assert slots.cap == pytest.approx(2.8)
    adapter.refused(began=12.0, now=13.0)
    assert slots.cap == pytest.approx(1.96)


def test_a_task_slow_by_nature_is_not_slow_by_load() -> None:
    slots = Slots(16)
    adapter = Adapter(slots)
    for i in range(400):
        task, latency = ("short", 1.0) if i < 200 else ("long", 20.0)
        adapter.ended(adapter.began(float(i)), float(i), task, latency)
    assert slots.cap == 16


@pytest.mark.parametrize("kind", ["rate_limit", "timeout", "overloaded"])
async def test_which_failures_mean_fewer_calls(kind: str) -> None:
    layer = Limits(Inner([*[GOOD] * 40, transient("server")]), max_concurrency=8)
    await many(layer, 41)
    before = layer.slots.cap
    assert before == 8
    layer = Limits(Inner([*[GOOD] * 40, transient(kind)]), max_concurrency=8)
    await many(layer, 41)
    assert layer.slots.cap < before


class RateLimited:
    """A backend with a hard rate: a token bucket, 10 ms a call, and 429 with the time to wait where there is no token."""

    def __init__(self, clock: VirtualClock, rate: float, burst: float, retry_after: float | None) -> None:
        self.identity: dict[str, Any] = {}
        self.clock, self.rate, self.burst, self.retry_after = clock, rate, burst, retry_after
        self.level, self.last, self.requests = burst, clock.time, 0

    async def complete(self, call: Call) -> Reply:
        self.requests += 1
        await self.clock.sleep(0.01)
        self.level = min(self.burst, self.level + (self.clock.time - self.last) * self.rate)
        self.last = self.clock.time
        if self.level < 1:
            raise transient("rate_limit", self.retry_after)
        self.level -= 1
        return GOOD

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("rate", "calls", "slots", "retry_after"),
    [(4, 200, 32, 0.2), (8.3, 400, 32, 1.0), (8.3, 300, 32, 0.1), (3, 150, 16, 1.0), (4, 200, 32, None), (0.5, 160, 16, 20.0)],
)  # fmt: skip
async def test_a_rate_limit_alone_loses_no_call(rate: float, calls: int, slots: int, retry_after: float | None) -> None:
    """The default settings, all calls outstanding at once, as a build with prefetching has them."""
    clock = VirtualClock()
    server = RateLimited(clock, rate, 4, retry_after)
    limits = Limits(server, max_concurrency=slots, sleep=clock.sleep, clock=clock)
    layer = Retry(limits, RetryConfig(), sleep=clock.sleep, clock=clock)
    work = asyncio.gather(*(layer.complete(toy_call(f"call {i}")) for i in range(calls)), return_exceptions=True)
    while not work.done():
        await clock.advance()
    assert [r for r in work.result() if isinstance(r, BaseException)] == []
    if retry_after is not None:
        obeyed = min(rate, server.burst / retry_after)  # a server may ask for longer waits than it needs
        assert clock.time - 1000.0 < 1.2 * calls / obeyed
        assert server.requests < 3.5 * calls


async def test_retry_after_stops_all_calls_and_not_for_longer_than_a_minute() -> None:
    for asked, waited in ((7.0, 7.0), (3600.0, 60.0)):
        clock = Clock()
        inner = Inner([transient("rate_limit", asked), GOOD])
        layer = Limits(inner, max_concurrency=4, sleep=clock.sleep, clock=clock)
        with pytest.raises(BackendError):
            await layer.complete(toy_call("refused"))
        began = clock.time
        await layer.complete(toy_call("another"))
        assert clock.time - began == pytest.approx(waited)


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
    return Limits(inner, max_concurrency=8, budget=Budget(BudgetConfig(**limit)), price=PRICE)


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
    layer = Limits(Inner([CHEAP]), max_concurrency=4, budget=Budget(BudgetConfig(tokens=500)))
    results = await many(layer, 30)
    assert [type(r).__name__ for r in results].count("Reply") in (14, 15, 16)
    assert layer.budget is not None
    assert layer.budget.tokens <= 500


async def test_budget_counts_no_failed_call_and_frees_its_reservation() -> None:
    layer = priced(Inner([transient(), transient(), CHEAP]), usd=0.09)
    results = [(await many(layer, 1))[0] for _ in range(4)]
    assert [type(r).__name__ for r in results] == ["BackendError", "BackendError", "Reply", "BudgetExceeded"]


async def test_a_timeout_costs_what_it_may_have_cost() -> None:
    """A call that was not waited for to the end may have been answered, and billed."""
    layer = priced(Inner([transient("timeout"), CHEAP]), usd=0.09)
    results = [(await many(layer, 1))[0] for _ in range(2)]
    assert [type(r).__name__ for r in results] == ["BackendError", "BudgetExceeded"]


async def first_stop(tasks: list[asyncio.Future[None]]) -> bool:
    """Wait as a run does: until all is done or the budget is reached."""
    try:
        for finished in asyncio.as_completed(tasks):
            await finished
    except BudgetExceeded:
        return True
    return False


async def test_calls_under_way_end_before_the_stop_is_told() -> None:
    """A caller that cancels everything at the first BudgetExceeded, as a run does, loses nothing that was paid."""
    delays = iter([0.01, 0.05, 0.03, *[0.01] * 99])
    inner = Inner([CHEAP], delay=lambda: asyncio.sleep(next(delays)))
    layer = priced(inner, usd=0.25)
    ended: list[str] = []

    async def work(number: int) -> None:
        for step in range(4):
            await layer.complete(toy_call(f"{number} {step}"))
            ended.append(f"{number} {step}")

    tasks = [asyncio.ensure_future(work(i)) for i in range(3)]
    stopped = await first_stop(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert stopped
    assert len(ended) == len(inner.calls) > 3
    assert layer.budget is not None
    assert layer.budget.usd == pytest.approx(0.03 * len(ended))


async def test_after_a_stop_nothing_starts_any_more() -> None:
    inner = Inner([CHEAP])
    layer = priced(inner, usd=0.1)
    with pytest.raises(BudgetExceeded):
        await layer.complete(toy_call("a long prompt " * 50))
    with pytest.raises(BudgetExceeded):
        await layer.complete(toy_call("short"))
    assert inner.calls == []


async def test_a_server_out_of_credit_stops_like_a_budget() -> None:
    inner = Inner(
        lambda call: BudgetExceeded("add credit") if "last" in str(call.input) else GOOD,
        delay=lambda: asyncio.sleep(0.02),
    )
    layer = Limits(inner, max_concurrency=3, adaptive=False)
    slow = asyncio.ensure_future(layer.complete(toy_call("good")))
    await asyncio.sleep(0.01)
    with pytest.raises(BudgetExceeded, match="add credit"):
        await layer.complete(toy_call("last"))
    assert slow.done()
    with pytest.raises(BudgetExceeded, match="add credit"):
        await layer.complete(toy_call("another"))
    assert len(inner.calls) == 2


def test_one_purse_per_process_and_limits() -> None:
    forget_budgets()
    assert shared_budget(BudgetConfig()) is None
    purse = shared_budget(BudgetConfig(usd=1.0))
    assert purse is shared_budget(BudgetConfig(usd=1.0))
    assert purse is not shared_budget(BudgetConfig(usd=2.0))
    forget_budgets()
    assert purse is not shared_budget(BudgetConfig(usd=1.0))


async def test_what_a_run_spent_before_counts_once() -> None:
    budget = Budget(BudgetConfig(usd=0.25))
    for _ in range(2):
        budget.spent_before("run-a", 0.1, 1000)
    budget.spent_before("run-b", 0.05, 500)
    assert (budget.usd, budget.tokens) == (pytest.approx(0.15), 1500)
    layer = Limits(Inner([CHEAP]), max_concurrency=1, budget=budget, price=PRICE)
    await layer.complete(toy_call())
    await layer.complete(toy_call())
    with pytest.raises(BudgetExceeded, match=r"\$0\.2100"):
        await layer.complete(toy_call())


def test_a_purse_serves_one_event_loop_after_the_other() -> None:
    budget = Budget(BudgetConfig(usd=1.0))

    async def job() -> int:
        inner = Inner([CHEAP], delay=lambda: asyncio.sleep(0.001))
        results = await many(Limits(inner, max_concurrency=8, budget=budget, price=PRICE), 20)
        return sum(isinstance(r, Reply) for r in results)

    done = [asyncio.run(job()) for _ in range(3)]
    assert budget.usd == pytest.approx(0.03 * sum(done))
    assert 0.85 < budget.usd <= 1.0


async def test_estimates_follow_a_server_that_counts_more() -> None:
    long = replace(GOOD, usage=Usage(500, 20))
    layer = priced(Inner([long]), usd=2.0)
    results = [(await many(layer, 1))[0] for _ in range(6)]
    assert layer.budget is not None
    assert layer.budget.usd == pytest.approx(3 * 0.52)  # a fourth could not be known to fit
    assert [type(r).__name__ for r in results].count("Reply") == 3


async def test_one_server_s_larger_count_is_learnt_once_however_many_calls_wait() -> None:
    """200 calls wait for two slots; the server counts a tenth more than the estimate. The estimate must end a tenth
    higher, not at 1.1 ** 200, which would stop the run at once and pace it for days."""
    estimate = prompt_tokens(toy_call("call 0"))
    counted = math.ceil(1.1 * estimate)
    inner = Inner([replace(GOOD, usage=Usage(counted, 20))], delay=lambda: asyncio.sleep(0))
    layer = Limits(inner, max_concurrency=2, budget=Budget(BudgetConfig(tokens=400 * (counted + 20))))
    results = await many(layer, 200)
    assert all(isinstance(r, Reply) for r in results)
    assert layer._scale == pytest.approx(counted / estimate)
    assert layer.budget is not None
    assert layer.budget.tokens == 200 * (counted + 20)


async def test_a_call_that_waits_for_its_turn_also_waits_for_the_server() -> None:
    """Asked to hold off while it waits for the rate, a call holds off."""
    clock = Clock()
    layer = Limits(Inner(), max_concurrency=1, rpm=60, sleep=clock.sleep, clock=clock)
    for i in range(6):
        await layer.complete(toy_call(str(i)))
    real = layer._pace

    async def asked_meanwhile(most: Usage) -> None:
        await real(most)
        layer._resume_at = clock.time + 9.0

    layer._pace = asked_meanwhile  # type: ignore[method-assign]
    began = clock.time
    await layer.complete(toy_call("late"))
    assert clock.time - began >= 10.0


async def test_the_start_of_a_server_is_no_latency() -> None:
    """A reply's own latency counts; what came before it, such as minutes of loading a model, does not."""
    clock = Clock()
    measured = replace(GOOD, latency_s=0.5)
    layer = Limits(
        Inner([measured], delay=lambda: clock.sleep(600.0)), max_concurrency=8, sleep=clock.sleep, clock=clock
    )
    for i in range(8):
        await layer.complete(toy_call(str(i)))
    assert layer.adapter is not None
    assert layer.adapter._base == {toy_call().task.name: pytest.approx(math.log(0.5))}


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
