"""Makes a backend ready before its first real call: starts the server it needs (`serve=auto`) and probes it.

Ready on demand, because a run whose replies are all in the cache needs no server at all. What was found is kept for the
manifest. Not a judge of replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from memfly.errors import BackendError, ConfigError, MemflyError
from memfly.llm.base import Backend, Call, Reply

Prepare = Callable[[], Awaitable[tuple[Backend, Mapping[str, Any]]]]
"""Gives the backend to use from now on, and what to record about it."""


class Startup:
    """The innermost layer of backbones that need preparing. `identity` must be known before."""

    def __init__(self, identity: Mapping[str, Any], prepare: Prepare, release: Callable[[], Awaitable[None]]) -> None:
        self.identity = identity
        self.found: Mapping[str, Any] = {}
        self._prepare = prepare
        self._release = release
        self._lock = asyncio.Lock()
        self._inner: Backend | None = None
        self._failure: MemflyError | None = None
        self._failures = 0
        self._lasting = False

    async def ready(self) -> Backend:
        """The prepared backend. Raises ConfigError when the server cannot do what the configuration asks, and the same
        again at every later call. Trouble that may pass fails the calls that waited for this attempt; a later call tries
        again."""
        if self._inner is None:
            seen = self._failures
            async with self._lock:
                if self._failure is not None and (self._lasting or self._failures > seen):
                    raise type(self._failure)(str(self._failure))
                if self._inner is None:
                    self._inner, self.found = await self._attempt()
        return self._inner

    async def _attempt(self) -> tuple[Backend, Mapping[str, Any]]:
        try:
            return await self._prepare()
        except MemflyError as error:
            self._failures += 1
            self._lasting = not (isinstance(error, BackendError) and error.transient)
            self._failure = ConfigError(str(error)) if isinstance(error, BackendError) else error
            raise self._failure from None

    async def complete(self, call: Call) -> Reply:
        return await (await self.ready()).complete(call)

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()
        await self._release()
