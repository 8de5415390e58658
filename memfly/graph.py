"""The memory graph: notes, keywords with co-occurrence counts, and typed relations between notes (MemFly 3.1).

Notes have stable integer ids, never positions, which shift. Invariants, checked by `check`: every relation joins two
existing notes, the keyword index is the inverse of the notes' keyword sets, and a co-occurrence weight is the number of
notes that carry both keywords. Topics live in `memfly.topics`; nothing here calls a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations
from typing import Any

import networkx as nx

from memfly.types import Turn


@dataclass(frozen=True, slots=True)
class Piece:
    """One verbatim raw piece of a note: a turn, kept with all that evidence and time questions need."""

    turn: str
    session: int
    date: str
    time: datetime
    text: str
    """The turn as rendered: speaker, text, caption."""

    @classmethod
    def of(cls, turn: Turn) -> Piece:
        return cls(turn.id, turn.session, turn.date, turn.time, turn.render())

    def to_json(self) -> list[Any]:
        return [self.turn, self.session, self.date, self.time.isoformat(), self.text]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Piece:
        turn, session, date, time, text = data
        return cls(turn, session, date, datetime.fromisoformat(time), text)


@dataclass(slots=True)
class Note:
    """n = (r, c, K); its embedding h = Embed(c) is kept in the dense index under the same id."""

    id: int
    pieces: list[Piece]
    context: str
    keywords: list[str] = field(default_factory=list)
    """Distinct canonical keywords, in order of first mention."""

    @property
    def date(self) -> str:
        return self.pieces[0].date

    @property
    def turns(self) -> tuple[str, ...]:
        return tuple(piece.turn for piece in self.pieces)


class MemoryGraph:
    """Notes and the three kinds of edges. Mutated only through its methods, which keep the invariants."""

    def __init__(self) -> None:
        self.notes: dict[int, Note] = {}
        self.related = nx.DiGraph()
        self.cooccur = nx.Graph()
        self.carriers: dict[str, set[int]] = {}
        """keyword -> ids of the notes that carry it."""
        self.phrases: dict[str, str] = {}
        """canonical keyword -> the phrase as first written, which is what gets embedded and shown."""

    def add(self, pieces: Sequence[Piece], context: str, keywords: Mapping[str, str]) -> Note:
        """A new note; `keywords` maps canonical form to phrase. Ids count up from 0 and are never reused."""
        note = Note(len(self.notes), list(pieces), context)
        self.notes[note.id] = note
        self.related.add_node(note.id)
        self._carry(note, keywords)
        return note

    def merge(self, note_id: int, pieces: Sequence[Piece], context: str, keywords: Mapping[str, str]) -> Note:
        """Eqs. 7-9 into an existing note: pieces and keywords are united, the context is replaced."""
        note = self.notes[note_id]
        held = set(note.turns)
        note.pieces.extend(piece for piece in pieces if piece.turn not in held)
        note.context = context
        self._carry(note, keywords)
        return note

    def _carry(self, note: Note, keywords: Mapping[str, str]) -> None:
        fresh = [key for key in keywords if key not in note.keywords]
        for key in fresh:
            self.phrases.setdefault(key, keywords[key])
            self.carriers.setdefault(key, set()).add(note.id)
            self.cooccur.add_node(key)
        pairs = [(a, b) for a in note.keywords for b in fresh] + list(combinations(fresh, 2))
        for a, b in pairs:
            weight = self.cooccur.get_edge_data(a, b, {"weight": 0})["weight"]
            self.cooccur.add_edge(a, b, weight=weight + 1)
        note.keywords.extend(fresh)

    def link(self, source: int, target: int, relation: str, strength: float) -> None:
        """A directed RELATED edge from the newer note to the older one."""
        if source == target or source not in self.notes or target not in self.notes:
            raise ValueError(f"a link needs two different notes that exist, got {source} -> {target}")
        self.related.add_edge(source, target, relation=relation, strength=strength)

    def neighbours(self, note_ids: Iterable[int], *, directed: bool = False) -> set[int]:
        """Notes one RELATED hop away from any of these, those themselves left out."""
        start = set(note_ids)
        found = {n for i in start for n in self.related.successors(i)}
        if not directed:
            found |= {n for i in start for n in self.related.predecessors(i)}
        return found - start

    def check(self) -> None:
        """Raises ValueError naming the first broken invariant."""
        for source, target in self.related.edges:
            if source not in self.notes or target not in self.notes or source == target:
                raise ValueError(f"relation {source} -> {target} does not join two notes")
        carried: dict[str, set[int]] = {}
        weights: dict[frozenset[str], int] = {}
        for note in self.notes.values():
            if len(set(note.keywords)) != len(note.keywords):
                raise ValueError(f"note {note.id} repeats a keyword")
            for key in note.keywords:
                carried.setdefault(key, set()).add(note.id)
            for a, b in combinations(note.keywords, 2):
                weights[frozenset((a, b))] = weights.get(frozenset((a, b)), 0) + 1
        if carried != self.carriers:
            raise ValueError("the keyword index is not the inverse of the notes' keywords")
        if weights != {frozenset((a, b)): w for a, b, w in self.cooccur.edges(data="weight")}:
            raise ValueError("a co-occurrence weight is not the number of notes carrying both keywords")

    def to_json(self) -> dict[str, Any]:
        return {
            "notes": [
                {"pieces": [p.to_json() for p in n.pieces], "context": n.context, "keywords": n.keywords}
                for n in self.notes.values()
            ],
            "phrases": self.phrases,
            "related": [[a, b, d["relation"], d["strength"]] for a, b, d in self.related.edges(data=True)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryGraph:
        graph = cls()
        graph.phrases = dict(data["phrases"])
        for item in data["notes"]:
            keywords = {key: graph.phrases[key] for key in item["keywords"]}
            graph.add([Piece.from_json(p) for p in item["pieces"]], item["context"], keywords)
        for source, target, relation, strength in data["related"]:
            graph.link(source, target, relation, strength)
        return graph
