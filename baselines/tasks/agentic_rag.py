"""The searcher of agentic RAG: one step of a tool loop, search again or stop (ours: docs/systems/agentic_rag.md).

`RAG_STEP` may search or answer, `RAG_LAST_STEP` may only answer. The answer of either is a draft for the record: the final
one comes from the shared answerer. A question's two options of category 5 are not part of the input, by type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class Search:
    """One earlier step: what was asked and the lines it brought; `note` says what was wrong with it, if anything."""

    query: str
    results: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class StepInput:
    question: str
    searches: tuple[Search, ...]
    steps_left: int
    """Steps left, this one included."""


class StepOutput(TaskOutput):
    action: Literal["search", "answer"]
    query: str = Field(default="", max_length=400, description="what to search for; empty with action answer")
    answer: str = Field(default="", max_length=2000, description="short answer; empty with action search")


class LastStepOutput(TaskOutput):
    action: Literal["answer"] = "answer"
    answer: str = Field(max_length=2000)


_INTRO = """You find what is needed to answer a question about a long conversation of two people. You cannot read the \
conversation; a search returns the few turns closest in meaning to your query that you have not seen yet. Each result \
shows the turn's id, the date of the conversation, the speaker and what was said."""

SYSTEM = f"""{_INTRO} Reply with one JSON object:
{{"action": "search" or "answer", "query": string, "answer": string}}
Search before you answer. Search again with other words, or for a part that is still missing, as long as the results do \
not settle the question; never send a query twice. With action "answer", answer is a short phrase from the results, or \
says that they do not tell."""

LAST_SYSTEM = f"""{_INTRO} No searches are left. Reply with one JSON object: {{"action": "answer", "answer": string}}
answer is a short phrase from the results, or says that they do not tell."""


def _check(value: StepInput, output: StepOutput) -> None:
    if output.action == "search" and not output.query.strip():
        raise ValueError("action search needs a query")


def _render_search(search: Search) -> str:
    lines = [f"Search: {search.query}"]
    lines += [f"{number}. {line}" for number, line in enumerate(search.results, 1)]
    if search.note:
        lines.append(f"({search.note})")
    return "\n".join(lines)


def _render(value: StepInput) -> str:
    earlier = "\n\n".join(_render_search(search) for search in value.searches) or "(no search so far)"
    return f"Question: {value.question}\n\n{earlier}\n\nSteps left, this one included: {value.steps_left}"


RAG_STEP = Task("rag_step", 1, "reflect", StepInput, StepOutput, SYSTEM, _render, 400, check=_check)
RAG_LAST_STEP = Task("rag_last_step", 1, "reflect", StepInput, LastStepOutput, LAST_SYSTEM, _render, 400)
