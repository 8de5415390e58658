"""Sufficiency by coverage, and the next question."""

from __future__ import annotations

from memfly.embed import Embedder, Hashing
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.refine import subquery, sufficiency
from memfly.tasks.refine import SubqueryInput, SufficiencyInput

TOOLS = Tools(Embedder(Hashing()))
RACE = "1:56 pm on 8 May, 2023 | Nora: I ran the charity race last Saturday with Petra."
CARS = "1:56 pm on 8 May, 2023 | Tim: I sold a car."
QUESTION = "When did Nora run the charity race?"


async def test_covered_evidence_of_the_right_type_is_sufficient() -> None:
    output = await sufficiency(SufficiencyInput(QUESTION, (CARS, RACE)), TOOLS)
    assert output.sufficient
    assert output.missing_info == ""


async def test_missing_terms_are_named() -> None:
    output = await sufficiency(SufficiencyInput("Where did Nora buy the violin?", (CARS,)), TOOLS)
    assert not output.sufficient
    assert "violin" in output.missing_info
    assert output.confidence < 0.5


async def test_a_when_question_needs_a_time() -> None:
    timeless = "1:56 pm on 8 May, 2023 | Nora: I ran the charity race with Petra."
    assert not (await sufficiency(SufficiencyInput(QUESTION, (timeless,)), TOOLS)).sufficient


async def test_no_evidence_is_never_enough() -> None:
    assert not (await sufficiency(SufficiencyInput(QUESTION, ()), TOOLS)).sufficient


async def test_the_next_question_holds_subject_gap_and_bridge() -> None:
    value = SubqueryInput("Where did Nora's race partner grow up?", (RACE,), (), "grow up")
    query = (await subquery(value, TOOLS)).query
    assert "Nora" in query
    assert "Petra" in query


async def test_nothing_new_ends_the_search() -> None:
    value = SubqueryInput("Where did Nora's race partner grow up?", (RACE,), (), "grow up")
    first = (await subquery(value, TOOLS)).query
    again = SubqueryInput(value.question, value.evidence, (first,), "grow up")
    assert (await subquery(again, TOOLS)).query == ""
