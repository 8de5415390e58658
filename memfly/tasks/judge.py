"""The optional judge: is an answer right, given the gold answer? Generous about form, in mem0's manner.

mem0's own judge (evaluation/metrics/llm_judge.py) also passes an answer that is only on the topic (docs/protocols.md).
The verdict is read by `verdict` from what the model said, not from what it was asked to say: the last whole word of the
menu counts, and anything else is no verdict at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput

Verdict = Literal["CORRECT", "WRONG"]

_WORD = re.compile(r"[A-Za-z]+(?:[-'][A-Za-z]+)*")
_NEGATIONS = frozenset({"not", "never", "no", "isn't", "wasn't", "cannot", "can't", "hardly"})


@dataclass(frozen=True)
class JudgeInput:
    question: str
    gold: str
    answer: str


class JudgeOutput(TaskOutput):
    reason: str = Field(default="", max_length=500, description="one sentence")
    label: str = Field(max_length=200, description="CORRECT or WRONG")


SYSTEM = """You grade an answer to a question about a past conversation against the gold answer. Reply with one JSON object: \
{"reason": string, "label": string}
Be generous about form: a longer answer, other words, another date format, or a relative time that names the same period \
as the gold answer are fine, as long as the answer says what the gold answer says. An answer that only stays on the topic, \
names something else, or says that nothing is known is wrong.
Give your reason in one sentence first, then the label: CORRECT or WRONG, that word alone."""


def _render(value: JudgeInput) -> str:
    return f"Question: {value.question}\nGold answer: {value.gold}\nAnswer to grade: {value.answer or '(empty)'}"


JUDGE = Task("judge", 1, "judge", JudgeInput, JudgeOutput, SYSTEM, _render, max_tokens=300, temperature=0.0)


def verdict(text: str) -> Verdict | None:
    """The last whole-word verdict in a text, or None when there is none.

    In prose only capitals count; a text of one word counts in any case. INCORRECT is another word and no verdict, and so
    is a verdict word with a negation right before it.

    >>> [verdict(t) for t in ("CORRECT", "wrong.", "First WRONG, then CORRECT", "INCORRECT", "NOT CORRECT", "It is correct")]
    ['CORRECT', 'WRONG', 'CORRECT', None, None, None]
    """
    words = _WORD.findall(text)
    if len(words) == 1:
        words = [words[0].upper()]
    for place in range(len(words) - 1, -1, -1):
        word = words[place]
        if word == "INCORRECT":
            return None
        if word in ("CORRECT", "WRONG"):
            if place and words[place - 1].lower() in _NEGATIONS:
                return None
            return "CORRECT" if word == "CORRECT" else "WRONG"
    return None
