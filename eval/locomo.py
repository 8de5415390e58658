"""Loading a LoCoMo file: typed, nothing dropped, everything odd reported.

Sessions are found by their turn lists and ordered by number; dates without a session are reported, not invented. Gold data
(`Gold`) is kept apart from what systems may see (`Question`). What is odd in locomo10.json itself is in docs/protocols.md.
This module does not score.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from eval.categories import Category
from eval.evidence import Repair, parse_gold
from memfly.errors import DataError
from memfly.text import whole
from memfly.types import Conversation, Observation, Question, Session, SessionNotes, Turn

LOCOMO10_SHA256 = "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4"
LOCOMO10_URL = "https://raw.githubusercontent.com/snap-research/locomo/main/data/locomo10.json"
SAMPLE = Path(__file__).parent / "sample" / "sample.json"

Captions = Literal["all", "with_url", "none"]
_DATE = "%I:%M %p on %d %B, %Y"
_SESSION = re.compile(r"session_(\d+)$")
_SESSION_DATE = re.compile(r"session_(\d+)_date_time$")


@dataclass(frozen=True)
class Gold:
    """What scorers and the answerer's prompt choice may know of a question, and systems may not."""

    id: str
    category: Category
    answer: str | int | None
    """None in 444 of LoCoMo's 446 category-5 questions."""
    trap: str | None
    """Category 5's `adversarial_answer`: the wrong answer a fooled system gives."""
    evidence: tuple[str, ...]
    """Ids of existing turns, repaired where the file's ids were malformed; empty = left out of recall."""
    evidence_raw: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """`questions` in file order; `golds` has one entry per question id."""

    name: str
    path: Path
    sha256: str
    conversations: tuple[Conversation, ...]
    questions: tuple[Question, ...]
    golds: Mapping[str, Gold]
    oddities: tuple[str, ...] = field(default=(), compare=False)
    """One line per odd thing found and what was done about it; nothing was dropped because of one."""

    @property
    def n_turns(self) -> int:
        return sum(len(c.turns) for c in self.conversations)

    def select(self, conversations: Sequence[str] = (), limit_questions: int | None = None) -> Dataset:
        """Only these conversations (all if none is named) and, per conversation, the first `limit_questions`."""
        known = [c.id for c in self.conversations]
        for name in conversations:
            if name not in known:
                raise DataError(
                    f"data.conversations: no conversation {name!r} in {self.path}; it has {', '.join(known)}"
                )
        wanted = set(conversations or known)
        questions: list[Question] = []
        count: dict[str, int] = {}
        for question in self.questions:
            n = count[question.conversation] = count.get(question.conversation, 0) + 1
            if question.conversation in wanted and (limit_questions is None or n <= limit_questions):
                questions.append(question)
        kept = tuple(c for c in self.conversations if c.id in wanted)
        golds = {q.id: self.golds[q.id] for q in questions}
        return Dataset(self.name, self.path, self.sha256, kept, tuple(questions), golds, self.oddities)


