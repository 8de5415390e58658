"""The shared answerer's tasks: evidence + question -> a short answer. Three prompt sets (docs/protocols.md).

`amem` chooses the prompt by category (short phrase, date, two options), `locomo` is the official wording's content with
its date sentence and lettered options, `open` is one prompt for all with leave to abstain. Which style a question gets
is decided in `eval.answer`; memory systems never see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput

Style = Literal["phrase", "date", "choice", "open", "official", "official_date", "official_choice"]

NOT_MENTIONED = "Not mentioned in the conversation"
"""The fixed option of category 5, part of the protocol of A-MEM and LoCoMo."""


@dataclass(frozen=True)
class AnswerInput:
    question: str
    evidence: tuple[str, ...]
    """Passages as shown, each with its date, in the order shown."""
    style: Style
    options: tuple[str, ...] = ()
    """The two options of a choice, in the order shown."""


class AnswerOutput(TaskOutput):
    answer: str = Field(max_length=2000)


SYSTEM = 'You answer questions about past conversations from excerpts of a memory. Reply with one JSON object: {"answer": string}'

_INSTRUCTIONS: dict[Style, str] = {
    "phrase": "Answer with a short phrase. Use the exact words of the excerpts wherever you can.",
    "date": (
        "Answer with a date or time. Work it out from the date of the conversation; an approximate date will do. "
        "Give the shortest possible answer, in the words of the conversation, and leave out the subject."
    ),
    "choice": "Choose the right answer from the two options and give it word for word, nothing else.",
    "open": (
        "Answer with a short phrase in the words of the excerpts; give a date for a question about time, worked out "
        "from the date of the conversation. If the excerpts do not hold the answer, answer exactly: "
        f"{NOT_MENTIONED}"
    ),
    "official": "Write a short phrase that answers the question, with exact words from the excerpts where possible.",
    "official_date": (
        "Write a short phrase that answers the question, with exact words from the excerpts where possible. "
        "Use the dates of the conversations to answer with an approximate date."
    ),
    "official_choice": "Answer the question from the excerpts by giving the text of the right option.",
}


def _render(value: AnswerInput) -> str:
    excerpts = "\n".join(value.evidence) or "(none)"
    options = ""
    if value.options:
        options = "\nOptions: " + " ".join(
            f"({letter}) {text}" for letter, text in zip("ab", value.options, strict=True)
        )
    return f"Excerpts:\n{excerpts}\n\n{_INSTRUCTIONS[value.style]}\nQuestion: {value.question}{options}"


ANSWER = Task("answer", 1, "answer", AnswerInput, AnswerOutput, SYSTEM, _render, max_tokens=1000, temperature=0.7)

INTERIM = Task("interim_answer", 1, "reflect", AnswerInput, AnswerOutput, SYSTEM, _render, max_tokens=1000)
"""A draft answer a system asks for while it still searches; booked as what it is, not as an answer."""
