"""The pathways on a memory small enough to work out by hand, and their fusion."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from memfly.embed import Embedder
from memfly.graph import MemoryGraph, Piece
from memfly.index import Bm25Index, rrf
from memfly.llm.client import LLM
from memfly.retrieve import RetrievalOptions, Retrieved, Retriever, pool
from memfly.topics import Topics
from tests.support.scripted import Scripted

AXES = {"pets": 0, "sport": 1, "art": 2}


def axis(*weights: float) -> Any:
    row = np.zeros(4, np.float32)
    row[: len(weights)] = weights
    return row / np.linalg.norm(row)


class Table:
    """An encoder that knows its texts."""

    identity: dict[str, Any] = {"encoder": "table"}  # noqa: RUF012
    dim = 4

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def encode(self, texts: Sequence[str]) -> Any:
        return np.stack([self.rows[text] for text in texts])


class Memory:
    """Six notes: 0, 1 about pets, 2, 3 about sport, 4 about art, 5 without keywords; links 4 -> 0 and 5 -> 2."""

    def __init__(self) -> None:
        self.graph = MemoryGraph()
        keys = [["cat", "vet"], ["cat"], ["bike"], ["bike", "race"], ["bowl"], []]
        for i, names in enumerate(keys):
            piece = Piece(f"D1:{i}", 1, "d", datetime(2024, 1, 1), f"t{i}")
            self.graph.add([piece], f"note {i}", {name: name for name in names})
        self.graph.link(4, 0, "RELATED", 0.9)
        self.graph.link(5, 2, "RELATED", 0.8)
        self.keyword_names = ["cat", "vet", "bike", "race", "bowl"]
        self.vectors = {
            "cat": axis(1), "vet": axis(1, 0.2), "bike": axis(0, 1), "race": axis(0.1, 1), "bowl": axis(0, 0, 1)
        }  # fmt: skip
        self.topics = Topics.from_json({"members": [["cat", "vet"], ["bike", "race"], ["bowl"]]}, self.vectors)
        self.note_vectors = {
            0: axis(1, 0.1), 1: axis(1), 2: axis(0, 1), 3: axis(0.2, 1), 4: axis(0, 0, 1), 5: axis(0, 0, 0, 1)
        }  # fmt: skip

        self.sparse = Bm25Index()
        for note in self.graph.notes.values():
            self.sparse.set(note.id, [*note.keywords, "race"] if note.id == 2 else note.keywords)

    def keyword_matrix(self) -> Any:
        return np.stack([self.vectors[name] for name in self.keyword_names])


def retriever(options: dict[str, Any], question: Any = None, *, topic: Any = None, reply: Any = None) -> Retriever:
    """Question vector on pets, topic vector on pets; the query's one keyword lies on sport."""
    rows = {"Q?": axis(1) if question is None else question, "the topic": axis(1) if topic is None else topic}
    rows |= {"Bikes": axis(0, 1), "q": axis(0, 1)}
    backend = Scripted(
        question=lambda value: reply or {"topic_desc": " the topic ", "keywords": ["Bikes", "bike", "."]}
    )
    return Retriever(Memory(), LLM(backend), Embedder(Table(rows)), RetrievalOptions.model_validate(options))


async def lists(options: dict[str, Any], **more: Any) -> dict[str, list[int]]:
    made = retriever(options, **more)
    vectors = await made.embedder.embed(["Q?", "the topic", "Bikes"])
    return made._lists(vectors[0], vectors[1], vectors[2:])


ALL = ("topic", "keyword", "neighbour", "dense")


async def test_each_pathway_finds_what_it_should_ordered_by_cosine_with_the_question() -> None:
    found = await lists({"pathways": ALL, "k_topic": 1, "k_key": 1, "k_dense": 2})
    assert found == {"topic": [1, 0], "keyword": [3, 2], "dense": [1, 0], "neighbour": [4, 5]}


@pytest.mark.parametrize(
    "pathways", [c for n in (1, 2, 3, 4) for c in itertools.combinations(ALL, n) if set(c) != {"neighbour"}]
)
async def test_only_the_chosen_pathways_are_walked(pathways: tuple[str, ...]) -> None:
    found = await lists({"pathways": pathways, "k_topic": 1, "k_key": 1, "k_dense": 2})
    assert set(found) == set(pathways)
    if "neighbour" in pathways:
        start = {n for name, notes in found.items() if name != "neighbour" for n in notes}
        assert found["neighbour"] == [other for other, origin in ((4, 0), (5, 2)) if origin in start]


async def test_sizes_of_topic_and_keyword_pathways() -> None:
    assert (await lists({"k_topic": 2, "k_key": 2}))["topic"] == [1, 0, 3, 2]
    assert (await lists({"k_topic": 3, "k_key": 5}))["keyword"] == [1, 0, 3, 2, 4]
    assert (await lists({"k_topic": 1, "k_key": 1}, topic=axis(0, 0, 1)))["topic"] == [4]


