"""Integrity of the memory graph under any sequence of additions, merges and links."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memfly.graph import MemoryGraph, Piece
from memfly.types import Turn

KEYS = st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=4), max_size=5)


def piece(number: int, session: int = 1) -> Piece:
    return Piece(f"D{session}:{number}", session, "a date", datetime(2024, 1, session), f"text {number}")


def same(a: MemoryGraph, b: MemoryGraph) -> None:
    assert a.notes == b.notes
    assert a.phrases == b.phrases
    assert a.carriers == b.carriers
    assert dict(a.related.edges) == dict(b.related.edges)
    for key in a.carriers:
        assert dict(a.cooccur[key]) == dict(b.cooccur[key])


class Machine(RuleBasedStateMachine):
    """Compares the graph with a plain model: a list of (pieces, context, ordered keywords) and a dict of links."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = MemoryGraph()
        self.model: list[tuple[list[str], str, list[str]]] = []
        self.links: dict[tuple[int, int], tuple[str, float]] = {}
        self.turn = 0

    def pieces(self, n: int) -> list[Piece]:
        self.turn += n
        return [piece(self.turn - i) for i in range(n)]

    @rule(n=st.integers(1, 3), context=st.text(max_size=9), keywords=KEYS)
    def add(self, n: int, context: str, keywords: dict[str, str]) -> None:
        pieces = self.pieces(n)
        note = self.graph.add(pieces, context, keywords)
        assert note.id == len(self.model)
        self.model.append(([p.turn for p in pieces], context, list(keywords)))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), n=st.integers(0, 2), again=st.booleans(), context=st.text(max_size=9), keywords=KEYS)
    def merge(self, data: Any, n: int, again: bool, context: str, keywords: dict[str, str]) -> None:
        target = data.draw(st.integers(0, len(self.model) - 1))
        turns, _, held = self.model[target]
        pieces = self.pieces(n)
        stored = self.graph.notes[target].pieces[:1] if again else []
        assert self.graph.merge(target, [*stored, *pieces], context, keywords).id == target
        self.model[target] = (
            [*turns, *(p.turn for p in pieces)],
            context,
            [*held, *(k for k in keywords if k not in held)],
        )

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data(), relation=st.sampled_from(["RELATED", "CONFLICTS"]), strength=st.floats(0, 1))
    def link(self, data: Any, relation: str, strength: float) -> None:
        a, b = data.draw(st.lists(st.integers(0, len(self.model) - 1), min_size=2, max_size=2, unique=True))
        self.graph.link(a, b, relation, strength)
        self.links[a, b] = (relation, strength)

    @rule(a=st.integers(0, 3), b=st.integers(100, 200))
    def a_link_to_nowhere_is_refused(self, a: int, b: int) -> None:
        for source, target in [(a, b), (b, a), (a, a)]:
            with pytest.raises(ValueError, match="two different notes that exist"):
                self.graph.link(source, target, "RELATED", 1.0)

    @invariant()
    def sound(self) -> None:
        graph = self.graph
        graph.check()
        assert [(list(n.turns), n.context, n.keywords) for n in graph.notes.values()] == self.model
        assert list(graph.notes) == [n.id for n in graph.notes.values()] == list(range(len(self.model)))
        assert {(a, b): (d["relation"], d["strength"]) for a, b, d in graph.related.edges(data=True)} == self.links
        pairs = Counter(frozenset(p) for _, _, keys in self.model for p in combinations(keys, 2))
        assert {frozenset((a, b)): w for a, b, w in graph.cooccur.edges(data="weight")} == pairs
        assert (
            set(graph.phrases)
            == set(graph.carriers)
            == set(graph.cooccur)
            == {k for _, _, ks in self.model for k in ks}
        )

    @invariant()
    def neighbours(self) -> None:
        for note in self.graph.notes:
            out = {b for a, b in self.links if a == note}
            into = {a for a, b in self.links if b == note}
            assert self.graph.neighbours([note], directed=True) == out
            assert self.graph.neighbours([note]) == out | into
        assert self.graph.neighbours(self.graph.notes) == set()

    @invariant()
    def survives_json(self) -> None:
        stored = json.dumps(self.graph.to_json())
        back = MemoryGraph.from_json(json.loads(stored))
        back.check()
        same(self.graph, back)
        assert json.dumps(back.to_json()) == stored


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def small() -> MemoryGraph:
    graph = MemoryGraph()
    graph.add([piece(1)], "one", {"cat": "Cat", "vet": "vet"})
    graph.add([piece(2)], "two", {"vet": "Vets", "bee": "bees"})
    graph.link(1, 0, "RELATED", 0.6)
    return graph


def test_the_first_phrase_of_a_keyword_stays() -> None:
    assert small().phrases == {"cat": "Cat", "vet": "vet", "bee": "bees"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: g.related.add_edge(0, 7), "relation 0 -> 7"),
        (lambda g: g.related.add_edge(0, 0), "relation 0 -> 0"),
        (lambda g: g.notes[0].keywords.append("cat"), "note 0 repeats a keyword"),
        (lambda g: g.notes[0].keywords.append("bee"), "the keyword index"),
        (lambda g: g.carriers["cat"].add(1), "the keyword index"),
        (lambda g: g.cooccur.add_edge("cat", "vet", weight=2), "a co-occurrence weight"),
        (lambda g: g.cooccur.add_edge("cat", "bee", weight=1), "a co-occurrence weight"),
        (lambda g: g.cooccur.remove_edge("vet", "bee"), "a co-occurrence weight"),
    ],
)
def test_check_finds_damage(damage: Any, message: str) -> None:
    graph = small()
    graph.check()
    damage(graph)
    with pytest.raises(ValueError, match=message):
        graph.check()


def test_a_piece_keeps_all_of_the_turn() -> None:
    turn = Turn("D2:3", "Ada", "Look!", 2, datetime(2024, 4, 20, 10, 30), "10:30 am on 20 April, 2024", "a blue bowl")
    made = Piece.of(turn)
    assert made == Piece("D2:3", 2, turn.date, turn.time, "Ada: Look! [shares a photo of: a blue bowl]")
    assert Piece.from_json(json.loads(json.dumps(made.to_json()))) == made
