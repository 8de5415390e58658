"""A-MEM's LLM tasks: analyse a turn, joint link-and-evolve call, and question -> keywords.

`AMEM_LINK` is the evolve call of the ablation without memory evolution: the same call with no update action on offer.
What a reply changes is decided in `baselines.amem`; all calls at temperature 0.7 with 1,000 tokens, as in A-MEM's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, WithJsonSchema

from memfly.tasks.base import Task, TaskOutput

Phrase = Annotated[str, Field(max_length=200)]
Phrases = Annotated[list[Phrase], Field(max_length=40)]
LinkAction = Annotated[str, WithJsonSchema({"type": "string", "enum": ["strengthen"]})]
Action = Annotated[str, WithJsonSchema({"type": "string", "enum": ["strengthen", "update_neighbor"]})]
"""Offered as a choice, read as any text: an unknown action costs itself, not the whole reply."""


@dataclass(frozen=True)
class AnalyseInput:
    content: str


class AnalyseOutput(TaskOutput):
    keywords: Phrases = Field(description="at least 3, the most important first")
    context: str = Field(max_length=2000, description="one sentence")
    tags: Phrases = Field(description="at least 3 broad categories")


@dataclass(frozen=True)
class Neighbour:
    position: int
    date: str
    content: str
    context: str
    keywords: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class EvolveInput:
    content: str
    context: str
    keywords: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]


class LinkOutput(TaskOutput):
    """Loose on purpose: unknown actions and bad positions are dropped and counted one by one in `baselines.amem`."""

    should_evolve: bool
    actions: list[LinkAction] = Field(max_length=8)
    suggested_connections: list[int] = Field(max_length=64, description="positions of stored notes")
    tags_to_update: Phrases = Field(description="tags of the new note")


class EvolveOutput(LinkOutput):
    actions: list[Action] = Field(max_length=8)
    new_context_neighborhood: list[Annotated[str, Field(max_length=2000)]] = Field(max_length=64)
    new_tags_neighborhood: list[Phrases] = Field(max_length=64)


@dataclass(frozen=True)
class KeywordsInput:
    question: str


class KeywordsOutput(TaskOutput):
    keywords: str = Field(max_length=500, description="search terms, separated by commas")


ANALYSE_SYSTEM = """You describe one utterance for a memory of notes. Reply with one JSON object:
{"keywords": [string, ...], "context": string, "tags": [string, ...]}
keywords: at least three words or short phrases that carry the meaning (things, activities, ideas), the most important \
first; leave out who is speaking and when.
context: one sentence that tells the topic, the main points and what the utterance is for.
tags: at least three broad labels for sorting the utterance, such as its field, its kind and its theme."""

_EVOLVE_INTRO = """You keep a network of memory notes in order. You see a new note and the stored notes nearest to it, \
each with its position number. Decide whether the network should change because of the new note."""

_STRENGTHEN = """- "strengthen": connect the new note. suggested_connections holds the position numbers of the stored \
notes it belongs with, and tags_to_update the full list of tags the new note shall have."""

_UPDATE = """- "update_neighbor": revise the stored notes in the light of the new one. new_context_neighborhood and \
new_tags_neighborhood have one entry for each stored note, in the order shown; repeat what is there now for a note that \
stays as it is."""

EVOLVE_SYSTEM = f"""{_EVOLVE_INTRO} Reply with one JSON object:
{{"should_evolve": boolean, "actions": [string, ...], "suggested_connections": [int, ...], "tags_to_update": [string, ...], \
"new_context_neighborhood": [string, ...], "new_tags_neighborhood": [[string, ...], ...]}}
should_evolve: false when nothing should change; all lists are then empty. Otherwise actions holds one or both of:
{_STRENGTHEN}
{_UPDATE}"""

LINK_SYSTEM = f"""{_EVOLVE_INTRO} Reply with one JSON object:
{{"should_evolve": boolean, "actions": [string, ...], "suggested_connections": [int, ...], "tags_to_update": [string, ...]}}
should_evolve: false when nothing should change; all lists are then empty. Otherwise actions holds:
{_STRENGTHEN}"""

KEYWORDS_SYSTEM = """You turn a question into search terms for a memory of notes. Reply with one JSON object: \
{"keywords": string}
keywords: the few words or short phrases that a note with the answer would contain or be about, separated by commas."""


def _render_analyse(value: AnalyseInput) -> str:
    return f"Utterance:\n{value.content}"


def _render_neighbour(note: Neighbour) -> str:
    return (
        f"position {note.position} | time: {note.date} | content: {note.content} | context: {note.context} | "
        f"keywords: {', '.join(note.keywords)} | tags: {', '.join(note.tags)}"
    )


def _render_evolve(value: EvolveInput) -> str:
    stored = "\n".join(_render_neighbour(note) for note in value.neighbours) or "(none)"
    return (
        f"Stored notes ({len(value.neighbours)}):\n{stored}\n\n"
        f"New note:\ncontent: {value.content}\ncontext: {value.context}\nkeywords: {', '.join(value.keywords)}"
    )


def _render_keywords(value: KeywordsInput) -> str:
    return f"Question: {value.question}"


AMEM_ANALYSE = Task(
    "amem_analyse", 1, "ingest", AnalyseInput, AnalyseOutput, ANALYSE_SYSTEM, _render_analyse, 1000, 0.7
)
AMEM_EVOLVE = Task("amem_evolve", 1, "gate", EvolveInput, EvolveOutput, EVOLVE_SYSTEM, _render_evolve, 1000, 0.7)
AMEM_LINK = Task("amem_link", 1, "gate", EvolveInput, LinkOutput, LINK_SYSTEM, _render_evolve, 1000, 0.7)
AMEM_KEYWORDS = Task(
    "amem_keywords", 1, "parse", KeywordsInput, KeywordsOutput, KEYWORDS_SYSTEM, _render_keywords, 1000, 0.7
)
