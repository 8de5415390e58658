"""What RAG over notes asks of a model when the data file ships none: observations and a summary of one session.

Follows LoCoMo's own generation step (observations: generative_agents/memory_utils.py): one call per session each,
temperature 1.0. Turn ids that do not exist are dropped by `baselines.rag_units`, not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class SessionLine:
    id: str
    text: str
    """The turn as `Turn.render` gives it."""


@dataclass(frozen=True)
class SessionInput:
    date: str
    speakers: tuple[str, str]
    lines: tuple[SessionLine, ...]


class Fact(TaskOutput):
    speaker: str = Field(max_length=80, description="whom the fact is about")
    fact: str = Field(max_length=600, description="one objective fact, readable on its own")
    turns: list[str] = Field(max_length=12, description="ids of the turns that state it")


class ObservationsOutput(TaskOutput):
    facts: list[Fact] = Field(max_length=60)


class SummaryOutput(TaskOutput):
    summary: str = Field(max_length=4000, description="the session in a few sentences")


OBSERVATIONS_SYSTEM = """You take down what a conversation reveals about each of its two speakers. Reply with one JSON \
object: {"facts": [{"speaker": string, "fact": string, "turns": [string, ...]}]}
For each speaker give a short list of objective facts: what happened to them, what they did, have, like or plan. One \
fact per entry, with the person's name in it and readable without the conversation. Say nothing about how the two get \
on or what they think of each other. turns: the bracketed ids of the turns the fact comes from, at least one."""

SUMMARY_SYSTEM = """You summarise one session of a long conversation. Reply with one JSON object: {"summary": string}
Be brief, keep the speakers' own words where you can, and leave out no fact about either speaker. Say when things \
happened or will happen, worked out from the session's date where the speakers use words like yesterday."""


def _check(_: SessionInput, output: SummaryOutput) -> None:
    if not output.summary.strip():
        raise ValueError("summary is empty")


def _render(value: SessionInput) -> str:
    turns = "\n".join(f"[{line.id}] {line.text}" for line in value.lines)
    return f"Speakers: {' and '.join(value.speakers)}\nSession date: {value.date}\n{turns}"


RAG_OBSERVATIONS = Task(
    "rag_observations", 1, "ingest", SessionInput, ObservationsOutput, OBSERVATIONS_SYSTEM, _render, 2500, 1.0
)
RAG_SUMMARY = Task(
    "rag_summary", 1, "ingest", SessionInput, SummaryOutput, SUMMARY_SYSTEM, _render, 700, 1.0, check=_check
)
