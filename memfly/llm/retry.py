"""Tries a failed call again when, and only when, the same call may succeed later (429, 5xx, timeout, dropped connection).

Waits with full jitter and never less than the server's Retry-After. Being told to slow down (429) is not a failure of
the call: it is ended by the deadline, not by the number of tries. A permanent error fails the call at once. What a model
said is not judged here: unusable replies are asked again by `memfly.llm.client`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from memfly.errors import BackendError
from memfly.llm.base import Backend, Call, Reply, derive_seed, stable_hash
from memfly.llm.config import RetryConfig


class Retry:
    """The layer. Jitter is drawn from (seed, call, try), so a rerun waits alike."""

    def __init__(
        self,
        inner: Backend,
        config: RetryConfig,
        *,
        seed: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = inner
        self.config = config
        self.seed = seed
        self._sleep = sleep
        self._clock = clock

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.inner.identity

    async def complete(self, call: Call) -> Reply:
        """The reply, with the number of tries it took. Raises the last BackendError, its `tries` set."""
        first_failure: float | None = None
        tries = failures = 0
        while True:
            tries += 1
            try:
                reply = await self.inner.complete(call)
            except BackendError as error:
                error.tries = tries
                if not error.transient:
                    raise
                wait = self._wait(call, tries, error.retry_after)
                first_failure = self._clock() if first_failure is None else first_failure
                late = self._clock() - first_failure + wait > self.config.deadline_s
                failures += error.kind != "rate_limit"
                if late or failures >= self.config.tries:
                    raise _gave_up(error) from None
                await self._sleep(wait)
            else:
                return replace(reply, tries=tries)

    def _wait(self, call: Call, tries: int, retry_after: float | None) -> float:
        """Seconds until the next try: uniform in [0, min(max_s, base_s * 2^(tries-1))], after Retry-After has passed. A
        server that says how long to wait need not be guessed at: the draw then at most doubles that."""
        ceiling = min(self.config.max_s, self.config.base_s * 2.0 ** min(tries - 1, 32))
        if retry_after:
            ceiling = min(ceiling, max(self.config.base_s, retry_after))
        draw = random.Random(derive_seed(self.seed, "retry", stable_hash(call.content), tries)).random()
        return draw * ceiling + (retry_after or 0.0)

    async def aclose(self) -> None:
        await self.inner.aclose()


def _gave_up(error: BackendError) -> BackendError:
    last = BackendError(
        f"{error} (gave up after {error.tries} tries)",
        transient=True,
        retry_after=error.retry_after,
        kind=error.kind,
    )
    last.tries = error.tries
    return last
