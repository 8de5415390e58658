"""The gate (tasks `gate`, `gate_merge`, `gate_one_strength`): redundancy and complementarity of two notes without a model.

`s_red` is a logistic of content-root overlap (Dice, and containment of the new note in the old), embedding cosine and
agreement of numbers, calendar words, negation and question form.
`s_comp` is a logistic of cosine, shared keywords and shared names other than
the persons the notes are about. The weights are set so that near-verbatim repeats pass 0.7 and distinct facts on one
topic do not. They were calibrated on the bundled sample and on conversation conv-26 of LoCoMo ONLY; the other nine
conversations are test data and were not looked at. The scores know nothing of the method's thresholds; the relation label
has borders of its own (SUPPORTS from `s_red` 0.7), which `gate_one_strength` inherits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import analyse, root, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.merge import union
from memfly.tasks.gate import GateInput, GateMergeOutput, GateOutput, StrengthOutput, StrengthVerdict, Verdict

MOST = 32
SMOOTH = 2
"""Added to the sizes of both notes, so that two short pleasantries do not count as one and the same fact."""
_PRAISE = frozenset(root(word) for word in lexicon.EVALUATIVE)
_IDIOM = re.compile(
    r"\b(?:can't|cannot|couldn't) (?:wait|beat|help|believe)|\bno (?:doubt|problem|worries)\b", re.IGNORECASE
)
_ABOUT = re.compile(r" \[about: [^\]]*\]")


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared of one note."""

    roots: frozenset[str]
    """Content roots, proper nouns left to `names`."""
    names: frozenset[str]
    numbers: frozenset[str]
    calendar: frozenset[str]
    negated: bool
    changed: bool
    asks: bool
    """Nothing but questions?"""

    @property
    def facts(self) -> tuple[object, ...]:
        """What two notes of the same content agree in."""
        return self.numbers, self.calendar, self.negated, self.asks


@lru_cache(maxsize=20_000)
def profile(context: str) -> Profile:
    """Sets over all sentences of a note's context; the "[about: ...]" of `restate` is left out."""
    found = [analyse(s) for s in split_sentences(_IDIOM.sub("", _ABOUT.sub("", context)))]
    words = {t.low for s in found for t in s.tokens}
    names: frozenset[str] = frozenset().union(*(s.names for s in found))
    return Profile(
        roots=frozenset().union(*(s.roots for s in found)) - {root(n) for n in names} - _PRAISE,
        names=names,
        numbers=frozenset().union(*(s.numbers for s in found)),
        calendar=frozenset(words & lexicon.CALENDAR),
        negated=any(s.negated for s in found),
        changed=bool(words & lexicon.CHANGE_CUES),
        asks=bool(found) and found[-1].question and sum(not s.question for s in found) <= 1,
    )


@lru_cache(maxsize=20_000)
def _keyword_roots(keywords: tuple[str, ...]) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(root(w) for w in k.lower().split()) for k in keywords)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))


def scores(new: Profile, old: Profile, shared_keywords: float, cosine: float) -> tuple[float, float]:
    """(s_red, s_comp), each in [0, 1]; `shared_keywords` counts keyword phrases in common (a half for a shared word)."""
    common = len(new.roots & old.roots)
    dice = 2 * common / (len(new.roots) + len(old.roots) + 2 * SMOOTH)
    contained = common / (len(new.roots) + SMOOTH)
    clash = sum(a != b for a, b in zip(new.facts, old.facts, strict=True))
    red = _logistic(9.0 * (0.4 * dice + 0.25 * contained + 0.35 * max(cosine, 0.0) - 0.06 * clash - 0.455))
    names = len(new.names & old.names) - 1
    comp = _logistic(7.0 * (cosine + 0.12 * min(shared_keywords, 3) + 0.04 * min(max(names, 0), 2) - 0.62))
    return round(red, 4), round(comp, 4)


def relation(new: Profile, old: Profile, red: float, comp: float) -> str:
    """SUPPORTS, CONFLICTS, RELATED or NONE. A conflict needs a close topic and a flip of negation, numbers or plans."""
    common = len(new.roots & old.roots) / max(1, min(len(new.roots), len(old.roots)))
    close = common >= 0.5 and comp > 0.5
    differs = bool(new.numbers and old.numbers and not new.numbers & old.numbers)
    differs = differs or bool(new.calendar and old.calendar and not new.calendar & old.calendar)
    if close and (
        (new.negated != old.negated and red > 0.5) or (new.changed and (differs or new.negated != old.negated))
    ):
        return "CONFLICTS"
    if red > 0.7:
        return "SUPPORTS"
    return "RELATED" if comp > 0.35 else "NONE"


async def verdicts(value: GateInput, tools: Tools) -> list[Verdict]:
    """One verdict per candidate, in the order shown. Embeds only contexts, which the memory embeds anyway."""
    shown = value.candidates[:MOST]
    if not shown:
        return []
    vectors = await tools.embedder.embed([value.context, *(c.context for c in shown)])
    cosines = np.asarray(vectors[1:] @ vectors[0], dtype=np.float64)
    new = profile(value.context)
    keys = _keyword_roots(value.keywords)
    out = []
    for candidate, cosine in zip(shown, cosines.tolist(), strict=True):
        old = profile(candidate.context)
        theirs = _keyword_roots(candidate.keywords)
        same = len(keys & theirs)
        partly = len({w for k in keys - theirs for w in k} & {w for k in theirs - keys for w in k})
        red, comp = scores(new, old, same + 0.5 * partly, round(float(cosine), 5))
        out.append(Verdict(id=candidate.id, relation=relation(new, old, red, comp), s_red=red, s_comp=comp))
    return out


async def gate(value: GateInput, tools: Tools) -> GateOutput:
    return GateOutput(verdicts=await verdicts(value, tools))


async def gate_merge(value: GateInput, tools: Tools) -> GateMergeOutput:
    """As `gate`, plus the union of the new note and its most redundant candidate."""
    found = await verdicts(value, tools)
    if not found:
        return GateMergeOutput(verdicts=[], merged_context="")
    best = max(found, key=lambda v: (v.s_red, v.s_comp, -v.id))
    old = next(c for c in value.candidates if c.id == best.id)
    return GateMergeOutput(verdicts=found, merged_context=union(old.context, value.context))


async def gate_one_strength(value: GateInput, tools: Tools) -> StrengthOutput:
    """One number per candidate: `s_red` where the relation is SUPPORTS, else `s_comp`."""
    return StrengthOutput(
        verdicts=[
            StrengthVerdict(id=v.id, relation=v.relation, strength=v.s_red if v.relation == "SUPPORTS" else v.s_comp)
            for v in await verdicts(value, tools)
        ]
    )