def load(path: Path | str, *, name: str = "", captions: Captions = "all", sha256: str | None = None) -> Dataset:
    """Read a LoCoMo file. `sha256`, where given, must be the file's. Raises DataError in one line that says where."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"data.path: no file {path}; `memfly data fetch` downloads LoCoMo") from None
    except OSError as error:
        raise DataError(f"data.path: cannot read {path}: {error.strerror}") from None
    digest = hashlib.sha256(raw).hexdigest()
    if sha256 is not None and digest != sha256:
        raise DataError(
            f"data.path: {path} has SHA-256 {digest[:12]}..., expected {sha256[:12]}...; it is another version of the "
            "data: fetch the official file, or set data.sha256=null to use this one"
        )
    try:
        samples = whole(json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise DataError(f"data.path: {path} is not JSON ({error}); give a LoCoMo file such as locomo10.json") from None
    if not isinstance(samples, list) or not samples:
        raise DataError(f"data.path: {path} holds no list of conversations; give a LoCoMo file such as locomo10.json")
    reader = _Reader(str(path), captions)
    for position, sample in enumerate(samples):
        reader.sample(position, sample)
    return Dataset(
        name or path.stem,
        path,
        digest,
        tuple(reader.conversations),
        tuple(reader.questions),
        reader.golds,
        tuple(reader.oddities),
    )


class _Reader:
    """Collects conversations and questions of one file; every message starts with where it is."""

    def __init__(self, file: str, captions: Captions) -> None:
        self.file, self.captions = file, captions
        self.conversations: list[Conversation] = []
        self.questions: list[Question] = []
        self.golds: dict[str, Gold] = {}
        self.oddities: list[str] = []

    def sample(self, position: int, sample: Any) -> None:
        where = f"{self.file}: sample {position}"
        data = _need(sample, dict, where)
        name = str(data.get("sample_id") or f"sample-{position}")
        where = f"{self.file}: {name}"
        if name in {c.id for c in self.conversations}:
            raise DataError(f"{where}: two samples have this sample_id; give each its own")
        talk = _need(_get(data, "conversation", where), dict, f"{where}, conversation")
        speakers = (_text(talk, "speaker_a", where), _text(talk, "speaker_b", where))
        sessions = self._sessions(name, talk, data, where)
        conversation = Conversation(name, speakers, sessions)
        self.conversations.append(conversation)
        turns = frozenset(t.id for t in conversation.turns)
        for index, item in enumerate(_need(data.get("qa", []), list, f"{where}, qa")):
            self._question(name, index, item, turns)

    def _sessions(self, name: str, talk: Mapping[str, Any], data: Mapping[str, Any], where: str) -> tuple[Session, ...]:
        lists = {int(m[1]): talk[m[0]] for m in map(_SESSION.match, talk) if m and talk[m[0]] is not None}
        numbers = sorted(lists)
        phantom = sorted({int(m[1]) for m in map(_SESSION_DATE.match, talk) if m} - set(numbers))
        if phantom:
            self.oddities.append(f"{name}: {len(phantom)} session dates without a session ({_span(phantom)}): ignored")
        sessions: list[Session] = []
        seen: set[str] = set()
        for number in numbers:
            label = _text(talk, f"session_{number}_date_time", where)
            time = _time(label, f"{where}, session_{number}_date_time")
            turns = tuple(
                self._turn(item, number, time, label, f"{where}, session {number}, turn {i}")
                for i, item in enumerate(_need(lists[number], list, f"{where}, session {number}"))
            )
            for turn in turns:
                if turn.id in seen:
                    raise DataError(f"{where}, session {number}: dia_id {turn.id} occurs twice; ids must be unique")
                seen.add(turn.id)
            if sessions and time < sessions[-1].time:
                self.oddities.append(
                    f"{name}: session {number} is dated before session {sessions[-1].number}: order kept"
                )
            if not turns:
                self.oddities.append(f"{name}: session {number} has no turns")
            sessions.append(Session(number, time, label, turns, _notes(data, number, where)))
        return tuple(sessions)

    def _turn(self, item: Any, session: int, time: datetime, date: str, where: str) -> Turn:
        data = _need(item, dict, where)
        caption = _text(data, "blip_caption", where) if data.get("blip_caption") else None
        if self.captions == "none" or (self.captions == "with_url" and not data.get("img_url")):
            caption = None
        text = _text(data, "text", where) if data.get("text") is not None else ""
        if not text and not caption:
            self.oddities.append(f"{where.removeprefix(self.file + ': ')}: neither text nor caption: kept, empty")
        return Turn(_text(data, "dia_id", where), _text(data, "speaker", where), text, session, time, date, caption)

    def _question(self, name: str, index: int, item: Any, turns: frozenset[str]) -> None:
        where = f"{self.file}: {name}, question {index}"
        data = _need(item, dict, where)
        text = _text(data, "question", where)
        category = _category(_get(data, "category", where), where)
        answer, trap = data.get("answer"), data.get("adversarial_answer")
        if isinstance(answer, bool) or not isinstance(answer, str | int | None):
            raise DataError(f"{where}: the answer is a {type(answer).__name__}; give a text or a whole number")
        if category is Category.ADVERSARIAL:
            if trap is None:
                self.oddities.append(f"{name}#{index}: category 5 without adversarial_answer")
            if answer is not None:
                self.oddities.append(
                    f"{name}#{index}: category 5 with an answer ({answer!r}) beside its trap: both kept"
                )
        elif answer is None:
            raise DataError(f"{where}: category {category.value} without an answer")
        if isinstance(answer, int):
            self.oddities.append(f"{name}#{index}: the answer is the number {answer}, not a text: kept, scored as text")
        raw = data.get("evidence") or []
        raw_ids = tuple(str(e) for e in (raw if isinstance(raw, list) else [raw]))
        parsed = parse_gold(raw_ids, turns)
        self.oddities += [f"{name}#{index}: evidence {_repair(repair)}" for repair in parsed.repairs]
        if not parsed.usable:
            self.oddities.append(f"{name}#{index}: no usable evidence ({list(raw_ids)}): left out of recall")
        key = f"{name}#{index}"
        self.questions.append(Question(key, name, text))
        self.golds[key] = Gold(key, category, answer, None if trap is None else str(trap), parsed.turns, raw_ids)


def _category(value: Any, where: str) -> Category:
    """1 to 5, as a number or as its digit in a text."""
    try:
        if isinstance(value, bool):
            raise ValueError
        return Category(int(value) if isinstance(value, str) else value)
    except ValueError:
        raise DataError(f"{where}: category {value!r} is not one of 1 to 5") from None


def _notes(data: Mapping[str, Any], number: int, where: str) -> SessionNotes:
    """The shipped observations and summary of a session; ids may be a string, a list, or comma-joined."""
    found: list[Observation] = []
    by_speaker = _side(_side(data, "observation", where), f"session_{number}_observation", where)
    for speaker, facts in by_speaker.items():
        for fact in _need(facts, list, f"{where}, session_{number}_observation"):
            text, ids = (fact[0], fact[1]) if isinstance(fact, list) and len(fact) > 1 else (fact, [])
            parts = ids if isinstance(ids, list) else re.split(r"[,;\s]+", str(ids))
            found.append(Observation(str(speaker), str(text), tuple(str(p).strip() for p in parts if str(p).strip())))
    summary = _side(data, "session_summary", where).get(f"session_{number}_summary") or ""
    return SessionNotes(tuple(found), str(summary))


def _side(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """A mapping of the side data; empty where the file has none."""
    found: Mapping[str, Any] = _need(data.get(key) or {}, dict, f"{where}, {key}")
    return found


def _repair(repair: Repair) -> str:
    read = f"read as {', '.join(repair.turns)}" if repair.turns else "names no turn"
    return f"{repair.raw!r} {read}" + (f", dropped {', '.join(repair.dropped)}" if repair.dropped else "")


def _get(data: Mapping[str, Any], key: str, where: str) -> Any:
    if data.get(key) is None:
        raise DataError(f"{where}: no {key!r}; LoCoMo files have one here")
    return data[key]


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    return str(_need(_get(data, key, where), str, f"{where}, {key}"))


def _need(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise DataError(f"{where}: expected a {kind.__name__}, found {type(value).__name__}")
    return value


def _time(label: str, where: str) -> datetime:
    try:
        return datetime.strptime(label.strip(), _DATE)
    except ValueError:
        raise DataError(f"{where}: {label!r} is not a date like '1:56 pm on 8 May, 2023'") from None


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
