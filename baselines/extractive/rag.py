"""RAG's notes without a model: the informative sentences of a session, as facts with their turn ids or as a summary."""

from __future__ import annotations

from collections.abc import Mapping

from baselines.extractive.sentences import best, read, shorten
from baselines.tasks.rag import Fact, ObservationsOutput, SessionInput, SummaryOutput
from memfly.llm.extractive.analysis import analyse
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.keywords import is_small_talk

FACTS = 24
SUMMARY_WORDS = 130


async def observations(value: SessionInput, tools: Tools) -> ObservationsOutput:
    """Up to `FACTS` statements, by the turn they come from."""
    said = [(line.id, sentence) for line in value.lines for sentence in read(line.text)]
    said = [(i, s) for i, s in said if not analyse(s.text).question and not is_small_talk(s.text)]
    chosen = best([s.text for _, s in said], 15 * FACTS, FACTS)
    facts = [Fact(speaker=said[i][1].speaker, fact=said[i][1].restated[:600], turns=[said[i][0]]) for i in chosen]
    return ObservationsOutput(facts=facts)


async def summary(value: SessionInput, tools: Tools) -> SummaryOutput:
    text = shorten([line.text for line in value.lines], SUMMARY_WORDS)
    return SummaryOutput(summary=text[:4000] or " ".join(value.speakers))


FUNCTIONS: Mapping[str, Function] = {"rag_observations": observations, "rag_summary": summary}
