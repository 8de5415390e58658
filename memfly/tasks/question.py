"""Reading a question before retrieval: a topic heading and keywords (MemFly 3.4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class QuestionInput:
    question: str


class QuestionOutput(TaskOutput):
    topic_desc: str = Field(max_length=200, description="a heading: noun phrase of fewer than 8 words")
    keywords: list[str] = Field(max_length=12, description="3 to 5 canonical singular noun phrases")


SYSTEM = """You prepare a question for searching a memory of past conversations. Reply with one JSON object:
{"topic_desc": string, "keywords": [string, ...]}
topic_desc: the subject area as a heading, a noun phrase of fewer than 8 words; not what is being asked about it.
keywords: 3 to 5 search terms from the question, singular and in their usual form: names of people, places and things, \
objects, activities."""


def _render(value: QuestionInput) -> str:
    return f"Question: {value.question}"


QUESTION = Task("question", 1, "parse", QuestionInput, QuestionOutput, SYSTEM, _render, max_tokens=200)
