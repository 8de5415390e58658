"""ReadAgent's calls: where to end a page, a page's gist, which pages to read again.

After the authors' demo; what departs from it is in docs/systems/readagent.md. Numbers are read tolerantly: a label may come
as 57, "57" or "Break point: <57>", pages as a list or as "[1, 3]". Whether they are in range is checked in
`baselines.readagent`, which falls back and counts; asking again is for unusable replies only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from memfly.tasks.base import Task, TaskOutput

_TAGGED = re.compile(r"<\s*(\d{1,9})\s*>")
_NUMBER = re.compile(r"\d{1,9}")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def named_label(text: str) -> int | None:
    """The label a text names as one: a number in angle brackets, else after "break point" or "label"."""
    named = _TAGGED.search(text) or re.search(r"(?i:break\s*point|label)\W{0,8}(\d{1,9})", text)
    return int(named[1]) if named else None


def label_in(text: str) -> int | None:
    """The label in a field that should hold one: as `named_label`, else its only number."""
    named = named_label(text)
    if named is not None:
        return named
    numbers = _NUMBER.findall(text)
    return int(numbers[0]) if len(numbers) == 1 else None


def pages_in(text: str) -> list[int] | None:
    """The numbers between the first pair of square brackets; None when there is no such pair."""
    inside = _BRACKETS.search(text)
    return [int(number) for number in _NUMBER.findall(inside[1])] if inside else None


def _label(value: Any) -> Any:
    return label_in(value) if isinstance(value, str) else value


def _pages(value: Any) -> Any:
    if isinstance(value, str):
        return [int(number) for number in _NUMBER.findall(value)]
    if isinstance(value, list):
        found = [_NUMBER.search(item) if isinstance(item, str) else item for item in value]
        return [int(item[0]) if isinstance(item, re.Match) else item for item in found if item is not None]
    return [value] if isinstance(value, int) else value


def _page(value: Any) -> Any:
    """A page number, or None for a stop in words."""
    if isinstance(value, str):
        number = _NUMBER.search(value)
        return int(number[0]) if number else None
    return value


@dataclass(frozen=True)
class BreakInput:
    previous: str
    """The page before this passage; empty for the first page."""
    paragraphs: tuple[str, ...]
    labels: tuple[int | None, ...]
    """The label in front of each paragraph, and one more for the end; None where a page may not end."""
    following: str
    """The paragraph after the passage; empty at the end."""


class BreakOutput(TaskOutput):
    label: Annotated[int, BeforeValidator(_label)] = Field(description="the label where the page should end")
    reason: str = Field(default="", max_length=600)


@dataclass(frozen=True)
class GistInput:
    page: str


class GistOutput(TaskOutput):
    gist: str = Field(max_length=6000, description="the page, shortened")


@dataclass(frozen=True)
class LookUpInput:
    question: str
    pages: tuple[str, ...]
    """What is remembered of each page, in order: its gist (S: its full text, once it was read again)."""
    most: int
    read: tuple[int, ...] = ()
    """S only: pages read again so far."""


class LookUpOutput(TaskOutput):
    pages: Annotated[list[int], BeforeValidator(_pages)] = Field(max_length=40, description="page numbers")


class NextPageOutput(TaskOutput):
    page: Annotated[int | None, BeforeValidator(_page)] = Field(description="one page number, or null to stop")


BREAK_SYSTEM = """You divide a long text into pages. The passage below carries numbered labels in angle brackets. Choose \
the one label where it is most natural to end the page: where the topic changes, a talk or an argument is over, or a new \
day begins. Reply with one JSON object: {"label": int, "reason": string}"""

GIST_SYSTEM = """You shorten a page of a long conversation so that its gist can be remembered. Keep its order, who says \
what, names, numbers and dates; drop what carries no information. Do not comment. Reply with one JSON object: \
{"gist": string}"""

LOOK_UP_SYSTEM = """You have read a long conversation and remember the gist of each of its pages. Before you answer a \
question you may read some pages again in full. Choose the pages that help, as few as will do; do not answer yet. Reply \
with one JSON object: {"pages": [int, ...]}"""

NEXT_PAGE_SYSTEM = """You have read a long conversation and remember the gist of each of its pages; pages you read again \
are shown in full. Before you answer a question, choose one more page to read again, or null when what you see is enough. \
Do not choose a page twice and do not answer yet. Reply with one JSON object: {"page": int or null}"""


def _render_break(value: BreakInput) -> str:
    lines = [f"...\n{value.previous}\n" if value.previous else ""]
    for label, paragraph in zip(value.labels, (*value.paragraphs, ""), strict=True):
        lines += [f"<{label}>"] if label is not None else []
        lines.append(paragraph)
    after = f"\n{value.following}\n..." if value.following else ""
    return f"Previous page:\n{lines[0] or '(none)'}\nPassage:\n" + "\n".join(line for line in lines[1:] if line) + after


def _render_pages(value: LookUpInput) -> str:
    memory = "\n".join(f"<Page {number}>\n{text}" for number, text in enumerate(value.pages))
    return f"What you remember:\n{memory}\n\nQuestion: {value.question}\n"


def _render_look_up(value: LookUpInput) -> str:
    return f"{_render_pages(value)}Choose 1 to {value.most} pages."


def _render_next(value: LookUpInput) -> str:
    read = ", ".join(map(str, value.read)) or "none"
    return (
        f"{_render_pages(value)}Pages read again so far: {read}. Pages left to choose: {value.most - len(value.read)}."
    )


def _check_gist(_: GistInput, output: GistOutput) -> None:
    if not output.gist.strip():
        raise ValueError("gist is empty")


READ_BREAK = Task("read_break", 1, "ingest", BreakInput, BreakOutput, BREAK_SYSTEM, _render_break, 300)
READ_GIST = Task(
    "read_gist", 1, "ingest", GistInput, GistOutput, GIST_SYSTEM, lambda v: f"Page:\n{v.page}", 700, check=_check_gist
)
READ_LOOK_UP = Task("read_look_up", 1, "reflect", LookUpInput, LookUpOutput, LOOK_UP_SYSTEM, _render_look_up, 200)
READ_NEXT_PAGE = Task("read_next_page", 1, "reflect", LookUpInput, NextPageOutput, NEXT_PAGE_SYSTEM, _render_next, 100)
