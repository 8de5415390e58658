"""The indices against independent arithmetic: BM25 by its formula and by rank_bm25, cosine by numpy, RRF by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from memfly.index import Bm25Index, VectorIndex, rrf

TERMS = st.lists(st.sampled_from("abcdefg"), max_size=8)
STEPS = st.lists(st.tuples(st.integers(0, 6), st.none() | TERMS), max_size=20)


def formula(documents: dict[int, list[str]], query: list[str], k1: float = 1.5, b: float = 0.75) -> dict[int, float]:
    """BM25 with Lucene's idf, straight from the definition."""
    mean = sum(map(len, documents.values())) / len(documents) if documents else 0
    scores = {}
    for item, terms in documents.items():
        score = 0.0
        for term in query:
            df = sum(term in other for other in documents.values())
            tf = terms.count(term)
            if tf:
                idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                score += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(terms) / mean))
        scores[item] = score
    return scores


@given(STEPS, TERMS)
def test_bm25_equals_its_formula_after_any_adds_replaces_and_removes(steps: Any, query: list[str]) -> None:
    index, documents = Bm25Index(), dict[int, list[str]]()
    for item, terms in steps:
        if terms is None:
            index.remove(item)
            documents.pop(item, None)
        else:
            index.set(item, terms)
            documents[item] = terms
    assert len(index) == len(documents)
    expected = {item: score for item, score in formula(documents, query).items() if score > 0}
    assert index.scores(query) == pytest.approx(expected, abs=1e-9)
    found = index.search(query, 3)
    assert found == sorted(index.scores(query).items(), key=lambda p: (-p[1], p[0]))[:3]


@given(st.lists(TERMS.filter(bool), min_size=2, max_size=8), TERMS.filter(bool), st.floats(0.5, 2), st.floats(0, 1))
def test_bm25_equals_rank_bm25_but_for_the_idf(corpus: Any, query: list[str], k1: float, b: float) -> None:
    theirs = BM25Okapi(corpus, k1=k1, b=b)
    size = len(corpus)
    for term in theirs.idf:  # rank_bm25's Okapi idf can be negative; the rest of the formula is the same
        df = sum(term in document for document in corpus)
        theirs.idf[term] = math.log(1 + (size - df + 0.5) / (df + 0.5))
    ours = Bm25Index(k1, b)
    for item, terms in enumerate(corpus):
        ours.set(item, terms)
    scores = ours.scores(query)
    np.testing.assert_allclose([scores.get(i, 0.0) for i in range(size)], theirs.get_scores(query), atol=1e-9)


def test_bm25_without_documents_or_words_finds_nothing() -> None:
    index = Bm25Index()
    assert index.search(["a"], 5) == []
    index.set(1, [])
    assert index.search(["a"], 5) == []
    index.set(2, ["a"])
    assert [i for i, _ in index.search(["a"], 5)] == [2]
    assert index.search(["a"], 0) == index.search(["a"], -1) == []
    index.remove(2)
    index.remove(2)
    assert index.search(["a"], 5) == []


def unit(rows: Any) -> Any:
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_vectors_equal_numpy_after_any_changes(seed: int, k: int) -> None:
    draw = np.random.default_rng(seed)
    index, stored = VectorIndex(8), dict[int, Any]()
    for _ in range(30):
        item = int(draw.integers(0, 15))
        if draw.random() < 0.25:
            index.remove(item)
            stored.pop(item, None)
        else:
            # coarse values make equal vectors, hence exact ties, common
            stored[item] = unit(draw.integers(-1, 2, (1, 8)) + 0.0)[0]
            index.set(item, stored[item])
    query = unit(draw.normal(size=(1, 8)))[0]
    assert len(index) == len(stored)
    found = index.search(query, k)
    expected = sorted(((i, float(v @ query)) for i, v in stored.items()), key=lambda p: (-p[1], p[0]))[:k]
    assert [s for _, s in found] == pytest.approx([s for _, s in expected], abs=1e-6)
    assert len({i for i, _ in found}) == len(found) == min(k, len(stored))
    assert all(float(stored[i] @ query) == pytest.approx(s, abs=1e-6) for i, s in found)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9, 40])
def test_equal_cosines_are_ordered_by_id_also_at_the_cut(k: int) -> None:
    index, row = VectorIndex(4), unit([[1, 0, 0, 0]])[0]
    for item in [7, 3, 9, 1, 5, 8, 2]:
        index.set(item, row)
    index.set(4, unit([[1, 1, 0, 0]])[0])
    index.set(7, row)  # replaced: now last in storage
    assert [i for i, _ in index.search(row, k)] == [1, 2, 3, 5, 7, 8, 9, 4][:k]


def test_an_empty_index_finds_nothing() -> None:
    index, row = VectorIndex(4), unit([[1, 0, 0, 0]])[0]
    assert index.search(row, 3) == []
    index.set(1, row)
    assert index.search(row, 0) == []


def test_rrf_by_hand() -> None:
    fused = rrf([["a", "b", "c"], ["c", "a"], []], constant=60)
    assert fused == [("a", 1 / 61 + 1 / 62), ("c", 1 / 63 + 1 / 61), ("b", 1 / 62)]
    assert rrf([[], []]) == []


def test_rrf_ties_go_to_the_first_seen() -> None:
    assert [i for i, _ in rrf([["x", "y"], ["y", "x"]])] == ["x", "y"]
    assert [i for i, _ in rrf([["b"], ["a"]])] == ["b", "a"]


@given(st.lists(st.lists(st.integers(0, 20), unique=True), max_size=4), st.floats(1, 100))
def test_rrf_scores_and_order(lists: list[list[int]], constant: float) -> None:
    fused = rrf(lists, constant)
    assert {i for i, _ in fused} == {i for found in lists for i in found}
    assert [s for _, s in fused] == sorted((s for _, s in fused), reverse=True)
    for item, score in fused:
        assert score == pytest.approx(sum(1 / (constant + f.index(item) + 1) for f in lists if item in f))
