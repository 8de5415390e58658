"""One language-model call: what is asked (`Call`), what comes back (`Reply`), and who answers it (`Backend`).

Layers (cache, retry, limits, ledger, faults) are backends round a backend. Nothing here talks to a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from memfly.tasks.base import Task
from memfly.types import Usage

Message = tuple[str, str]
"""(role, content), role one of system, user, assistant."""


def stable_hash(value: Any, length: int = 64) -> str:
    """SHA-256 (hex, first `length` digits) of a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def derive_seed(*parts: str | int) -> int:
    """A 31-bit seed from (run seed, conversation, question, purpose): draws do not depend on order or concurrency."""
    return int(stable_hash([str(part) for part in parts], 8), 16) & 0x7FFFFFFF


@dataclass(frozen=True)
class Call:
    """One request. `attempt` counts from 0; a retry after an unusable reply carries feedback in its messages."""

    task: Task[Any, Any]
    input: Any
    messages: tuple[Message, ...]
    temperature: float
    max_tokens: int
    seed: int
    attempt: int = 0

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the task's output for this input."""
        return self.task.schema(self.input)

    @cached_property
    def content(self) -> dict[str, Any]:
        """All of the call that can change its reply, for the cache key (the backend adds its own identity)."""
        return {
            "task": self.task.name,
            "version": self.task.version,
            "messages": [list(message) for message in self.messages],
            "schema": self.schema,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "attempt": self.attempt,
        }


@dataclass(frozen=True)
class Reply:
    """What came back. `text` is the answer part only: a `<think>` block is moved to `reasoning` by the backend."""

    text: str
    finish: str = "stop"
    """"stop" (whole), "length" (cut by the token limit), "unclosed_think", "refusal", "content_filter", or the server's
    own word for an end we do not know. Only "stop" is a whole reply."""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    latency_s: float = 0.0
    from_cache: bool = False
    tries: int = 1
    """Transport attempts this reply took (1 = no retry)."""


def capped(tokens: int, most: int | None) -> int:
    """A token limit, no larger than `most` where that is set."""
    return tokens if most is None else min(tokens, most)


class Backend(Protocol):
    """Answers calls. `identity` is every setting of it that can change a reply (kind, model, revision, mode ...)."""

    @property
    def identity(self) -> Mapping[str, Any]: ...

    async def complete(self, call: Call) -> Reply:
        """One reply. Raises BackendError (transient or permanent) or BudgetExceeded, never returns a made-up reply."""
        ...

    async def aclose(self) -> None: ...
