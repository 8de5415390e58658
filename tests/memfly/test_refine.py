"""Iterative refinement: why it stops, how many calls each case takes, and what the pool holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from memfly.errors import BackendError
from memfly.llm.client import LLM
from memfly.refine import RefineOptions, Refiner
from memfly.retrieve import RetrievalOptions, Retrieved
from tests.support.scripted import Scripted

ENOUGH = {"sufficient": True, "missing_info": "", "confidence": 0.9}
LACKING = {"sufficient": False, "missing_info": "the colour", "confidence": 0.2}


class Rounds:
    """A retriever that gives the n-th list at the n-th call."""

    def __init__(self, *lists: Sequence[int], k_final: int = 4) -> None:
        self.lists = lists
        self.options = RetrievalOptions(k_final=k_final)
        self.asked: list[str] = []

    async def retrieve(self, question: str) -> Retrieved:
        found = self.lists[len(self.asked)]
        self.asked.append(question)
        return Retrieved(tuple((note, 1 / (60 + rank)) for rank, note in enumerate(found, 1)), {"query": question})


def show(notes: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"line {note}" for note in notes)


async def gather(found: Rounds, backend: Scripted, **options: Any) -> tuple[list[int], dict[str, Any]]:
    refiner = Refiner(found, LLM(backend), RefineOptions(**options), show)  # type: ignore[arg-type]
    return await refiner.gather("Which colour?")


def queries(*texts: str) -> Any:
    left = list(texts)
    return lambda value: {"query": left.pop(0)}


async def test_one_round_makes_no_call() -> None:
    backend, rounds = Scripted(), Rounds([1, 2])
    assert await gather(rounds, backend, rounds=1) == (
        [1, 2],
        {"rounds": [{"query": "Which colour?"}], "stop": "rounds"},
    )
    assert backend.calls == []


async def test_sufficient_evidence_stops_it() -> None:
    backend, rounds = Scripted(sufficiency=lambda value: ENOUGH), Rounds([1, 2])
    notes, trace = await gather(rounds, backend)
    assert (notes, trace["stop"], backend.count) == ([1, 2], "sufficient", {"sufficiency": 1})
    assert backend.inputs("sufficiency")[0].evidence == ("line 1", "line 2")


async def test_at_most_so_many_retrievals_and_no_judgement_after_the_last() -> None:
    backend = Scripted(sufficiency=lambda value: LACKING, subquery=queries("a", "b", "c"))
    rounds = Rounds([1, 2], [3], [4], [5])
    notes, trace = await gather(rounds, backend)
    assert rounds.asked == ["Which colour?", "a", "b"]
    assert (trace["stop"], [r["query"] for r in trace["rounds"]]) == ("rounds", rounds.asked)
    assert backend.count == {"sufficiency": 2, "subquery": 2}
    assert notes == [1, 3, 4, 2]
    first, second = backend.inputs("subquery")
    assert (first.history, first.missing_info) == (("Which colour?",), "the colour")
    assert second.history == ("Which colour?", "a")
    assert second.evidence == ("line 1", "line 3", "line 2")


async def test_a_round_with_nothing_new_stops_it_but_its_scores_count() -> None:
    backend = Scripted(sufficiency=lambda value: LACKING, subquery=queries("a"))
    notes, trace = await gather(Rounds([1, 2], [2]), backend)
    assert (notes, trace["stop"], len(trace["rounds"])) == ([2, 1], "nothing new", 2)
    assert backend.count == {"sufficiency": 1, "subquery": 1}


async def test_an_empty_round_stops_it() -> None:
    backend = Scripted(sufficiency=lambda value: LACKING, subquery=queries("a"))
    assert (await gather(Rounds([1], []), backend))[1]["stop"] == "nothing new"


@pytest.mark.parametrize("query", ["", "   ", "Which colour?"])
async def test_no_new_query_stops_it(query: str) -> None:
    backend, rounds = Scripted(sufficiency=lambda value: LACKING, subquery=queries(query)), Rounds([1])
    notes, trace = await gather(rounds, backend)
    assert (notes, trace["stop"], rounds.asked) == ([1], "no new query", ["Which colour?"])


@pytest.mark.parametrize("broken", ["sufficiency", "subquery"])
async def test_an_unusable_reply_stops_it_and_keeps_the_evidence(broken: str) -> None:
    scripts: dict[str, Any] = {
        "sufficiency": lambda value: LACKING,
        "subquery": queries("a"),
        broken: lambda value: "?",
    }
    backend = Scripted(scripts)
    notes, trace = await gather(Rounds([1]), backend)
    assert (notes, trace["stop"], backend.count[broken]) == ([1], "unusable reply", 3)


async def test_a_failed_call_is_an_error_not_a_stop() -> None:
    with pytest.raises(BackendError):
        await gather(Rounds([1]), Scripted(sufficiency=lambda value: BackendError("down", transient=False)))


async def test_the_pool_is_cut_again_after_each_round() -> None:
    backend = Scripted(sufficiency=lambda value: LACKING, subquery=queries("a", "b"))
    notes, _ = await gather(Rounds([1, 2, 3], [4, 2], [2, 5], k_final=2), backend)
    assert notes == [2, 1]
    assert all(len(value.evidence) <= 2 for value in backend.inputs("sufficiency"))


async def test_the_interim_answer_is_asked_for_only_when_wanted() -> None:
    backend = Scripted(sufficiency=lambda value: ENOUGH, interim_answer=lambda value: {"answer": "blue"})
    await gather(Rounds([1]), backend, interim_answer=True)
    assert backend.count == {"interim_answer": 1, "sufficiency": 1}
    assert backend.calls[0].temperature == 0
    assert backend.inputs("interim_answer")[0].style == "open"
    assert backend.inputs("sufficiency")[0].interim_answer == "blue"
