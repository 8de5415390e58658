"""Iterative evidence refinement: is the evidence enough, and if not, what to ask next (MemFly 3.4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class SufficiencyInput:
    question: str
    evidence: tuple[str, ...]
    interim_answer: str = ""


class SufficiencyOutput(TaskOutput):
    sufficient: bool
    missing_info: str = Field(default="", max_length=500, description="what is still missing; empty if nothing")
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)


@dataclass(frozen=True)
class SubqueryInput:
    question: str
    evidence: tuple[str, ...]
    history: tuple[str, ...]
    missing_info: str


class SubqueryOutput(TaskOutput):
    query: str = Field(default="", max_length=300, description="one next search question; empty to stop")


SUFFICIENCY_SYSTEM = """You judge whether the evidence from a memory is enough to answer a question. Reply with one JSON \
object: {"sufficient": boolean, "missing_info": string, "confidence": number}
sufficient is true only if every part of the question can be answered from the evidence. missing_info names what is \
still needed, in a few words, and is empty when nothing is. confidence is from 0 to 1."""

SUBQUERY_SYSTEM = """You decide what to look up next in a memory of past conversations. Reply with one JSON object: \
{"query": string}
query: one short question that would find the missing information and has not been asked before. Use names and terms \
from the evidence where they help. Give an empty string when no further look-up can help."""


def _lines(evidence: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in evidence) or "(none)"


def _render_sufficiency(value: SufficiencyInput) -> str:
    interim = f"\nInterim answer: {value.interim_answer}" if value.interim_answer else ""
    return f"Question: {value.question}\nEvidence:\n{_lines(value.evidence)}{interim}"


def _render_subquery(value: SubqueryInput) -> str:
    return (
        f"Question: {value.question}\nEvidence so far:\n{_lines(value.evidence)}\n"
        f"Already asked:\n{_lines(value.history)}\nMissing: {value.missing_info}"
    )


SUFFICIENCY = Task(
    "sufficiency", 1, "reflect", SufficiencyInput, SufficiencyOutput, SUFFICIENCY_SYSTEM, _render_sufficiency, 200
)
SUBQUERY = Task("subquery", 1, "reflect", SubqueryInput, SubqueryOutput, SUBQUERY_SYSTEM, _render_subquery, 120)
