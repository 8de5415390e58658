"""Agentic RAG's searcher without a model: the question's content words first, then what the results lack, then stop.

Coverage of the question's terms and the next query come from the backbone's `refine`; the draft answer is its answerer's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from baselines.tasks.agentic_rag import LastStepOutput, StepInput, StepOutput
from memfly.llm.extractive.answer import answer
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.keywords import question
from memfly.llm.extractive.refine import subquery, sufficiency
from memfly.tasks.answer import AnswerInput
from memfly.tasks.question import QuestionInput
from memfly.tasks.refine import SubqueryInput, SufficiencyInput

_ID = re.compile(r"^\[[^\]]*\] ")


def _evidence(value: StepInput) -> tuple[str, ...]:
    """All results so far as the answerer would see them: without turn ids."""
    return tuple(_ID.sub("", line) for search in value.searches for line in search.results)


async def _draft(value: StepInput, tools: Tools) -> str:
    return (await answer(AnswerInput(value.question, _evidence(value), "open"), tools)).answer


async def step(value: StepInput, tools: Tools) -> StepOutput:
    if not value.searches:
        first = (await question(QuestionInput(value.question), tools)).topic_desc
        return StepOutput(action="search", query=first.strip() or value.question[:400] or "(nothing asked)")
    evidence = _evidence(value)
    verdict = await sufficiency(SufficiencyInput(value.question, evidence), tools)
    if not verdict.sufficient:
        asked = tuple(search.query for search in value.searches)
        following = await subquery(SubqueryInput(value.question, evidence, asked, verdict.missing_info), tools)
        if following.query:
            return StepOutput(action="search", query=following.query[:400])
    return StepOutput(action="answer", answer=await _draft(value, tools))


async def last_step(value: StepInput, tools: Tools) -> LastStepOutput:
    return LastStepOutput(answer=await _draft(value, tools))


FUNCTIONS: Mapping[str, Function] = {"rag_step": step, "rag_last_step": last_step}
