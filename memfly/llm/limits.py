"""Keeps calls within what a server and a purse can take: concurrency, requests and tokens per minute, and a hard budget.

Concurrency adapts (additive increase, multiplicative decrease) to refusals and to latency, and a server's Retry-After
stops all calls until then. When the money is spent no further call starts, and those under way are waited for. Nothing
is retried here, and no reply is changed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from memfly.errors import BackendError, BudgetExceeded
from memfly.llm.base import Backend, Call, Reply
from memfly.llm.budget import Budget
from memfly.llm.prices import FREE, Price
from memfly.llm.wire import prompt_tokens
from memfly.types import Usage


class Slots:
    """At most `cap` holders at a time, first come first served; `cap` moves between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.cap = float(most)
        self.held = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        if not self._queue and self.held < int(self.cap):
            self.held += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot had been handed over in the same tick
            raise

    def release(self) -> None:
        self.held -= 1
        self._hand_over()

    def grow(self, by: float) -> None:
        self.cap = min(float(self.most), self.cap + by)
        self._hand_over()

    def shrink(self, cap: float) -> None:
        """Down to `cap`, but not below one; who holds a slot keeps it."""
        self.cap = max(1.0, min(self.cap, cap))

    def _hand_over(self) -> None:
        while self._queue and self.held < int(self.cap):
            turn = self._queue.popleft()
            if not turn.done():
                self.held += 1
                turn.set_result(None)


class Adapter:
    """Moves the cap of `slots`; every success grows it again.

    A 429, a timeout or an overloaded server (503) takes 30 % off, once per wave: calls begun before a cut say nothing
    about the new cap. Latency is judged by windows of four calls per slot, by the mean of its logarithm relative to what
    the same task took in the base window: long replies then weigh no more than short ones, and a task that is slow by
    nature is not slow by load. The base window runs at a quarter of `most`, where a run starts; after it the cap doubles
    every round until the first cut, and grows by one from then on. Only a window twice as slow as the base, in which no
    more got done than at about half its cap, cuts: what waits in the server's queue may as well wait here. Latency never
    cuts below that quarter, and what keeps the cap down is measured anew from there after `patience` windows.
    """

    worse, slower = math.log(2.0), math.log(1.4)
    """Excess of latency (as a logarithm) that cuts, and that stops growth, unless more gets done."""
    patience = 20

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.floor = float(max(1, math.ceil(slots.most / 4)))
        self.cut_at = -math.inf
        self._base: dict[str, float] = {}
        self._seen: deque[tuple[float, float]] = deque(maxlen=self.patience)
        self._held = self._begun = 0
        self._cut(self.floor)
        self._grows, self._doubles = self.floor >= slots.most, True

    def began(self, now: float) -> bool:
        """Whether the call that begins now is one of the window's. A window takes calls in the order they begin, since
        the first to end are the short ones."""
        if self._begun >= 4 * int(self.slots.cap):
            return False
        if self._begun == 0:
            self._opened = now
        self._begun += 1
        return True

    def refused(self, began: float, now: float) -> None:
        if began > self.cut_at:
            self.cut_at = now
            self._cut(0.7 * self.slots.cap)
            self._grows = True

    def ended(self, counts: bool, began: float, task: str, latency_s: float | None) -> None:
        """A call is over, with a reply (its latency) or without. `counts` is what `began` said."""
        if latency_s is not None and self._grows:
            self.slots.grow(1.0 if self._doubles else 1 / self.slots.cap)
        if not counts or began < self._opened:
            return
        self._ended += 1
        if latency_s is not None:
            self._window.setdefault(task, []).append(math.log(max(latency_s, 1e-3)))
        if 8 * self._ended >= 28 * int(self.slots.cap):  # seven eighths: the last stragglers are not waited for
            self._judge({task: sum(logs) / len(logs) for task, logs in self._window.items()})

    def _judge(self, means: dict[str, float]) -> None:
        """Compare the window with the base and with windows at a smaller cap, then open the next."""
        cap = self.slots.cap
        at_floor = cap <= self.floor
        if at_floor:
            self._seen.clear()
        for task, mean in means.items():
            if at_floor or task not in self._base:
                self._base[task] = mean
        n = sum(map(len, self._window.values()))
        excess = sum(len(self._window[task]) * (mean - self._base[task]) for task, mean in means.items()) / max(n, 1)
        done = math.log(cap) - excess  # by Little's law: calls per second, in units of the base latency
        smaller = [other for c, other in self._seen if 0.4 * cap <= c <= 0.8 * cap]
        more = bool(smaller) and done > sum(smaller) / len(smaller) + 0.08
        self._seen.append((cap, done))
        self._grows = more or excess < self.slower
        self._held = 0 if self._grows else self._held + 1
        if self._held >= self.patience:
            self._cut(self.floor)
        elif excess > self.worse and not more:
            self._cut(max(self.floor, cap / math.exp(excess)))
        else:
            self._open()

    def _cut(self, cap: float) -> None:
        self.slots.shrink(cap)
        self._grows = self.slots.cap > self.floor  # at the floor the base is measured before the cap moves
        self._doubles, self._held = False, 0
        self._open()

    def _open(self) -> None:
        self._window: dict[str, list[float]] = {}
        self._opened = math.inf
        self._begun = self._ended = 0


