"""Ingestion: one turn -> keywords and a self-contained restatement (MemFly 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class IngestInput:
    date: str
    speaker: str
    text: str
    caption: str | None = None
    preceding: tuple[str, ...] = ()
    """Rendered turns just before this one, oldest first; only for resolving references (`ingest.window`)."""


class IngestOutput(TaskOutput):
    keywords: list[str] = Field(max_length=12, description="3 to 5 noun phrases, or none for small talk")
    context: str = Field(max_length=2000, description="self-contained restatement of the target turn")


SYSTEM = """You turn one turn of a conversation into a memory note. Reply with one JSON object:
{"keywords": [string, ...], "context": string}

keywords: 3 to 5 noun phrases that occur in the target turn. Proper nouns come first, then concrete objects, then \
specific topics. Leave out chat roles, abstract words, and the name of a speaker who is only the one talking. Give an \
empty list when the turn is only a greeting, thanks or other small talk.
context: what the turn states, as facts that can be read on their own. State only what the text says. Replace the \
first person by the speaker's name. Keep a pronoun you cannot resolve; never guess. Begin with the subject of the \
fact; do not write that somebody says or mentions it. Keep names, numbers, dates and expressions of time.
Earlier turns, where shown, only help to resolve references: take no facts from them."""


def _render(value: IngestInput) -> str:
    earlier = "".join(f"  {line}\n" for line in value.preceding)
    before = f"Earlier turns:\n{earlier}" if earlier else ""
    image = f"\nImage shared with the turn: {value.caption}" if value.caption else ""
    return f"Session date: {value.date}\n{before}Target turn:\nSpeaker: {value.speaker}\nText: {value.text}{image}"


INGEST = Task("ingest", 1, "ingest", IngestInput, IngestOutput, SYSTEM, _render, max_tokens=400)
