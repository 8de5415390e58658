"""Agentic RAG: the rules of the search loop (docs/systems/agentic_rag.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baselines.agentic_rag import NOTHING_NEW, REPEATED, AgenticRag
from baselines.extractive import FUNCTIONS
from baselines.tasks.agentic_rag import RAG_STEP, StepInput
from memfly.errors import BackendError, ConfigError
from memfly.llm.client import LLM
from memfly.llm.extractive import Extractive
from memfly.system import Services
from memfly.types import Question, Turn
from tests.support.scripted import Log, Scripted, services

QUESTION = Question("ada-ben#0", "ada-ben", "What is the cat called?")


def search(query: str) -> dict[str, str]:
    return {"action": "search", "query": query, "answer": ""}


def stop(answer: str = "Miso") -> dict[str, str]:
    return {"action": "answer", "query": "", "answer": answer}


def replies(*said: Any) -> Scripted:
    rest = iter(said)
    return Scripted(
        rag_step=lambda value: next(rest), rag_last_step=lambda value: {"action": "answer", "answer": "late"}
    )


async def build(backend: Scripted, turns: tuple[Turn, ...], **options: Any) -> AgenticRag:
    system = AgenticRag(services(backend, log=options.pop("log", None)), **options)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    return system


async def test_search_then_answer(turns: tuple[Turn, ...]) -> None:
    llm = replies(search("Miso grey cat"), stop())
    system = await build(llm, turns)
    assert not llm.calls
    evidence = await system.recall(QUESTION)
    assert llm.count == {"rag_step": 2}
    assert len(evidence.passages) == 5
    times = [passage.time for passage in evidence.passages]
    assert times == sorted(times)  # type: ignore[type-var]
    assert set(evidence.ranked_turns) == set(evidence.turn_ids)
    assert evidence.trace == {"steps": 2, "queries": ["Miso grey cat"], "stop": "answer", "draft_answer": "Miso"}
    assert evidence.answer is None
    shown = llm.inputs("rag_step")[1].searches[0].results
    assert shown[0].startswith("[D")
    assert [line.split("]")[0][1:] for line in shown] == list(evidence.ranked_turns)


async def test_turns_are_shown_once_and_at_most_twenty(turns: tuple[Turn, ...]) -> None:
    """The last of five steps may only answer: four searches of five turns at most, here all 14."""
    llm = replies(*(search(f"Miso {n}") for n in range(5)))
    evidence = await (await build(llm, turns)).recall(QUESTION)
    assert llm.count == {"rag_step": 4, "rag_last_step": 1}
    assert llm.inputs("rag_last_step")[0].steps_left == 1
    assert evidence.trace["stop"] == "last step"
    assert evidence.trace["draft_answer"] == "late"
    assert len(evidence.passages) == len(set(evidence.turn_ids)) == 14
    assert [len(s.results) for s in llm.inputs("rag_last_step")[0].searches] == [5, 5, 4, 0]
    assert llm.inputs("rag_last_step")[0].searches[3].note == NOTHING_NEW


async def test_a_repeated_query_is_told_and_counts_as_a_step(turns: tuple[Turn, ...]) -> None:
    llm = replies(search("Road bike"), search("  road   BIKE "), stop())
    evidence = await (await build(llm, turns)).recall(QUESTION)
    assert evidence.trace["steps"] == 3
    assert len(evidence.passages) == 5
    assert llm.inputs("rag_step")[2].searches[1].note == REPEATED
    assert REPEATED in RAG_STEP.render(llm.inputs("rag_step")[2])


async def test_an_unusable_reply_forces_the_answer(turns: tuple[Turn, ...]) -> None:
    log = Log()
    llm = Scripted(rag_step=lambda value: search("bees") if not value.searches else search(" "))
    system = await build(llm, turns, log=log)
    evidence = await system.recall(QUESTION)
    assert evidence.trace["stop"] == "unusable reply"
    assert len(evidence.passages) == 5
    assert len(log.of("step_fallback")) == 1
    assert llm.count["rag_step"] == 1 + 3
    with pytest.raises(BackendError):
        await (await build(replies(BackendError("down", transient=True)), turns)).recall(QUESTION)


async def test_context_turns_stay_in_the_session(turns: tuple[Turn, ...]) -> None:
    system = await build(replies(search("Ada: Now I want to keep bees."), stop()), turns, k=1, context_turns=1)
    evidence = await system.recall(QUESTION)
    assert evidence.turn_ids == ("D3:2", "D3:3", "D3:4")
    assert evidence.ranked_turns[0] == "D3:3"
    system = await build(
        replies(search("Hi Ben! I adopted a grey cat called Miso"), stop()), turns, k=1, context_turns=2
    )
    assert (await system.recall(QUESTION)).turn_ids == ("D1:1", "D1:2", "D1:3")
    system = await build(replies(search("Send my love to Miso."), stop()), turns, k=1, context_turns=3)
    assert (await system.recall(QUESTION)).turn_ids == ("D1:1", "D1:2", "D1:3", "D1:4")


async def test_answering_at_once_brings_no_evidence(turns: tuple[Turn, ...]) -> None:
    evidence = await (await build(replies(stop("no idea")), turns)).recall(QUESTION)
    assert evidence.passages == ()


async def test_one_step_may_only_answer(turns: tuple[Turn, ...]) -> None:
    llm = replies()
    await (await build(llm, turns, steps=1)).recall(QUESTION)
    assert llm.count == {"rag_last_step": 1}


async def test_save_and_load(turns: tuple[Turn, ...], tmp_path: Path) -> None:
    system = await build(replies(search("bees"), stop()), turns)
    system.save(tmp_path)
    again = AgenticRag(services(replies(search("bees"), stop())))
    again.load(tmp_path)
    assert await again.recall(QUESTION) == await system.recall(QUESTION)


async def test_without_a_model_it_searches_for_what_is_missing(turns: tuple[Turn, ...]) -> None:
    made = services(Scripted())
    llm = LLM(Extractive(made.embedder, FUNCTIONS))
    system = AgenticRag(Services(llm, made.embedder, "ada-ben", ("Ada", "Ben")), k=2)
    for turn in turns:
        await system.observe(turn)
    await system.finish()
    evidence = await system.recall(Question("q", "ada-ben", "Which presents did Rosa give and get?"))
    queries = evidence.trace["queries"]
    assert isinstance(queries, list)
    assert queries[0] == "presents Rosa"
    assert len(queries) == len(set(queries)) >= 2
    assert {"D2:3", "D2:6"} <= set(evidence.turn_ids)


def test_the_input_has_no_room_for_options() -> None:
    assert set(StepInput.__dataclass_fields__) == {"question", "searches", "steps_left"}


def test_bad_options_are_refused() -> None:
    for options in ({"steps": 0}, {"k": 0}, {"context_turns": -1}):
        with pytest.raises(ConfigError, match=r"method\."):
            AgenticRag(services(replies()), **options)  # type: ignore[arg-type]
