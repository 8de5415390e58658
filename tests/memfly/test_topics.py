"""Topics: a partition within size bounds, the same for the same seed; where small groups and new keywords go."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfly.topics import TopicOptions, Topics, _join_small


def vectors_for(names: Any, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    made = {}
    for name in sorted(names):
        row = draw.normal(size=8)
        made[name] = np.asarray(row / np.linalg.norm(row), dtype=np.float32)
    return made


@st.composite
def graphs(draw: Any) -> nx.Graph:
    names = [f"k{i:02d}" for i in range(draw(st.integers(0, 24)))]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    if len(names) > 1:
        pair = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)
        for a, b in draw(st.lists(pair, max_size=60)):
            graph.add_edge(a, b, weight=draw(st.integers(1, 5)))
    return graph


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 6), st.integers(0, 10), st.integers(0, 2**31 - 1))
def test_topics_are_a_partition_within_the_bounds(graph: nx.Graph, low: int, extra: int, seed: int) -> None:
    bounds = TopicOptions(delta_min=low, delta_max=low + extra)
    topics, vectors = Topics(), vectors_for(graph)
    topics.rebuild(graph, vectors, bounds, seed)
    members = [keyword for group in topics.members.values() for keyword in group]
    assert sorted(members) == sorted(graph)
    assert topics.of == {keyword: topic for topic, group in topics.members.items() for keyword in group}
    assert list(topics.members) == list(range(len(topics.members)))
    sizes = [len(group) for group in topics.members.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size <= bounds.delta_max for size in sizes)
    for small in (size for size in sizes if size < low):  # only where no other group has room
        others = sizes.copy()
        others.remove(small)
        assert all(other + small > bounds.delta_max for other in others)
    again = Topics()
    again.rebuild(graph, vectors, bounds, seed)
    assert again.to_json() == topics.to_json()


def cliques(*sizes: int) -> nx.Graph:
    """Complete graphs, weight 2, with one weight-1 bridge between each and the next."""
    graph, first = nx.Graph(), None
    for number, size in enumerate(sizes):
        names = [f"{'abcdef'[number]}{i}" for i in range(size)]
        graph.add_nodes_from(names)
        graph.add_edges_from(combinations(names, 2), weight=2)
        if first:
            graph.add_edge(first, names[0], weight=1)
        first = names[0]
    return graph


def test_communities_are_found_and_numbered_by_size_then_name() -> None:
    graph, topics = cliques(4, 5, 4), Topics()
    topics.rebuild(graph, vectors_for(graph), TopicOptions(), seed=3)
    assert [group[0][0] for group in topics.members.values()] == ["b", "a", "c"]
    assert [len(group) for group in topics.members.values()] == [5, 4, 4]


def test_node_and_edge_order_do_not_matter() -> None:
    graph, shuffled = cliques(4, 6, 5), nx.Graph()
    shuffled.add_nodes_from(reversed(list(graph)))
    shuffled.add_edges_from((b, a, d) for a, b, d in reversed(list(graph.edges(data=True))))
    made = []
    for one in (graph, shuffled):
        topics = Topics()
        topics.rebuild(one, vectors_for(graph), TopicOptions(delta_min=1), seed=5)
        made.append(topics.to_json())
    assert made[0] == made[1]


def test_an_empty_graph_has_no_topics() -> None:
    topics = Topics()
    topics.rebuild(nx.Graph(), {}, TopicOptions(), seed=0)
    assert topics.members == {}
    assert topics.nearest(np.ones(8, np.float32), 3) == []
    topics.place("x", nx.Graph(), {"x": np.ones(8, np.float32)})
    assert topics.of == {}


def test_a_lone_keyword_is_a_topic_even_under_delta_min() -> None:
    graph, topics = nx.Graph(), Topics()
    graph.add_node("a")
    topics.rebuild(graph, vectors_for("a"), TopicOptions(), seed=0)
    assert topics.members == {0: ["a"]}


def axis(i: int) -> Any:
    row = np.zeros(8, np.float32)
    row[i] = 1
    return row


def test_a_small_group_joins_its_heaviest_neighbour_not_the_nearest() -> None:
    graph = nx.Graph()
    graph.add_edge("s", "a0", weight=1)
    graph.add_edge("s", "b0", weight=3)
    graph.add_edge("s", "b1", weight=1)
    vectors = {"s": axis(0), **{f"a{i}": axis(0) for i in range(3)}, **{f"b{i}": axis(1) for i in range(3)}}
    graph.add_nodes_from(vectors)
    groups = [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["s"]]
    assert sorted(_join_small(groups, graph, vectors, TopicOptions())) == [["a0", "a1", "a2"], ["b0", "b1", "b2", "s"]]
    full = TopicOptions(delta_min=2, delta_max=3)  # nobody has room: it stays
    assert sorted(_join_small(groups, graph, vectors, full)) == [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["s"]]


def test_a_small_group_without_neighbours_joins_the_nearest_centroid() -> None:
    vectors = {"s": axis(1), **{f"a{i}": axis(0) for i in range(3)}, **{f"b{i}": axis(1) for i in range(3)}}
    graph = nx.Graph()
    graph.add_nodes_from(vectors)
    groups = [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["s"]]
    assert sorted(_join_small(groups, graph, vectors, TopicOptions())) == [["a0", "a1", "a2"], ["b0", "b1", "b2", "s"]]


def test_a_new_keyword_goes_to_its_strongest_neighbour_else_the_nearest_centroid() -> None:
    graph = cliques(3, 3)
    vectors = {name: axis(0 if name[0] == "a" else 1) for name in graph} | {"new": axis(0), "lone": axis(1)}
    topics = Topics()
    topics.rebuild(graph, vectors, TopicOptions(), seed=0)
    of_a, of_b = topics.of["a0"], topics.of["b0"]
    assert of_a != of_b
    graph.add_edge("new", "a1", weight=1)
    graph.add_edge("new", "b1", weight=2)
    topics.place("new", graph, vectors)
    assert topics.of["new"] == of_b
    assert topics.members[of_b][-1] == "new"
    expected = np.array([1, 3, 0, 0, 0, 0, 0, 0]) / np.sqrt(10)
    np.testing.assert_allclose(topics.centroids()[of_b], expected, atol=1e-6)
    graph.add_node("lone")
    topics.place("lone", graph, vectors)
    assert topics.of["lone"] == of_b
    topics.place("lone", graph, vectors)
    assert topics.members[of_b].count("lone") == 1


def test_nearest_topics_by_cosine_with_ties_by_id() -> None:
    graph = cliques(3, 3)
    topics = Topics()
    topics.rebuild(graph, {name: axis(0) for name in graph}, TopicOptions(), seed=0)
    assert topics.nearest(axis(0), 5) == [0, 1]
    assert topics.nearest(axis(0), 1) == [0]


def test_json_round_trip_keeps_topics_and_centroids_bit_for_bit() -> None:
    graph = cliques(4, 5)
    vectors = vectors_for([*graph, "z"])
    topics = Topics()
    topics.rebuild(graph, vectors, TopicOptions(), seed=1)
    graph.add_edge("z", "a0", weight=1)
    topics.place("z", graph, vectors)
    back = Topics.from_json(json.loads(json.dumps(topics.to_json())), vectors)
    assert (back.members, back.of) == (topics.members, topics.of)
    assert back.centroids().tobytes() == topics.centroids().tobytes()


def test_bounds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ValueError, match="delta_min 5 is larger than delta_max 4"):
        TopicOptions(delta_min=5, delta_max=4)
