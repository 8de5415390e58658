"""The dense and the sparse index: FAISS inner product and BM25, both keyed by stable ids and updatable one by one.

BM25 is ours because notes change at every merge and the public packages index a fixed corpus; the tests hold it equal to
`rank_bm25` and the scores follow Robertson's formula with Lucene's non-negative idf. Rank fusion (RRF) is here too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import faiss
import numpy as np
import numpy.typing as npt

Id = TypeVar("Id", bound=Hashable)


class VectorIndex:
    """Cosine search over unit vectors under integer ids (FAISS IndexFlatIP). One query at a time, so that scores do
    not depend on what else is asked; equal scores are ordered by id."""

    def __init__(self, dim: int) -> None:
        faiss.omp_set_num_threads(1)  # a search here takes microseconds; waking a second thread takes longer
        self._faiss: Any = faiss.IndexIDMap2(faiss.IndexFlatIP(dim))
        self._ids: set[int] = set()

    def __len__(self) -> int:
        return int(self._faiss.ntotal)

    def set(self, item: int, vector: npt.NDArray[np.float32]) -> None:
        """Add the vector, or replace the one stored under this id."""
        self.remove(item)
        self._ids.add(item)
        self._faiss.add_with_ids(np.ascontiguousarray(vector, dtype=np.float32)[None], np.array([item], dtype=np.int64))

    def remove(self, item: int) -> None:
        if item not in self._ids:
            return  # FAISS would look through the whole index first
        self._ids.remove(item)
        self._faiss.remove_ids(np.array([item], dtype=np.int64))

    def search(self, query: npt.NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Up to k (id, cosine), best first."""
        size = len(self)
        if size == 0 or k <= 0:
            return []
        row, take = np.ascontiguousarray(query, dtype=np.float32)[None], min(k + 1, size)
        while True:
            scores, ids = self._faiss.search(row, take)
            if take == size or scores[0][k - 1] > scores[0][-1]:
                break
            take = min(2 * take, size)  # a tie across the cut: see all of it, so that ids decide and not FAISS's order
        found = [(int(i), float(s)) for i, s in zip(ids[0], scores[0], strict=True) if i >= 0]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


class Bm25Index:
    """BM25 over bags of terms, documents added, replaced and removed at any time.

    score = sum over query terms of idf * tf (k1 + 1) / (tf + k1 (1 - b + b len / mean len)),
    idf = ln(1 + (N - df + 0.5) / (df + 0.5)); a term repeated in the query counts each time.
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1, self.b = k1, b
        self._postings: dict[str, dict[int, int]] = defaultdict(dict)
        self._terms: dict[int, Counter[str]] = {}
        self._lengths: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set(self, item: int, terms: Iterable[str]) -> None:
        """Add the document, or replace the one stored under this id."""
        self.remove(item)
        bag = Counter(terms)
        length = sum(bag.values())
        self._terms[item], self._lengths[item] = bag, length
        self._total += length
        for term, count in bag.items():
            self._postings[term][item] = count

    def remove(self, item: int) -> None:
        bag = self._terms.pop(item, None)
        if bag is None:
            return
        self._total -= self._lengths.pop(item)
        for term in bag:
            postings = self._postings[term]
            del postings[item]
            if not postings:
                del self._postings[term]

    def scores(self, query: Sequence[str]) -> dict[int, float]:
        """Score of every document that shares a term with the query."""
        total: dict[int, float] = defaultdict(float)
        if not self._total:
            return total
        size, mean = len(self._lengths), self._total / len(self._lengths)
        for term, repeats in Counter(query).items():
            postings = self._postings.get(term)
            if not postings:
                continue
            idf = repeats * math.log(1 + (size - len(postings) + 0.5) / (len(postings) + 0.5))
            for item, tf in postings.items():
                norm = self.k1 * (1 - self.b + self.b * self._lengths[item] / mean)
                total[item] += idf * tf * (self.k1 + 1) / (tf + norm)
        return total

    def search(self, query: Sequence[str], k: int) -> list[tuple[int, float]]:
        """Up to k (id, score > 0), best first, equal scores by id."""
        ranked = sorted(self.scores(query).items(), key=lambda pair: (-pair[1], pair[0]))
        return ranked[: max(k, 0)]


def rrf(lists: Iterable[Sequence[Id]], constant: float = 60.0) -> list[tuple[Id, float]]:
    """Reciprocal rank fusion: sum of 1 / (constant + rank), rank from 1; best first, ties by first appearance."""
    total: dict[Id, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, 1):
            total[item] = total.get(item, 0.0) + 1.0 / (constant + rank)
    order = {item: position for position, item in enumerate(total)}
    return sorted(total.items(), key=lambda pair: (-pair[1], order[pair[0]]))
