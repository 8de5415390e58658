"""The things that pass between the harness and a memory system. All frozen; none of them knows a question's category.

A `Question` carries no category, no gold answer and no evidence: those live in `eval.locomo.Gold`, which systems never
see, so that none can retrieve by them. Time always comes with the turn; nothing here reads the machine's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance. `id` is LoCoMo's dia id ("D3:12"); `time` is the session's date and time, without a zone."""

    id: str
    speaker: str
    text: str
    session: int
    time: datetime
    date: str
    """The session date as the data prints it, e.g. "1:56 pm on 8 May, 2023"."""
    caption: str | None = None
    """Caption of the shared image, where the turn has one and the `captions` option keeps it."""

    def render(self) -> str:
        """`Speaker: text [shares a photo of: caption]`, the common text form of a turn, without its date."""
        shared = f" [shares a photo of: {self.caption}]" if self.caption else ""
        return f"{self.speaker}: {self.text}{shared}"


@dataclass(frozen=True, slots=True)
class Observation:
    """One fact about a speaker, as LoCoMo's own side data states it."""

    speaker: str
    text: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionNotes:
    """Side data a LoCoMo file ships for a session; empty where it has none. Only the RAG baselines read it."""

    observations: tuple[Observation, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    number: int
    time: datetime
    date: str
    turns: tuple[Turn, ...]
    notes: SessionNotes = SessionNotes()


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    speakers: tuple[str, str]
    sessions: tuple[Session, ...]

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(turn for session in self.sessions for turn in session.turns)


@dataclass(frozen=True, slots=True)
class Question:
    """What a memory system may know of a question: its text and which conversation it is about."""

    id: str
    """`<conversation id>#<index in the file>`, stable over runs."""
    conversation: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of evidence as the answerer will read it."""

    text: str
    turns: tuple[str, ...]
    """Ids of the turns this passage shows or restates; empty when it has no single ones (a summary, a portrait)."""
    date: str = ""
    """Date label shown in front of the text; empty when the text carries its own."""
    time: datetime | None = None
    """For putting passages in time order."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that goes into the answerer's prompt, in the order shown. `answer` is set only by systems that answer
    themselves (MemGPT's send_message); the shared answerer is then skipped when `answer.native` is on."""

    passages: tuple[Passage, ...]
    ranked_turns: tuple[str, ...] = ()
    """Turn ids best first, for recall@k; when empty, the order of the passages counts."""
    ranking: tuple[int, ...] = ()
    """Positions in `passages`, best first, for a cut to a token budget; those not named come after, as shown."""
    answer: str | None = None
    trace: dict[str, object] = field(default_factory=dict)
    """What retrieval did (rounds, queries, pool sizes), for the record only."""
    traceable: bool = True
    """False when what is shown has no single source turns (summaries): evidence recall is then undefined, not 0."""

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """Distinct source turn ids, in the order shown."""
        return tuple(dict.fromkeys(turn for passage in self.passages for turn in passage.turns))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the server counted them (or as estimated, where `estimated`)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    estimated: bool = False


def shown_in_time_order(ranked: Sequence[Passage]) -> tuple[tuple[Passage, ...], tuple[int, ...]]:
    """(passages in time order, their ranking) of passages given best first."""
    order = sorted(range(len(ranked)), key=lambda i: _when(ranked[i]))
    place = {i: position for position, i in enumerate(order)}
    return tuple(ranked[i] for i in order), tuple(place[i] for i in range(len(ranked)))


def _when(passage: Passage) -> tuple[bool, datetime]:
    return passage.time is None, passage.time or datetime.min
