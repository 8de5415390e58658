"""Counts calls, tokens, retries, parse failures and truncations by role, for whatever scope of work is current.

A scope (one conversation's build, one question) is a context variable, so that work started inside it, prefetched calls
included, is counted there without systems having to pass anything along. Not a layer that changes replies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from memfly.errors import BackendError
from memfly.llm.base import Reply


@dataclass
class RoleCount:
    """Totals of one role. Tokens are as the server counts them; `billed_*` leaves out replies served by the cache.

    `truncated` counts replies cut by the token limit or inside their reasoning; `failed_calls` counts calls that gave no
    reply at all after every transport retry; `retries` counts transport retries, of failed calls too. `refused` counts
    replies in which the model declined, or that a content filter cut off.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    parse_failures: int = 0
    truncated: int = 0
    refused: int = 0
    billed_calls: int = 0
    billed_prompt_tokens: int = 0
    billed_completion_tokens: int = 0
    server_cached_prompt_tokens: int = 0
    retries: int = 0
    failed_calls: int = 0
    latency_s: float = 0.0
    latency_bins: dict[str, int] = field(default_factory=dict)
    """Billed calls by latency, in bins an eighth of a doubling wide (see `latency_quantile`)."""

    def add(self, other: RoleCount) -> None:
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                for key, count in theirs.items():
                    mine[key] = mine.get(key, 0) + count
            else:
                setattr(self, item.name, mine + theirs)

    def latency_quantile(self, share: float) -> float | None:
        """Seconds within which `share` (0 to 1) of the billed calls were answered, to 5 %; None without any."""
        total = sum(self.latency_bins.values())
        seen = 0
        for key in sorted(self.latency_bins, key=int):
            seen += self.latency_bins[key]
            if seen >= share * total:
                return float(2 ** (int(key) / 8) / 1000)
        return None


PROCESS_FIELDS = frozenset(
    {
        "billed_calls",
        "billed_prompt_tokens",
        "billed_completion_tokens",
        "server_cached_prompt_tokens",
        "retries",
        "failed_calls",
        "latency_s",
        "latency_bins",
    }
)
"""Fields that depend on what the cache held and how the network behaved; the others are the same in every rerun."""


@dataclass
class Tally:
    """Counts by role for one scope."""

    roles: dict[str, RoleCount] = field(default_factory=dict)

    def role(self, name: str) -> RoleCount:
        return self.roles.setdefault(name, RoleCount())

    def add(self, other: Tally) -> None:
        for name, count in other.roles.items():
            self.role(name).add(count)

    def record(self, role: str, reply: Reply) -> None:
        """Count one reply that came back, from the cache or from the backend."""
        count = self.role(role)
        count.calls += 1
        count.prompt_tokens += reply.usage.prompt_tokens
        count.completion_tokens += reply.usage.completion_tokens
        count.truncated += reply.finish in ("length", "unclosed_think")
        count.refused += reply.finish in ("refusal", "content_filter")
        if not reply.from_cache:
            count.billed_calls += 1
            count.billed_prompt_tokens += reply.usage.prompt_tokens
            count.billed_completion_tokens += reply.usage.completion_tokens
            count.server_cached_prompt_tokens += reply.usage.cached_prompt_tokens
            count.retries += reply.tries - 1
            count.latency_s += reply.latency_s
            key = str(round(8 * math.log2(max(1.0, reply.latency_s * 1000))))
            count.latency_bins[key] = count.latency_bins.get(key, 0) + 1

    def failed(self, role: str, error: BackendError) -> None:
        """Count a call that gave no reply. One that several callers waited for is counted by the first (its `tries` are
        0 for the others)."""
        if error.tries:
            count = self.role(role)
            count.failed_calls += 1
            count.retries += error.tries - 1

    def to_dict(self) -> dict[str, dict[str, Any]]:
        return {name: asdict(self.roles[name]) for name in sorted(self.roles)}

    def logical(self) -> dict[str, dict[str, int]]:
        """Only the counts that a rerun from a warm cache would give again."""
        return {
            name: {k: v for k, v in asdict(self.roles[name]).items() if k not in PROCESS_FIELDS}
            for name in sorted(self.roles)
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, Any]]) -> Tally:
        known = {item.name for item in fields(RoleCount)}
        return cls({name: RoleCount(**{k: v for k, v in c.items() if k in known}) for name, c in data.items()})


@dataclass(frozen=True)
class Scope:
    """What the current work is for: part of every call's seed, and where its counts go."""

    conversation: str = ""
    item: str = ""
    tally: Tally = field(default_factory=Tally)


_current: ContextVar[Scope | None] = ContextVar("memfly_scope", default=None)


def current_scope() -> Scope:
    """The scope work runs in; outside any, a throw-away one."""
    return _current.get() or Scope()


@contextmanager
def scope(conversation: str = "", item: str = "") -> Iterator[Tally]:
    """Everything called inside, tasks started inside included, is counted in the tally given back."""
    tally = Tally()
    token = _current.set(Scope(conversation, item, tally))
    try:
        yield tally
    finally:
        _current.reset(token)
