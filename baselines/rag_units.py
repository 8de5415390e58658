"""What RAG retrieves: turns, a session's observations, its summary, or chunks of tokens, each with the text it is found by.

Notes come from the data file where it ships them, else from one model call per session. Turns, observations and
summaries are LoCoMo's units (task_eval/gpt_utils.py), chunks are mem0's (evaluation/src/rag.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from baselines.tasks.rag import RAG_OBSERVATIONS, RAG_SUMMARY, SessionInput, SessionLine
from memfly.errors import DataError, ParseError
from memfly.system import Services
from memfly.text import cut_tokens, split_tokens
from memfly.together import together
from memfly.types import Observation, Passage, SessionNotes, Turn

UnitKind = Literal["turns", "observations", "summaries", "chunks"]
FALLBACK_TOKENS = 256
"""What a session's own text is cut to where its summary could not be made: the length a summary may have."""


@dataclass(frozen=True)
class Unit:
    """A passage, the text it is indexed by, and its session (None: it has no neighbours in one)."""

    passage: Passage
    indexed: str
    session: int | None


def turn_units(turns: Sequence[Turn]) -> list[Unit]:
    """One unit per turn; indexed by speaker, text and caption."""
    return [
        Unit(
            Passage(turn.render(), (turn.id,), turn.date, turn.time),
            f"{turn.speaker}: {turn.text} {turn.caption or ''}".rstrip(),
            turn.session,
        )
        for turn in turns
    ]


def chunk_units(turns: Sequence[Turn], size: int) -> list[Unit]:
    """mem0's RAG: lines "date | speaker: text", no captions, cut every `size` tokens without overlap.

    A turn cut in two is credited to the chunk that holds the middle of its text.
    """
    lines = [f"{turn.date} | {turn.speaker}: {turn.text}\n" for turn in turns]
    middles, at = [], 0
    for turn, line in zip(turns, lines, strict=True):
        at += len(line)
        middles.append(at - 1 - len(turn.text) // 2)
    units: list[Unit] = []
    end, done = 0, 0
    for text in split_tokens("".join(lines), size):
        end += len(text)
        first = done
        while done < len(turns) and (middles[done] < end or end >= at):
            done += 1
        time = turns[min(first, len(turns) - 1)].time
        units.append(Unit(Passage(text.strip("\n"), tuple(t.id for t in turns[first:done]), "", time), text, None))
    return units


async def note_units(
    services: Services, turns: Sequence[Turn], kind: UnitKind, source: str, counts: Counter[str]
) -> list[Unit]:
    """Observations or summaries of every session, in order. `counts` gains sessions_made, notes_fallback and
    dropped_turn_ids. Raises DataError when `source` is "file" and the file has none for a session."""
    sessions = [tuple(group) for _, group in groupby(turns, key=lambda turn: turn.session)]
    notes = await together(_notes(services, session, kind, source, counts) for session in sessions)
    units: list[Unit] = []
    for session, found in zip(sessions, notes, strict=True):
        first = session[0]
        if kind == "summaries":
            units.append(Unit(Passage(found.summary, (), first.date, first.time), found.summary, first.session))
            continue
        known = {turn.id for turn in session}
        for observation in found.observations:
            ids = tuple(dict.fromkeys(i for i in observation.turns if i in known))
            counts["dropped_turn_ids"] += len(set(observation.turns) - known)
            passage = Passage(observation.text, ids, first.date, first.time)
            units.append(Unit(passage, observation.text, first.session))
    return units


async def _notes(
    services: Services, session: Sequence[Turn], kind: UnitKind, source: str, counts: Counter[str]
) -> SessionNotes:
    number = session[0].session
    shipped = services.session_notes.get(number, SessionNotes())
    has = bool(shipped.summary if kind == "summaries" else shipped.observations)
    if has and source != "made":
        return shipped
    if source == "file":
        raise DataError(
            f"method.source=file: {services.conversation}, session {number} has no {kind} in the data file; use auto"
        )
    counts["sessions_made"] += 1
    lines = tuple(SessionLine(turn.id, turn.render()) for turn in session)
    value = SessionInput(session[0].date, services.speakers, lines)
    purpose = f"session {number}"
    try:
        if kind == "summaries":
            summary = (await services.llm.run(RAG_SUMMARY, value, purpose=purpose)).summary.strip()
            return SessionNotes(summary=summary)
        facts = (await services.llm.run(RAG_OBSERVATIONS, value, purpose=purpose)).facts
        return SessionNotes(tuple(Observation(f.speaker, f.fact, tuple(f.turns)) for f in facts))
    except ParseError:
        counts["notes_fallback"] += 1
        services.log("notes_fallback", session=number, unit=kind)
        text = cut_tokens("\n".join(line.text for line in lines), FALLBACK_TOKENS)
        return SessionNotes(tuple(Observation(t.speaker, t.render(), (t.id,)) for t in session), text)
