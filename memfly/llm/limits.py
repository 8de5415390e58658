"""Keeps calls within what a server and a purse can take: concurrency, requests and tokens per minute, and a hard budget.

Concurrency adapts (additive increase, multiplicative decrease) to 429s and to latency. Nothing is retried here, and no
reply is changed.
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
from memfly.llm.config import BudgetConfig
from memfly.llm.prices import Price
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

    def grow(self) -> None:
        """One more slot per round of `cap` successes."""
        self.cap = min(float(self.most), self.cap + 1 / self.cap)
        self._hand_over()

    def shrink(self, factor: float) -> None:
        self.cap = max(1.0, self.cap * factor)

    def _hand_over(self) -> None:
        while self._queue and self.held < int(self.cap):
            turn = self._queue.popleft()
            if not turn.done():
                self.held += 1
                turn.set_result(None)


class Adapter:
    """Moves the cap of `slots`. A 429 or a timeout halves it; latency far above what the task took at its best takes a tenth off,
    and latency somewhat above stops its growth. Calls begun before the last cut say nothing about the new cap."""

    slow, too_slow = 4.0, 8.0
    """Multiples of a task's best latency. Generous, because a batching server trades latency for throughput."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.cut_at = float("-inf")
        self._best: dict[str, float] = {}
        self._recent: dict[str, float] = {}

    def refused(self, began: float, now: float) -> None:
        self._cut(0.5, began, now)

    def replied(self, task: str, latency_s: float, began: float, now: float) -> None:
        best = self._best.get(task, latency_s)
        recent = self._recent.get(task, latency_s)
        # the best follows slowly upwards, so that one lucky call does not hold the cap down for ever
        self._best[task] = best = latency_s if latency_s < best else best + 0.001 * (latency_s - best)
        self._recent[task] = recent = recent + 0.1 * (latency_s - recent)
        if recent > self.too_slow * best:
            self._cut(0.9, began, now)
        elif recent <= self.slow * best:
            self.slots.grow()

    def _cut(self, factor: float, began: float, now: float) -> None:
        if began > self.cut_at:
            self.slots.shrink(factor)
            self.cut_at = now


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


class Budget:
    """A hard limit. A call reserves the most it can cost; it waits while calls under way hold the rest, and
    BudgetExceeded is raised once nothing under way could free enough. So the limit itself is never passed (as far as
    the prompt estimate holds), and what has been paid for is always delivered."""

    def __init__(self, config: BudgetConfig, price: Price) -> None:
        self.config = config
        self.price = price
        self.usd = 0.0
        self.tokens = 0
        self._reserved_usd = 0.0
        self._reserved_tokens = 0
        self._changed = asyncio.Event()

    async def reserve(self, most: Usage) -> None:
        usd, tokens = self.price.cost(most), most.prompt_tokens + most.completion_tokens
        while not self._fits(self.usd + self._reserved_usd + usd, self.tokens + self._reserved_tokens + tokens):
            if not self._fits(self.usd + usd, self.tokens + tokens):
                raise BudgetExceeded(self._message())
            self._changed.clear()
            await self._changed.wait()
        self._reserved_usd += usd
        self._reserved_tokens += tokens

    def _fits(self, usd: float, tokens: int) -> bool:
        limit = self.config
        return (limit.usd is None or usd <= limit.usd + 1e-12) and (limit.tokens is None or tokens <= limit.tokens)

    def settle(self, most: Usage, used: Usage | None) -> None:
        """Replace a reservation by what was used; None for a call that gave no reply."""
        self._reserved_usd -= self.price.cost(most)
        self._reserved_tokens -= most.prompt_tokens + most.completion_tokens
        if used is not None:
            self.usd += self.price.cost(used)
            self.tokens += used.prompt_tokens + used.completion_tokens
        self._changed.set()

    def _message(self) -> str:
        parts = []
        if self.config.usd is not None:
            parts.append(f"${self.usd:.4f} of llm.budget.usd={self.config.usd:g}")
        if self.config.tokens is not None:
            parts.append(f"{self.tokens} of llm.budget.tokens={self.config.tokens} tokens")
        return (
            f"budget reached ({', '.join(parts)}); raise it and start the same run again, it continues where it stopped"
        )


class Limits:
    """The layer. `reasoning_tokens` is what the backend adds to a call's token limit for thinking."""

    def __init__(
        self,
        inner: Backend,
        *,
        max_concurrency: int,
        rpm: float | None = None,
        tpm: float | None = None,
        budget: Budget | None = None,
        adaptive: bool = True,
        reasoning_tokens: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self.slots = Slots(max_concurrency)
        self.adapter = Adapter(self.slots) if adaptive else None
        self.budget = budget
        self.reasoning_tokens = reasoning_tokens
        self._requests = Bucket(rpm, clock) if rpm else None
        self._tokens = Bucket(tpm, clock) if tpm else None
        self._sleep = sleep
        self._clock = clock
        self._scale = 1.0

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    async def complete(self, call: Call) -> Reply:
        """As the inner backend; raises BudgetExceeded before a call that the budget cannot pay."""
        most = self._most(call)
        if self.budget is not None:
            await self.budget.reserve(most)
        used: Usage | None = None
        try:
            await self._pace(most)
            await self.slots.acquire()
            try:
                reply = await self._timed(call)
            finally:
                self.slots.release()
            used = reply.usage
            if most.prompt_tokens:
                self._scale = max(self._scale, self._scale * used.prompt_tokens / most.prompt_tokens)
            if self._tokens is not None:
                self._tokens.give_back(_total(most) - _total(used))
            return reply
        finally:
            if self.budget is not None:
                self.budget.settle(most, used)

    async def _timed(self, call: Call) -> Reply:
        began = self._clock()
        try:
            reply = await self.inner.complete(call)
        except BackendError as error:
            if self.adapter is not None and error.kind in ("rate_limit", "timeout"):
                self.adapter.refused(began, self._clock())
            raise
        if self.adapter is not None:
            now = self._clock()
            self.adapter.replied(call.task.name, now - began, began, now)
        return reply

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
