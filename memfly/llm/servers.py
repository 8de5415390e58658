"""Which of several servers a call goes to: one conversation stays on one server, so that its prefix cache hits.

A server that fails twice in a row rests for a while and must pass a health check before it is used again; a single
failure is often just an idle connection that was closed. Nothing here retries.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

PATIENCE = 2


@dataclass
class Server:
    url: str
    in_flight: int = 0
    conversations: set[str] = field(default_factory=set)
    failures: int = 0
    """Failures in a row; fewer than PATIENCE means healthy."""
    rest_until: float = 0.0


class Servers:
    """Picks a server per call. `check(url)` tells whether a server that rested is well again."""

    def __init__(
        self,
        urls: Sequence[str],
        check: Callable[[str], Awaitable[bool]],
        *,
        rest_s: float = 2.0,
        max_rest_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = [Server(url) for url in urls]
        self.check = check
        self.rest_s = rest_s
        self.max_rest_s = max_rest_s
        self.clock = clock
        self._home: dict[str, Server] = {}

    async def pick(self, conversation: str) -> Server:
        """The conversation's server, or the least loaded one. When all rest, the one that has rested longest is tried:
        with nothing better to use, a real call is the health check."""
        home = self._home.get(conversation)
        if home is not None and await self._usable(home):
            return home
        candidates = sorted(self.servers, key=lambda s: (len(s.conversations), s.in_flight))
        usable = [server for server in candidates if server is not home and await self._usable(server)]
        chosen = usable[0] if usable else min(self.servers, key=lambda s: s.rest_until)
        if conversation:
            if home is not None:
                home.conversations.discard(conversation)
            chosen.conversations.add(conversation)
            self._home[conversation] = chosen
        return chosen

    async def _usable(self, server: Server) -> bool:
        if server.failures < PATIENCE:
            return True
        if self.clock() < server.rest_until:
            return False
        self._rest(server)  # concurrent calls keep off while the check runs
        if not await self.check(server.url):
            server.failures += 1
            self._rest(server)
            return False
        self.well(server)
        return True

    def failed(self, server: Server) -> None:
        """A call could not reach the server."""
        server.failures += 1
        self._rest(server)

    def well(self, server: Server) -> None:
        server.failures = 0
        server.rest_until = 0.0

    def _rest(self, server: Server) -> None:
        pause = min(self.max_rest_s, self.rest_s * 2 ** max(0, min(server.failures, 16) - PATIENCE))
        server.rest_until = self.clock() + pause
