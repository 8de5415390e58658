"""Mem0's tasks without a model: restated sentences as facts, updates by overlap, deletions on contradiction cues.

A fact is one of the owner's sentences with the name for "I" and relative times turned into dates. What counts as said
already, as the same matter, or as a contradiction is measured by the backbone's `merge` and `overlap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import numpy as np

from baselines.tasks.mem0 import (
    ExtractInput,
    ExtractOutput,
    SummaryInput,
    SummaryOutput,
    UpdateEntry,
    UpdateInput,
    UpdateOutput,
)
from memfly.llm.extractive.analysis import analyse, split_sentences
from memfly.llm.extractive.base import Function, Tools
from memfly.llm.extractive.dates import expressions, parse_label
from memfly.llm.extractive.keywords import is_small_talk
from memfly.llm.extractive.merge import covers, union
from memfly.llm.extractive.overlap import profile, relation, scores
from memfly.llm.extractive.restate import restate_sentence

MOST_FACTS = 12
SUMMARY_WORDS = 250
SAME_MATTER = 0.7


def fact(owner: str, sentence: str, day: date | None) -> str:
    """The sentence restated, its points in time resolved; empty when it states nothing worth keeping."""
    found = analyse(sentence)
    if found.question or is_small_talk(sentence) or len(found.roots) < 2:
        return ""
    text = restate_sentence(owner, sentence)
    if day is not None:
        text = dated(text, day)
    return (text if owner in text else f"{owner}: {text}")[:1000]


def dated(text: str, day: date) -> str:
    """Relative points in time replaced by what they mean on that day."""
    for found in sorted(expressions(text), key=lambda e: -e.start):
        if found.kind != "point":
            continue
        meant = found.resolve(day)
        meant = f"on {meant}" if meant[:1].isdigit() and " " in meant.strip() else meant[:1].lower() + meant[1:]
        if meant.startswith("the ") or meant.startswith("on "):
            text = text[: found.start] + meant + text[found.end :]
    return text


async def extract(value: ExtractInput, tools: Tools) -> ExtractOutput:
    day = parse_label(value.date)
    facts: dict[str, None] = {}
    for role, message in value.messages:
        if role == "user":
            for sentence in split_sentences(message.removeprefix(f"{value.owner}: ")):
                facts[fact(value.owner, sentence, day)] = None
    return ExtractOutput(facts=[text for text in facts if text][:MOST_FACTS])


async def update(value: UpdateInput, tools: Tools) -> UpdateOutput:
    """Each fact against the memory closest to it, memories taken by an earlier fact left out."""
    vectors = await tools.embedder.embed([*value.facts, *value.memories])
    cosines = np.asarray(vectors[: len(value.facts)] @ vectors[len(value.facts) :].T, dtype=np.float64)
    free = dict(enumerate(value.memories))
    entries: list[UpdateEntry] = []
    for number, text in enumerate(value.facts):
        row = {item: round(float(cosines[number, item]), 5) for item in free}
        found = _decide(text, free, row, unused=str(len(value.memories) + number))
        entries += found
        for entry in found:
            if entry.event in ("UPDATE", "DELETE"):
                free.pop(int(str(entry.id)), None)
    return UpdateOutput(memory=entries[:80])


def _decide(text: str, memories: Mapping[int, str], cosines: Mapping[int, float], unused: str) -> list[UpdateEntry]:
    add = UpdateEntry(id=unused, text=text[:2000], event="ADD")
    new, sentence = profile(text), analyse(text)
    best, best_red, best_comp = -1, -1.0, 0.0
    for item, memory in memories.items():
        if any(covers(analyse(known), sentence) for known in split_sentences(memory)):
            return [UpdateEntry(id=str(item), text=memory[:2000], event="NOOP")]
        red, comp = scores(new, profile(memory), 0, cosines[item])
        if red > best_red:
            best, best_red, best_comp = item, red, comp
    if best < 0:
        return [add]
    memory = memories[best]
    if relation(new, profile(memory), best_red, best_comp) == "CONFLICTS":
        return [UpdateEntry(id=str(best), text=memory[:2000], event="DELETE"), add]
    if best_red > SAME_MATTER:
        return [UpdateEntry(id=str(best), text=union(memory, text)[:2000], event="UPDATE", old_memory=memory[:2000])]
    return [add]


async def summary(value: SummaryInput, tools: Tools) -> SummaryOutput:
    """Sentences of the old summary and the new messages that say most, in order, within the word limit."""
    sentences = list(split_sentences(value.previous))
    for message in value.messages:
        head, _, text = message.partition(": ")
        speaker = head.rpartition(") ")[2]
        told = [restate_sentence(speaker, s) for s in split_sentences(text) if not is_small_talk(s)]
        sentences += [s for s in told if not s.endswith("?")]
    sentences = list(dict.fromkeys(" ".join(s.split()[:60])[:600] for s in sentences))
    by_weight = sorted(range(len(sentences)), key=lambda i: (-_weight(sentences[i]), -i))
    kept: list[int] = []
    left = SUMMARY_WORDS
    for i in by_weight:
        size = len(sentences[i].split())
        if size <= left:
            kept.append(i)
            left -= size
    text = " ".join(sentences[i] for i in sorted(kept))[:6000]
    return SummaryOutput(summary=text or "(nothing yet)")


def _weight(sentence: str) -> int:
    found = analyse(sentence)
    return len(found.roots) + len(found.names) + 2 * len(found.numbers)


FUNCTIONS: Mapping[str, Function] = {"mem0_extract": extract, "mem0_update": update, "mem0_summary": summary}