class Bucket:
    """A token bucket: `per_minute` units flow in evenly, a tenth of a minute's worth may be used at once."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self.rate = per_minute / 60
        self.size = max(1.0, per_minute / 10)
        self.level = self.size
        self.clock = clock
        self._last = clock()

    def take(self, amount: float) -> float:
        """Take `amount` and give the seconds to wait before using it; the debt keeps later takers behind earlier ones."""
        now = self.clock()
        self.level = min(self.size, self.level + (now - self._last) * self.rate)
        self._last = now
        self.level -= amount
        return max(0.0, -self.level / self.rate)

    def give_back(self, amount: float) -> None:
        self.level = min(self.size, self.level + amount)


OVERLOADED = frozenset({"rate_limit", "timeout", "overloaded"})
"""Kinds of failure that mean fewer calls at once."""

LONGEST_PAUSE_S = 60.0
"""A server that asks for more is asked again after this: the limit may belong to one kind of call only."""


class Limits:
    """The layer. `price` is what the budget's dollars are counted by; `reasoning_tokens` is what the backend adds to a
    call's token limit for thinking."""

    def __init__(
        self,
        inner: Backend,
        *,
        max_concurrency: int,
        rpm: float | None = None,
        tpm: float | None = None,
        budget: Budget | None = None,
        price: Price = FREE,
        adaptive: bool = True,
        reasoning_tokens: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self.slots = Slots(max_concurrency)
        self.adapter = Adapter(self.slots) if adaptive else None
        self.budget = budget
        self.price = price
        self.reasoning_tokens = reasoning_tokens
        self._requests = Bucket(rpm, clock) if rpm else None
        self._tokens = Bucket(tpm, clock) if tpm else None
        self._sleep = sleep
        self._clock = clock
        self._scale = 1.0
        self._resume_at = -math.inf
        self._stop: BudgetExceeded | None = None
        self._under_way = 0
        self._quiet = asyncio.Event()

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    async def complete(self, call: Call) -> Reply:
        """As the inner backend. Raises BudgetExceeded for a call that the budget cannot pay, and for every one after
        it, but not before all calls under way have ended: a caller that gives up then loses nothing that was paid."""
        try:
            self._go_on()
            return await self._admitted(call)
        except BudgetExceeded as error:
            self._stop = self._stop or error
            while self._under_way:
                self._quiet.clear()
                await self._quiet.wait()
            raise

    def _go_on(self) -> None:
        if self._stop is not None:
            raise BudgetExceeded(str(self._stop))

    async def _admitted(self, call: Call) -> Reply:
        """The call, once it has a slot, the rates allow it, the server does not ask to wait, and it can be paid. What it
        may use is estimated only then, by the latest count."""
        await self.slots.acquire()
        try:
            most = self._most(call)
            await self._calm()
            await self._pace(most)
            await self._calm()  # the server may have asked to wait meanwhile
            return await self._paid(call, most)
        finally:
            self.slots.release()

    async def _calm(self) -> None:
        while (wait := self._resume_at - self._clock()) > 0:
            await self._sleep(wait)

    async def _paid(self, call: Call, most: Usage) -> Reply:
        if self.budget is None:
            return await self._made(call, most)
        reserved = (self.price.cost(most), _total(most))
        await self.budget.reserve(*reserved)
        used = Usage()
        try:
            reply = await self._made(call, most)
            used = reply.usage
            return reply
        except BackendError as error:
            if error.kind == "timeout":  # it may have been answered, and billed, after we stopped listening
                used = most
            raise
        finally:
            self.budget.settle(*reserved, self.price.cost(used), _total(used))

    async def _made(self, call: Call, most: Usage) -> Reply:
        self._go_on()
        self._under_way += 1
        try:
            reply = await self._timed(call)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
        if most.prompt_tokens:
            self._scale = max(self._scale, reply.usage.prompt_tokens / max(prompt_tokens(call), 1))
        if self._tokens is not None:
            self._tokens.give_back(_total(most) - _total(reply.usage))
        return reply

    async def _timed(self, call: Call) -> Reply:
        began, latency_s = self._clock(), None
        counts = self.adapter is not None and self.adapter.began(began)
        try:
            reply = await self.inner.complete(call)
            latency_s = (
                reply.latency_s or self._clock() - began
            )  # the call's own: not the start of the server before it
            return reply
        except BackendError as error:
            now = self._clock()
            if error.kind == "rate_limit" and error.retry_after:
                self._resume_at = max(self._resume_at, now + min(error.retry_after, LONGEST_PAUSE_S))
            if self.adapter is not None and error.kind in OVERLOADED:
                self.adapter.refused(began, now)
            raise
        finally:
            if self.adapter is not None:
                self.adapter.ended(counts, began, call.task.name, latency_s)

    async def _pace(self, most: Usage) -> None:
        waits = [
            bucket.take(n) for bucket, n in ((self._requests, 1), (self._tokens, _total(most))) if bucket is not None
        ]
        if waits and max(waits) > 0:
            await self._sleep(max(waits))

    def _most(self, call: Call) -> Usage:
        """The most a call can use: its estimated prompt and its whole token limit. Estimated only when needed, and by
        the largest excess seen so far of the server's count over the estimate (another vocabulary, a longer template)."""
        if self.budget is None and self._tokens is None:
            return Usage()
        return Usage(
            math.ceil(self._scale * prompt_tokens(call)), call.max_tokens + self.reasoning_tokens, 0, estimated=True
        )

    async def aclose(self) -> None:
        await self.inner.aclose()


def _total(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens
