"""The shared answerer: the same prompts for every system, chosen by category only here (docs/protocols.md).

Prompt sets: `amem` picks the prompt by category and asks category 5 as a choice of two; `locomo` does so in the official
manner; `open` uses one prompt for all and leave to abstain, so that nothing depends on the category.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from eval.categories import Category
from eval.locomo import Gold
from memfly.llm.base import derive_seed
from memfly.llm.client import LLM
from memfly.options import Options
from memfly.tasks.answer import ANSWER, NOT_MENTIONED, AnswerInput, Style
from memfly.text import count_tokens, cut_tokens
from memfly.types import Evidence, Passage, Question

PromptSet = Literal["amem", "open", "locomo"]


class AnswerOptions(Options):
    prompt_set: PromptSet = "amem"
    temperature: float = Field(default=0.7, ge=0, le=2)
    temperature_adversarial: float = Field(default=0.5, ge=0, le=2)
    """Category 5's temperature; used only by prompt sets that know the category (MemFly Table 5, A-MEM)."""
    max_tokens: int = Field(default=1000, ge=16)
    native: bool = True
    """Take the answer of systems that answer themselves (MemGPT), where the question is the same for all: not under a
    token budget, which cuts what the shared answerer sees, and not for a choice of two options. False: never."""
    token_budget: int | None = Field(default=None, ge=1)
    """Cut every system's evidence to this many o200k tokens, worst-ranked passages first: the equal-budget comparison."""
    note_view: Literal["context", "raw", "both"] = "both"
    """What a MemFly note shows; `method.note_view` refers to it."""


@dataclass(frozen=True)
class Prompted:
    """What the answerer is asked: its input, and the style's temperature."""

    value: AnswerInput
    temperature: float
    evidence_tokens: int
    shown: tuple[Passage, ...]


def render(passage: Passage) -> str:
    """A passage as the answerer reads it."""
    return f"{passage.date} | {passage.text}" if passage.date else passage.text


def prompt(question: Question, gold: Gold, evidence: Evidence, options: AnswerOptions, seed: int) -> Prompted:
    """The answerer's input for one question. The order of the two options is a fair coin keyed on (seed, question)."""
    passages = evidence.passages
    if options.token_budget is not None:
        passages = fit(evidence, options.token_budget)
    lines = tuple(render(passage) for passage in passages)
    style, choices = _style(gold, options.prompt_set)
    if choices:
        random.Random(derive_seed(seed, question.conversation, question.id, "coin")).shuffle(choices)
    adversarial = gold.category is Category.ADVERSARIAL and options.prompt_set != "open"
    heat = options.temperature_adversarial if adversarial else options.temperature
    tokens = sum(count_tokens(line) for line in lines)
    return Prompted(AnswerInput(question.text, lines, style, tuple(choices)), heat, tokens, passages)


def _style(gold: Gold, prompt_set: PromptSet) -> tuple[Style, list[str]]:
    if prompt_set == "open":
        return "open", []
    official = prompt_set == "locomo"
    if gold.category is Category.ADVERSARIAL and gold.trap is not None:
        return ("official_choice" if official else "choice"), [NOT_MENTIONED, gold.trap]
    if gold.category is Category.TEMPORAL:
        return ("official_date" if official else "date"), []
    return ("official" if official else "phrase"), []


def answers_the_same(prompted: Prompted, options: AnswerOptions) -> bool:
    """Whether a system's own answer is an answer to what the others are asked: the same evidence, no choice of two."""
    return options.token_budget is None and not prompted.value.options


async def answer(llm: LLM, prompted: Prompted, options: AnswerOptions) -> str:
    """One call. Raises ParseError when no attempt gave a usable reply; that is an error state, not an empty answer."""
    reply = await llm.run(
        ANSWER, prompted.value, temperature=prompted.temperature, max_tokens=options.max_tokens, purpose="answer"
    )
    return reply.answer.strip()


def fit(evidence: Evidence, budget: int) -> tuple[Passage, ...]:
    """The best-ranked passages that fill the budget, the last one cut to it, in the order they were shown.

    A text shown more than once is charged once: its later copies are left out.
    """
    kept: dict[int, Passage] = {}
    seen: set[Passage] = set()
    left = budget
    for i in dict.fromkeys([*evidence.ranking, *range(len(evidence.passages))]):
        passage = evidence.passages[i]
        if passage in seen:
            continue
        seen.add(passage)
        size = count_tokens(render(passage))
        if size > left:
            room = left - count_tokens(f"{passage.date} | ") if passage.date else left
            text = cut_tokens(passage.text, room)
            if text:
                kept[i] = Passage(text, _still_shown(passage, text), passage.date, passage.time)
            break
        kept[i] = passage
        left -= size
    return tuple(kept[i] for i in sorted(kept))


def _still_shown(passage: Passage, text: str) -> tuple[str, ...]:
    """A cut passage is credited with its turns only in proportion to what is left of it, first turns first."""
    share = len(text) / max(len(passage.text), 1)
    return passage.turns[: int(len(passage.turns) * share + 0.5)]
