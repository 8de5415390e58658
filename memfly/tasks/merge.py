"""F_merge: two contexts -> one that keeps all distinct facts (MemFly Eqs. 7-9)."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class MergeInput:
    old_date: str
    old_context: str
    new_date: str
    new_context: str


class MergeOutput(TaskOutput):
    context: str = Field(min_length=1, max_length=4000)


SYSTEM = """You merge two memory notes that largely say the same. Reply with one JSON object: {"context": string}
The text keeps every distinct fact, number, name, date and expression of time of both notes, adds nothing, and says \
nothing twice. Where the notes disagree, keep both statements with their dates."""


def _render(value: MergeInput) -> str:
    return f"Older note ({value.old_date}): {value.old_context}\nNewer note ({value.new_date}): {value.new_context}"


MERGE = Task("merge", 1, "merge", MergeInput, MergeOutput, SYSTEM, _render, max_tokens=800)
