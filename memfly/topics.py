"""Topics: Leiden communities of co-occurring keywords, within size bounds (MemFly 3.3; sizes and joining are ours).

Modularity on co-occurrence counts, seeded, at most delta_max keywords each (`max_comm_size`). Communities under delta_min
join the neighbour they are most heavily connected to, else the nearest centroid, as long as that one has room; a graph
that leaves no room keeps them. mu_C is the normalised mean of the keyword vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import igraph
import leidenalg
import networkx as nx
import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from memfly.embed import Vectors
from memfly.options import Options

Vector = npt.NDArray[np.float32]


class TopicOptions(Options):
    delta_min: int = Field(default=3, ge=1)
    delta_max: int = Field(default=50, ge=1)
    every: int = Field(default=100, ge=1)
    """Turns between rebuilds during ingestion; a last rebuild follows the last turn."""

    @model_validator(mode="after")
    def _ordered(self) -> TopicOptions:
        if self.delta_min > self.delta_max:
            raise ValueError(f"delta_min {self.delta_min} is larger than delta_max {self.delta_max}")
        return self


class Topics:
    """Which keyword is in which topic, and the topics' centroids. Empty until the first rebuild."""

    def __init__(self) -> None:
        self.members: dict[int, list[str]] = {}
        self.of: dict[str, int] = {}
        self._centroids: dict[int, Vector] = {}

    def rebuild(self, cooccur: nx.Graph, vectors: Mapping[str, Vector], bounds: TopicOptions, seed: int) -> None:
        """Cluster all keywords afresh. Topic ids count from 0, larger topics first, ties by first keyword."""
        groups = _leiden(cooccur, bounds.delta_max, seed)
        groups = _join_small(groups, cooccur, vectors, bounds)
        groups.sort(key=lambda group: (-len(group), group[0]))
        self.members = dict(enumerate(groups))
        self.of = {keyword: topic for topic, group in self.members.items() for keyword in group}
        self._centroids = {topic: _centroid(group, vectors) for topic, group in self.members.items()}

    def place(self, keyword: str, cooccur: nx.Graph, vectors: Mapping[str, Vector]) -> None:
        """Put a keyword that came after the last rebuild into the topic of its strongest neighbour, else the nearest."""
        if keyword in self.of or not self.members:
            return
        near = [(n, d["weight"]) for n, d in cooccur[keyword].items() if n in self.of]
        strongest = min(near, key=lambda pair: (-pair[1], pair[0]))[0] if near else None
        topic = self.of[strongest] if strongest is not None else self.nearest(vectors[keyword], 1)[0]
        self.members[topic].append(keyword)
        self.of[keyword] = topic
        self._centroids[topic] = _centroid(self.members[topic], vectors)

    def nearest(self, vector: Vector, k: int) -> list[int]:
        """The k topics with the highest cosine to their centroid, ties by id."""
        scored = sorted((-float(np.dot(c, vector)), topic) for topic, c in self._centroids.items())
        return [topic for _, topic in scored[:k]]

    def centroids(self) -> Vectors:
        """All centroids in id order, shape (topics, dim)."""
        return np.stack([self._centroids[topic] for topic in sorted(self._centroids)])

    def to_json(self) -> dict[str, Any]:
        return {"members": [self.members[topic] for topic in sorted(self.members)]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], vectors: Mapping[str, Vector]) -> Topics:
        topics = cls()
        topics.members = dict(enumerate(list(group) for group in data["members"]))
        topics.of = {keyword: topic for topic, group in topics.members.items() for keyword in group}
        topics._centroids = {topic: _centroid(group, vectors) for topic, group in topics.members.items()}
        return topics


def _leiden(cooccur: nx.Graph, delta_max: int, seed: int) -> list[list[str]]:
    names = sorted(cooccur.nodes)
    if not names:
        return []
    position = {name: i for i, name in enumerate(names)}
    edges = sorted(
        (min(position[a], position[b]), max(position[a], position[b]), w) for a, b, w in cooccur.edges(data="weight")
    )
    graph = igraph.Graph(n=len(names), edges=[(a, b) for a, b, _ in edges])
    partition = leidenalg.ModularityVertexPartition(graph, weights=[w for _, _, w in edges])
    optimiser = leidenalg.Optimiser()
    optimiser.max_comm_size = delta_max
    optimiser.community_constraint_enforcement = 1.0  # from 0.12 on, max_comm_size alone does nothing
    optimiser.set_rng_seed(seed)
    optimiser.optimise_partition(partition, n_iterations=-1)
    return [sorted(names[i] for i in community) for community in partition if len(community)]


def _join_small(
    groups: list[list[str]], cooccur: nx.Graph, vectors: Mapping[str, Vector], bounds: TopicOptions
) -> list[list[str]]:
    """Join undersized groups, smallest first. Each step removes one group, so this ends."""
    open_groups = {i: list(group) for i, group in enumerate(groups)}
    home = {keyword: i for i, group in open_groups.items() for keyword in group}
    centroids = {i: _centroid(group, vectors) for i, group in open_groups.items()}
    stuck: set[int] = set()
    while True:
        small = [(len(g), g[0], i) for i, g in open_groups.items() if len(g) < bounds.delta_min and i not in stuck]
        if not small or len(open_groups) == 1:
            return [sorted(group) for group in open_groups.values()]
        _, _, source = min(small)
        room = {
            i for i, g in open_groups.items() if i != source and len(g) + len(open_groups[source]) <= bounds.delta_max
        }
        if not room:
            stuck.add(source)
            continue
        weight: dict[int, float] = {}
        for keyword in open_groups[source]:
            for other, data in cooccur[keyword].items():
                if home[other] in room:
                    weight[home[other]] = weight.get(home[other], 0) + data["weight"]
        if weight:
            target = min(weight, key=lambda i: (-weight[i], open_groups[i][0]))
        else:
            target = min(room, key=lambda i: (-float(np.dot(centroids[i], centroids[source])), open_groups[i][0]))
        for keyword in open_groups[source]:
            home[keyword] = target
        open_groups[target] = sorted(open_groups[target] + open_groups.pop(source))
        centroids[target] = _centroid(open_groups[target], vectors)
        stuck.clear()


def _centroid(keywords: list[str], vectors: Mapping[str, Vector]) -> Vector:
    mean = np.mean([vectors[keyword] for keyword in keywords], axis=0, dtype=np.float64)
    norm = float(np.linalg.norm(mean))
    return np.asarray(mean / norm if norm > 0 else mean, dtype=np.float32)
