"""MemGPT's functions: checks a call of the model, carries it out on the memory, and says what came of it.

Every fault of a call (unknown function, arguments that do not fit, a block over its limit) becomes a failure message to
the model, never an exception. `send_message` texts are collected, not delivered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from baselines.memgpt_memory import Archival, Core, Recall, sources, split_at_space
from baselines.memgpt_queue import page_of
from baselines.tasks.memgpt import (
    TOOLS,
    ArchivalInsert,
    ArchivalSearch,
    ConversationSearch,
    ConversationSearchDate,
    CoreAppend,
    CoreReplace,
    PauseHeartbeats,
    RecallSearch,
    SendMessage,
)
from memfly.tasks.base import ToolCall
from memfly.types import Passage

ARGUMENTS: dict[str, type[BaseModel]] = {tool.name: tool.arguments for tool in TOOLS}
DONE = "None"


@dataclass(frozen=True)
class Outcome:
    """What the model is told, and what of the memory the message shows."""

    ok: bool
    message: str
    passages: tuple[Passage, ...] = ()
    heartbeat: bool = False


@dataclass
class Functions:
    """The functions over one state of the memory."""

    core: Core
    recall: Recall
    archival: Archival
    recall_search: RecallSearch
    page_size: int
    return_limit: int
    now: Passage
    """An empty passage whose date and time are those of the event at hand: the agent's clock."""
    visible: tuple[Passage, ...] = ()
    """Turns in the window, the possible sources of what the agent stores."""
    sent: list[str] = field(default_factory=list)
    retrieved: list[Passage] = field(default_factory=list)

    async def call(self, call: ToolCall) -> Outcome:
        """Carry out one call."""
        try:
            arguments = _arguments(call)
            message, passages = await self._run(arguments)
        except ValueError as error:
            return Outcome(False, str(error)[: self.return_limit])
        self.retrieved += passages
        return Outcome(
            True, message[: self.return_limit], passages, bool(getattr(arguments, "request_heartbeat", False))
        )

    async def _run(self, arguments: BaseModel) -> tuple[str, tuple[Passage, ...]]:
        match arguments:
            case SendMessage():
                self.sent.append(arguments.message)
            case CoreAppend():
                self.core.append(arguments.name, arguments.content)
            case CoreReplace():
                self.core.replace(arguments.name, arguments.old_content, arguments.new_content)
            case ArchivalInsert():
                await self._store(arguments.content)
            case ArchivalSearch():
                return self._page(await self.archival.search(arguments.query), arguments.page)
            case ConversationSearch():
                return self._page(self.recall.search(arguments.query, self.recall_search), arguments.page)
            case ConversationSearchDate():
                return self._page(self.recall.between(arguments.start_date, arguments.end_date), arguments.page)
            case PauseHeartbeats():
                pass  # nothing beats on its own here: time is the sessions', not the clock's
        return DONE, ()

    def _page(self, found: list[Passage], page: int) -> tuple[str, tuple[Passage, ...]]:
        return page_of(found, page, self.page_size, self.return_limit)

    async def _store(self, content: str) -> None:
        """Archive a text in chunks, each dated by its first source turn, else by the event at hand."""
        if not content.strip():
            raise ValueError("content is empty")
        chunks = []
        for piece in split_at_space(content):
            origin = sources(piece, self.visible)
            first = origin[0] if origin else self.now
            turns = tuple(turn for passage in origin for turn in passage.turns)
            chunks.append(Passage(piece, turns, first.date, first.time))
        await self.archival.insert(chunks)


def _arguments(call: ToolCall) -> BaseModel:
    """The call's arguments, validated. Raises ValueError with a message for the model."""
    if call.name not in ARGUMENTS:
        raise ValueError(f"there is no function {call.name!r}; functions: {', '.join(ARGUMENTS)}")
    raw: Any = call.arguments
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raise ValueError(f"the arguments of {call.name} are not a JSON object") from None
    if not isinstance(raw, dict):
        raise ValueError(f"the arguments of {call.name} are not a JSON object")
    try:
        return ARGUMENTS[call.name].model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{call.name}: argument {where}: {first['msg']}") from None
