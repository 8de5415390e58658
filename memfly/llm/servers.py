"""Which of several servers a call goes to: one conversation stays on one server, so that its prefix cache hits.

A server that fails twice in a row rests for a while; then, if a health check finds it well, one call is its trial. Each
failed trial makes the rest longer, and only a reply ends it: a broken engine behind a web server still answers health
checks. A single failure is often just an idle connection that was closed. Nothing here retries.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from memfly.errors import MemflyError

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
        self._rest(server)  # other calls keep off while the check, and after it the trial call, runs
        if await self._well(server.url):
            return True
        server.failures += 1
        self._rest(server)
        return False

    async def _well(self, url: str) -> bool:
        """What the check says. A check that cannot even be made (a refused key, no such page) speaks of this server only."""
        try:
            return await self.check(url)
        except MemflyError:
            return False

    def others(self, server: Server) -> bool:
        """Whether another server is thought well, so that a fault of this one need not end the run."""
        return any(other.failures < PATIENCE for other in self.servers if other is not server)

    def failed(self, server: Server) -> None:
        """A call got no usable response from the server."""
        server.failures += 1
        self._rest(server)

    def well(self, server: Server) -> None:
        server.failures = 0
        server.rest_until = 0.0

    def _rest(self, server: Server) -> None:
        pause = min(self.max_rest_s, self.rest_s * 2 ** max(0, min(server.failures, 16) - PATIENCE))
        server.rest_until = self.clock() + pause
