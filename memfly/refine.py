"""Iterative evidence refinement (MemFly 3.4.2): retrieve, judge, ask for what is missing.

Ours: the first retrieval is round 1, so `rounds` bounds the retrievals; the pool is cut by accumulated RRF score; a round
that adds no new note ends it. An unusable reply ends it as well, and is marked in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from memfly.errors import ParseError
from memfly.llm.client import LLM
from memfly.options import Options
from memfly.retrieve import Retrieved, Retriever, pool
from memfly.tasks.answer import INTERIM, AnswerInput
from memfly.tasks.refine import SUBQUERY, SUFFICIENCY, SubqueryInput, SufficiencyInput

UNUSABLE = "unusable reply"


class RefineOptions(Options):
    rounds: int = Field(default=3, ge=1, le=10)
    """I_max: retrievals at most; 1 = no refinement, no sufficiency call."""
    interim_answer: bool = False


class Refiner:
    """`show` renders note ids as evidence lines, the same text the answerer would read."""

    def __init__(
        self, retriever: Retriever, llm: LLM, options: RefineOptions, show: Callable[[Sequence[int]], tuple[str, ...]]
    ) -> None:
        self.retriever, self.llm, self.options, self.show = retriever, llm, options, show

    async def gather(self, question: str) -> tuple[list[int], dict[str, Any]]:
        """Note ids best first (at most k_final), and what was done."""
        k_final = self.retriever.options.k_final
        found: list[Retrieved] = [await self.retriever.retrieve(question)]
        history = [question]
        stop = "rounds"
        while len(found) < self.options.rounds:
            notes = pool(found, k_final)
            query, stop = await self._next_query(question, notes, history)
            if not query:
                break
            result = await self.retriever.retrieve(query)
            seen = {note for earlier in found for note, _ in earlier.ranked}
            found.append(result)
            history.append(query)
            if seen.issuperset(note for note, _ in result.ranked):
                stop = "nothing new"
                break
            stop = "rounds"
        trace: dict[str, Any] = {"rounds": [r.trace for r in found], "stop": stop}
        if stop == UNUSABLE:
            trace["reflect_fallback"] = True
        if any("parse_fallback" in result.trace for result in found):
            trace["parse_fallback"] = True
        return pool(found, k_final), trace

    async def _next_query(self, question: str, notes: Sequence[int], history: Sequence[str]) -> tuple[str, str]:
        """The next sub-query and "", or "" and why to stop."""
        evidence = self.show(notes)
        purpose = f"{len(history)}:{question}"
        try:
            interim = ""
            if self.options.interim_answer:
                value = AnswerInput(question, evidence, "open")
                interim = (await self.llm.run(INTERIM, value, purpose=f"interim {purpose}")).answer
            verdict = await self.llm.run(SUFFICIENCY, SufficiencyInput(question, evidence, interim), purpose=purpose)
            if verdict.sufficient:
                return "", "sufficient"
            ask = SubqueryInput(question, evidence, tuple(history), verdict.missing_info)
            query = (await self.llm.run(SUBQUERY, ask, purpose=purpose)).query.strip()
        except ParseError:
            return "", UNUSABLE
        if not query or query in history:
            return "", "no new query"
        return query, ""
