"""Mem0's LLM tasks: rolling summary, fact extraction, memory update.

After the paper and mem0/memory/main.py; what is ours is in docs/systems/mem0.md. Extraction is told the session's date,
never today's. `MEM0_UPDATE` renumbers nothing itself: `baselines.mem0` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from memfly.tasks.base import Task, TaskOutput

Fact = Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True)
class SummaryInput:
    previous: str
    messages: tuple[str, ...]
    """New messages as "(date) name: text", oldest first."""


class SummaryOutput(TaskOutput):
    summary: str = Field(min_length=1, max_length=6000)


@dataclass(frozen=True)
class ExtractInput:
    owner: str
    """Whose memory it is; only what this person says becomes a fact."""
    date: str
    messages: tuple[tuple[str, str], ...]
    """The new messages as (role, "name: text"), role user for the owner, else assistant."""
    previous: tuple[str, ...] = ()
    summary: str = ""


class ExtractOutput(TaskOutput):
    facts: list[Fact] = Field(max_length=40)


@dataclass(frozen=True)
class UpdateInput:
    memories: tuple[str, ...]
    """Texts of the stored memories, whose ids are "0", "1", ... in this order."""
    facts: tuple[str, ...]
    date: str


Event = Annotated[str, WithJsonSchema({"type": "string", "enum": ["ADD", "UPDATE", "DELETE", "NOOP"]})]
"""Offered as a choice, read as any text: the original's NONE is understood, an unknown event skipped and counted."""


def _empty(value: Any) -> Any:
    return "" if value is None else value


Null = BeforeValidator(_empty)
"""A null is read as empty."""


class UpdateEntry(TaskOutput):
    """One decision. Whatever can be skipped and counted entry by entry is read: an integer id (as in the original), a
    field that is missing or null. The other entries of the reply then count."""

    id: Annotated[str | int, Null, WithJsonSchema({"type": "string", "maxLength": 20})] = ""
    text: Annotated[str, Null] = Field(default="", max_length=2000)
    event: Annotated[Event, Null] = ""
    old_memory: Annotated[str, Null] = Field(
        default="", max_length=2000, description="with UPDATE the text before; else empty"
    )


class UpdateOutput(TaskOutput):
    memory: list[UpdateEntry] = Field(max_length=80)


SUMMARY_SYSTEM = """You keep a running summary of a conversation between two people. Reply with one JSON object: \
{"summary": string}
Bring the summary up to date with the new messages: who the two are, what they do, plan, like and feel, what happened and \
when. Keep what still matters of the old summary, with names and dates, and stay under 250 words."""

EXTRACT_SYSTEM = """You extract memories about one person, the owner, from new messages of a conversation. Reply with one \
JSON object: {"facts": [string, ...]}
Take facts only from messages with the role user, which are the owner's; everything else is there to understand them. \
Worth keeping: preferences, personal details, relations, plans and goals, activities and events, health, work, opinions, \
feelings about something specific.
Each fact is a short text that can be read on its own: it says the owner's name (never "user", "I" or "she"), names people, \
places and things, and keeps numbers and details. Turn relative times into dates by the date of the messages; no other \
date counts as today. Write in the language of the messages. Give an empty list when there is nothing to keep."""

UPDATE_SYSTEM = """You keep a list of memories free of repetition and contradiction. You see the stored memories that are \
closest to some new facts, and the facts. Decide what to do and reply with one JSON object:
{"memory": [{"id": string, "text": string, "event": string, "old_memory": string}, ...]}
with one entry for each change, event being one of:
ADD: a fact brings something the memories do not have. text is the fact; id is an unused number.
UPDATE: a fact is about the same matter as a memory and adds to it or corrects a detail. id is that memory's; text is the \
richer wording of both; old_memory is the text before.
DELETE: a fact contradicts a memory, which then no longer holds. id and text are that memory's. Add the new fact by an \
entry of its own.
NOOP: a memory already says it. id and text are that memory's.
Use only ids from the list for UPDATE, DELETE and NOOP, as strings."""


def _render_summary(value: SummaryInput) -> str:
    return f"Summary so far:\n{value.previous or '(none)'}\n\nNew messages:\n" + "\n".join(value.messages)


def _render_extract(value: ExtractInput) -> str:
    summary = f"Summary of the conversation so far:\n{value.summary}\n\n" if value.summary else ""
    previous = "Messages before:\n" + "\n".join(value.previous) + "\n\n" if value.previous else ""
    new = "\n".join(f"{role}: {text}" for role, text in value.messages)
    return f"Owner: {value.owner}\nDate of the new messages: {value.date}\n\n{summary}{previous}New messages:\n{new}"


def _render_update(value: UpdateInput) -> str:
    stored = "\n".join(f'id "{number}": {text}' for number, text in enumerate(value.memories)) or "(none)"
    facts = "\n".join(f"- {fact}" for fact in value.facts)
    return f"Stored memories:\n{stored}\n\nNew facts ({value.date}):\n{facts}"


MEM0_SUMMARY = Task("mem0_summary", 1, "ingest", SummaryInput, SummaryOutput, SUMMARY_SYSTEM, _render_summary, 700)
MEM0_EXTRACT = Task("mem0_extract", 1, "ingest", ExtractInput, ExtractOutput, EXTRACT_SYSTEM, _render_extract, 1000)
MEM0_UPDATE = Task("mem0_update", 1, "gate", UpdateInput, UpdateOutput, UPDATE_SYSTEM, _render_update, 2000)
