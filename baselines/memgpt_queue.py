"""MemGPT's message queue: how events are packaged, what they cost in tokens, and which messages an eviction summarises.

Pure functions and frozen records; the arithmetic is that of MemGPT 0.2.9 (memgpt/agent.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from baselines.storage import passage_from_json, passage_to_json
from baselines.tasks.memgpt import Role, StepMessage
from memfly.text import count_tokens
from memfly.types import Passage

EVICT_SHARE = 0.75
KEEP_LAST = 3


@dataclass(frozen=True)
class Message:
    """One entry of the queue. `passages` are the turns and stored texts that its text shows, for the evidence."""

    role: Role
    text: str
    passages: tuple[Passage, ...] = ()
    is_summary: bool = False

    @cached_property
    def tokens(self) -> int:
        """As the prompt shows it: role, text and the line's end."""
        return count_tokens(f"{self.role}: {self.text}\n")

    def shown(self) -> StepMessage:
        return StepMessage(self.role, self.text)

    def to_json(self) -> dict[str, Any]:
        passages = [passage_to_json(passage) for passage in self.passages]
        return {"role": self.role, "text": self.text, "passages": passages, "is_summary": self.is_summary}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        passages = tuple(passage_from_json(passage) for passage in data["passages"])
        return cls(data["role"], data["text"], passages, data["is_summary"])


def package(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False)


def event(kind: str, message: str, time: str, passages: Sequence[Passage] = ()) -> Message:
    """A user-role message: a session, a question, an alert or a heartbeat."""
    return Message("user", package(type=kind, message=message, time=time), tuple(passages))


def result(function: str, ok: bool, message: str, time: str, passages: Sequence[Passage] = ()) -> Message:
    text = package(function=function, status="OK" if ok else "Failed", message=message, time=time)
    return Message("function", text, tuple(passages))


def summary(text: str, hidden: int, time: str) -> Message:
    """The alert that stands at the head of the queue for `hidden` earlier messages."""
    note = (
        f"{hidden} earlier messages are hidden from your window; they are still in recall memory. Your summary: {text}"
    )
    return Message("user", package(type="system_alert", message=note, time=time), is_summary=True)


def evictable(messages: Sequence[Message], share: float = EVICT_SHARE, keep_last: int = KEEP_LAST) -> int:
    """How many of the oldest messages to summarise; fewer than 2 means that summarising cannot help.

    The last `keep_last` are safe. From the oldest on, tokens are added up until they pass `share` of the queue's; all
    before the message that passes it (or before the last candidate, if none does) go, and one more if the first one
    kept would be a user message.
    """
    candidates = messages[: max(len(messages) - keep_last, 0)]
    limit = int(share * sum(message.tokens for message in messages))
    if not candidates:
        return 0
    sums = accumulate(message.tokens for message in candidates)
    count = next((i for i, total in enumerate(sums) if total > limit), len(candidates) - 1)
    return count + (candidates[count].role == "user")


def page_of(found: Sequence[Passage], page: int, size: int, limit: int) -> tuple[str, tuple[Passage, ...]]:
    """One page of search results as text of at most `limit` characters, and the passages as far as they are in it."""
    if not found:
        return "No results.", ()
    first = page * size
    pages = -(-len(found) // size)
    text = f"{len(found)} results, page {page} of 0-{pages - 1}:"
    shown: list[Passage] = []
    for passage in found[first : first + size]:
        label = f"\n{passage.date} | " if passage.date else "\n"
        room = limit - len(text) - len(label)
        if room <= 0:
            break
        cut = passage.text[:room]
        text += label + cut
        shown.append(Passage(cut, passage.turns, passage.date, passage.time))
    return text[:limit], tuple(shown)
