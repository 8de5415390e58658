"""MemoryBank's calls: a day's events and its note on the speakers, and both over all days.

The original (memory_bank/summarize_memory.py) writes a portrait of its one user and how an assistant should respond to it;
here both speakers are people, so both get a portrait and nobody a response strategy.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from memfly.tasks.base import Task, TaskOutput


@dataclass(frozen=True)
class DayInput:
    date: str
    speakers: tuple[str, str]
    lines: tuple[str, ...]
    """The day's turns as `Turn.render` gives them."""


@dataclass(frozen=True)
class DayEvents:
    date: str
    summary: str


@dataclass(frozen=True)
class DayPortraits:
    """What one day showed of the first and the second speaker; one of them may be empty."""

    date: str
    first: str
    second: str


@dataclass(frozen=True)
class AllEventsInput:
    speakers: tuple[str, str]
    days: tuple[DayEvents, ...]
    """Oldest first."""


@dataclass(frozen=True)
class AllPortraitsInput:
    speakers: tuple[str, str]
    days: tuple[DayPortraits, ...]
    """Oldest first."""


class EventsOutput(TaskOutput):
    summary: str = Field(max_length=3000, description="what was talked about, as short as possible")


class PortraitsOutput(TaskOutput):
    first: str = Field(max_length=2000, description="the first speaker's traits, mood, interests")
    second: str = Field(max_length=2000, description="the second speaker's traits, mood, interests")


_EVENTS = """Reply with one JSON object: {"summary": string}"""
_PORTRAITS = """Reply with one JSON object: {"first": string, "second": string}, one text for each speaker in the order \
given"""

DAY_EVENTS_SYSTEM = f"""You note down what a day's conversation was about: its topics and the key facts, as short as \
possible. Where several things happened, make a separate point of each. {_EVENTS}"""

ALL_EVENTS_SYSTEM = f"""You are given summaries of a conversation, one for each day. Write one short summary of all that \
happened, with the dates that matter. {_EVENTS}"""

DAY_PORTRAITS_SYSTEM = f"""You describe two people from one day's conversation: each one's traits of character, mood, and \
what he or she cares about, as far as the conversation shows it. Be brief. {_PORTRAITS}; an empty text if nothing shows."""

ALL_PORTRAITS_SYSTEM = f"""You are given notes on the character and mood of two people, day by day. Write one short \
portrait of each: lasting traits, interests, and how the person usually feels. {_PORTRAITS}."""


def _speakers(speakers: tuple[str, str]) -> str:
    return f"First speaker: {speakers[0]}. Second speaker: {speakers[1]}."


def _render_day(value: DayInput) -> str:
    return f"{_speakers(value.speakers)}\nConversation of {value.date}:\n" + "\n".join(value.lines)


def _render_all_events(value: AllEventsInput) -> str:
    return f"{_speakers(value.speakers)}\n" + "\n".join(f"{day.date}: {day.summary}" for day in value.days)


def _render_all_portraits(value: AllPortraitsInput) -> str:
    lines = [_speakers(value.speakers)]
    for day in value.days:
        pairs = zip(value.speakers, (day.first, day.second), strict=True)
        lines += [f"{day.date}, {name}: {text}" for name, text in pairs if text]
    return "\n".join(lines)


def _check(_: DayInput | AllEventsInput, output: EventsOutput) -> None:
    if not output.summary.strip():
        raise ValueError("summary is empty")


BANK_DAY_EVENTS = Task(
    "bank_day_events", 1, "ingest", DayInput, EventsOutput, DAY_EVENTS_SYSTEM, _render_day, 400, 0.7, check=_check
)
BANK_DAY_PORTRAITS = Task(
    "bank_day_portraits", 1, "ingest", DayInput, PortraitsOutput, DAY_PORTRAITS_SYSTEM, _render_day, 500, 0.7
)
BANK_ALL_EVENTS = Task(
    "bank_all_events",
    1,
    "ingest",
    AllEventsInput,
    EventsOutput,
    ALL_EVENTS_SYSTEM,
    _render_all_events,
    400,
    0.7,
    check=_check,
)
BANK_ALL_PORTRAITS = Task(
    "bank_all_portraits",
    1,
    "ingest",
    AllPortraitsInput,
    PortraitsOutput,
    ALL_PORTRAITS_SYSTEM,
    _render_all_portraits,
    500,
    0.7,
)
