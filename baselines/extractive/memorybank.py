"""MemoryBank without a model: the day's informative sentences, and sentences about likes, traits and moods as portraits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from baselines.extractive.sentences import best, read_all, roots, shorten
from baselines.tasks.memorybank import AllEventsInput, AllPortraitsInput, DayInput, EventsOutput, PortraitsOutput
from memfly.llm.extractive.analysis import analyse, split_sentences
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.keywords import is_small_talk

DAY_WORDS = 50
ALL_WORDS = 150
DAY_PORTRAIT_WORDS = 40
PORTRAIT_WORDS = 80
_PERSONAL = re.compile(
    r"\bI(?:'m| am|'ve always| have always)? (?:really |so |also |just |always |totally |absolutely )*"
    r"(?:love|like|enjoy|adore|prefer|hate|dislike|can't stand|care|believe|value|dream|hope|want|feel|felt|worry|miss"
    r"|proud|happy|sad|excited|nervous|anxious|grateful|thankful|passionate|interested|shy|stubborn|scared|lucky|glad"
    r"|tired|worried|obsessed|into|a fan|a big fan)\b"
    r"|\bmy (?:favou?rite|passion|hobby|hobbies|dream|goal|fear)\b|\bmakes me\b|\bmeans (?:a lot|so much|the world)\b",
    re.IGNORECASE,
)


async def day_events(value: DayInput, tools: Tools) -> EventsOutput:
    return EventsOutput(summary=shorten(value.lines, DAY_WORDS)[:3000] or "(nothing said)")


async def all_events(value: AllEventsInput, tools: Tools) -> EventsOutput:
    """The most informative sentences of the days' summaries, each with its date."""
    dated = [(day.date, sentence) for day in value.days for sentence in split_sentences(day.summary)]
    kept = best([sentence for _, sentence in dated], ALL_WORDS)
    return EventsOutput(summary=" ".join(f"({dated[i][0]}) {dated[i][1]}" for i in kept)[:3000] or "(nothing said)")


async def day_portraits(value: DayInput, tools: Tools) -> PortraitsOutput:
    """Per speaker, what the speaker says of own likes, wishes and feelings."""
    said = [s for s in read_all(value.lines) if _PERSONAL.search(s.text)]
    said = [s for s in said if not analyse(s.text).question and not is_small_talk(s.text)]
    first, second = (
        _chosen([s.restated for s in said if s.speaker == name], DAY_PORTRAIT_WORDS) for name in value.speakers
    )
    return PortraitsOutput(first=first, second=second)


async def all_portraits(value: AllPortraitsInput, tools: Tools) -> PortraitsOutput:
    """Per speaker, the sentences of the days' notes that hold the most of what recurs."""
    first = [sentence for day in value.days for sentence in split_sentences(day.first)]
    second = [sentence for day in value.days for sentence in split_sentences(day.second)]
    return PortraitsOutput(
        first=_chosen(_distinct(first), PORTRAIT_WORDS), second=_chosen(_distinct(second), PORTRAIT_WORDS)
    )


def _distinct(sentences: Sequence[str]) -> list[str]:
    """Without sentences whose content words an earlier one has."""
    seen: list[frozenset[str]] = []
    out = []
    for sentence in sentences:
        words = roots(sentence)
        if words and not any(words <= other for other in seen):
            seen.append(words)
            out.append(sentence)
    return out


def _chosen(sentences: Sequence[str], most_words: int) -> str:
    return " ".join(sentences[i] for i in best(sentences, most_words))[:2000]


FUNCTIONS: Mapping[str, Function] = {
    "bank_day_events": day_events,
    "bank_day_portraits": day_portraits,
    "bank_all_events": all_events,
    "bank_all_portraits": all_portraits,
}