async def test_directed_links_are_followed_from_newer_to_older_only() -> None:
    art = {"pathways": ["topic", "neighbour"], "k_topic": 1}
    assert (await lists(art, topic=axis(0, 0, 1)))["neighbour"] == [0]
    assert (await lists(art | {"directed": True}, topic=axis(0, 0, 1)))["neighbour"] == [0]
    assert (await lists(art))["neighbour"] == [4]
    assert (await lists(art | {"directed": True}))["neighbour"] == []


async def test_the_order_inside_a_list_may_be_bm25_or_both() -> None:
    async def keyword_list(order: str) -> list[int]:
        made = retriever({"order": order, "pathways": ["topic", "keyword"], "k_topic": 3})
        vectors = await made.embedder.embed(["Q?", "the topic", "Bikes"])
        return made._lists(vectors[0], vectors[1], vectors[2:], made.memory.sparse.scores(["race", "bike"]))["topic"]

    by_cosine, by_bm25 = await keyword_list("cosine"), await keyword_list("bm25")
    assert by_cosine == [1, 0, 3, 2, 4]
    assert by_bm25[:2] == [2, 3] or by_bm25[:2] == [3, 2]
    assert by_bm25[2:] == [1, 0, 4], "notes without a query word keep their order by cosine"
    assert sorted(await keyword_list("both")) == sorted(by_cosine)
    assert await keyword_list("both") == [note for note, _ in rrf([by_cosine, by_bm25])]


async def test_equal_cosines_are_ordered_by_note_id() -> None:
    found = await lists({"k_topic": 3, "k_key": 5}, question=axis(0, 0, 0, -1))
    assert found["topic"] == [0, 1, 2, 3, 4]


async def test_the_neighbour_list_is_a_third_rrf_list() -> None:
    result = await retriever({"k_topic": 1, "k_key": 1}).retrieve("Q?")
    assert dict(result.ranked) == {1: 1 / 61, 3: 1 / 61, 4: 1 / 61, 0: 1 / 62, 2: 1 / 62, 5: 1 / 62}
    assert [note for note, _ in result.ranked] == [1, 3, 4, 0, 2, 5]


async def test_or_neighbours_follow_after_everything_else() -> None:
    result = await retriever({"k_topic": 1, "k_key": 1, "neighbours": "append"}).retrieve("Q?")
    assert [note for note, _ in result.ranked] == [1, 3, 0, 2, 4, 5]
    scores = [score for _, score in result.ranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[4] < scores[3]


async def test_the_cut_and_the_constant() -> None:
    result = await retriever({"k_topic": 1, "k_key": 1, "k_final": 3, "rrf_constant": 1}).retrieve("Q?")
    assert result.ranked == ((1, 0.5), (3, 0.5), (4, 0.5))


async def test_the_trace_says_what_was_done() -> None:
    result = await retriever({"k_topic": 1, "k_key": 1}).retrieve("Q?")
    assert result.trace == {
        "query": "Q?", "topic": "the topic", "keywords": ["Bikes"], "n_topic": 2, "n_keyword": 2, "n_neighbour": 2
    }  # fmt: skip


async def test_an_unreadable_question_is_searched_by_its_own_words_and_marked() -> None:
    made = retriever({"k_topic": 1, "k_key": 1}, reply="no JSON here")
    result = await made.retrieve("Q?")
    assert len(made.llm.backend.calls) == 3  # type: ignore[attr-defined]
    assert result.trace["parse_fallback"] is True
    assert (result.trace["topic"], result.trace["keywords"]) == ("Q?", ["q"])
    assert {note for note, _ in result.ranked} == {0, 1, 2, 3, 4, 5}


async def test_a_reading_without_keywords_leaves_the_keyword_list_empty() -> None:
    made = retriever({"k_topic": 1}, reply={"topic_desc": "", "keywords": ["..."]})
    result = await made.retrieve("Q?")
    assert (result.trace["topic"], result.trace["keywords"], result.trace["n_keyword"]) == ("Q?", [], 0)
    assert [note for note, _ in result.ranked] == [1, 4, 0]


async def test_an_empty_memory_gives_nothing() -> None:
    made = retriever({"pathways": ALL})
    made.memory.graph, made.memory.topics = MemoryGraph(), Topics()
    made.memory.keyword_names, made.memory.note_vectors = [], {}  # type: ignore[misc]
    assert (await made.retrieve("Q?")).ranked == ()


def test_the_pool_adds_scores_over_rounds() -> None:
    rounds = [Retrieved(((1, 0.5), (2, 0.3), (3, 0.2)), {}), Retrieved(((3, 0.4), (4, 0.3)), {})]
    assert pool(rounds, 10) == [3, 1, 2, 4]
    assert pool(rounds, 2) == [3, 1]
    assert pool([], 5) == []


def test_pathways_need_a_starting_point() -> None:
    for pathways in ([], ["neighbour"]):
        with pytest.raises(ValueError, match="needs at least one of topic, keyword, dense"):
            RetrievalOptions.model_validate({"pathways": pathways})
