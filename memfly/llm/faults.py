"""Faults on purpose: a seeded share of calls fails, or comes back damaged, in the ways real servers do.

For testing a setup before it costs money (`llm.faults={rate_429: 0.05, rate_timeout: 0.02}`). Which call gets which
fault depends on (seed, call content, try) alone, so neither order nor concurrency changes it. Damaged replies change
results, so a backend that damages any has its own identity (and cache entries); transport faults change none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from memfly.errors import BackendError
from memfly.llm.base import Backend, Call, Reply, derive_seed, stable_hash
from memfly.llm.config import FaultsConfig

DAMAGE = frozenset({"truncated", "garbage", "empty", "schema"})
"""Faults that change a reply; the others delay or fail the call."""


class Faults:
    """The layer."""

    def __init__(
        self, inner: Backend, config: FaultsConfig, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.inner = inner
        self.config = config
        self._sleep = sleep
        self._tries: dict[str, int] = {}

    @property
    def identity(self) -> Mapping[str, Any]:
        rates = {name: rate for name, rate in self.config.rates.items() if name in DAMAGE and rate > 0}
        if not rates:
            return self.inner.identity
        return {**self.inner.identity, "faults": {"seed": self.config.seed, **self.config.rates}}

    def draw(self, content: str, tries: int) -> str | None:
        """The fault of one try of the call whose content hashes to `content`; None for most."""
        point = random.Random(derive_seed(self.config.seed, "fault", content, tries)).random()
        for name, rate in self.config.rates.items():
            if point < rate:
                return name
            point -= rate
        return None

    async def complete(self, call: Call) -> Reply:
        content = stable_hash(call.content)
        tries = self._tries.get(content, 0)
        self._tries[content] = tries + 1
        fault = self.draw(content, tries)
        if fault == "slow":
            await self._sleep(self.config.slow_s)
        elif fault is not None and fault not in DAMAGE:
            raise _failure(fault, self.config.retry_after_s)
        reply = await self.inner.complete(call)
        self._tries.pop(content, None)  # answered: the same call later starts again at its first try
        return _damaged(reply, fault, content) if fault in DAMAGE else reply

    async def aclose(self) -> None:
        await self.inner.aclose()


def _failure(fault: str, retry_after: float | None) -> BackendError:
    text, kind = {
        "429": ("429 too many requests", "rate_limit"),
        "500": ("500 internal server error", "server"),
        "timeout": ("no reply in time", "timeout"),
        "drop": ("connection dropped", "connection"),
    }[fault]
    wait = retry_after if fault == "429" else None
    return BackendError(f"fault on purpose: {text}", transient=True, retry_after=wait, kind=kind)


def _damaged(reply: Reply, fault: str | None, content: str) -> Reply:
    if fault == "truncated":
        return replace(reply, text=reply.text[: len(reply.text) // 2], finish="length")
    if fault == "garbage":
        draw = random.Random(derive_seed("garbage", content))
        return replace(reply, text="".join(chr(draw.randint(32, 126)) for _ in range(60)))
    if fault == "schema":
        return replace(reply, text='{"unexpected": ["wrong", {"schema": true}]}')
    return replace(reply, text="")
