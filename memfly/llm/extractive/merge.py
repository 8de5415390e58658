"""F_merge without a model (task `merge`): the sentences of both notes, near-duplicates once.

A sentence of the newer note is dropped only if a sentence of the older one has nearly all its content roots and all its
numbers, names and calendar words; so nothing that can be asked for is lost. Wording is never changed.
"""

from __future__ import annotations

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import Sentence, analyse, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.tasks.merge import MergeInput, MergeOutput

COVERED = 0.8
"""Share of a sentence's content roots that another must have to make it superfluous."""
LIMIT = 4000


def union(old: str, new: str) -> str:
    """Old sentences in order, then the new ones that say more; a sentence extended by a newer one gives way to it."""
    kept: list[Sentence] = []
    for text in (*split_sentences(old), *split_sentences(new)):
        sentence = analyse(text)
        if any(covers(other, sentence) for other in kept):
            continue
        kept = [other for other in kept if not covers(sentence, other)]
        kept.append(sentence)
    return " ".join(s.text for s in kept)[:LIMIT]


def covers(one: Sentence, other: Sentence) -> bool:
    """Does `one` say all that `other` says?"""
    if one.negated != other.negated or not (_details(other) <= _details(one)):
        return False
    return len(other.roots & one.roots) >= COVERED * len(other.roots) and (bool(other.roots) or one.text == other.text)


def _details(sentence: Sentence) -> frozenset[str]:
    return sentence.names | sentence.numbers | (lexicon.CALENDAR & {t.low for t in sentence.tokens})


async def merge(value: MergeInput, tools: Tools) -> MergeOutput:
    return MergeOutput(context=union(value.old_context, value.new_context) or "(empty)")
