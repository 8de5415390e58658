"""The shared answerer without a model (task `answer`): a span for a phrase, a resolved date, or one of two options.

The question's own words decide how it is answered (who, when, how many, yes or no ...); the style only says whether a
date, an option or leave to abstain is asked for. All constants were set on the bundled sample and on conversation conv-26
of LoCoMo ONLY; the other nine conversations are test data.
"""

from __future__ import annotations

import re

from memfly.llm.extractive.analysis import analyse, root, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.dates import expressions, in_digits, worded
from memfly.llm.extractive.evidence import Asked, Ranked, ask, rank, speakers_of
from memfly.llm.extractive.lexicon import MONTHS
from memfly.llm.extractive.spans import Span, candidates, consensus, scored
from memfly.tasks.answer import NOT_MENTIONED, AnswerInput, AnswerOutput

SHORTLIST = 8
"""Sentences whose lines are embedded per question."""
LINES = 3
"""Lines from which answers are cut."""
COSINE = 0.6
"""Weight of the cosine between question and sentence beside the lexical score."""
ALSO = 2.0
"""How far below the best span's score an item of a list may be."""
ITEM = 4
"""Most tokens of an item of a list."""
FALLBACK = 0.4
"""How far below the best line a line with a date may be before the best line's own day is the better answer."""
COVERED = 0.6
"""Share of an option's content roots that a sentence (with its turn) must hold to speak for it."""
LEAST = 0.45
"""Relevance below which the open style abstains."""
_ALTERNATIVES = re.compile(r"\b(?:an?|the|in|to) ([\w' -]{2,40}?) or (?:an?|the|in|to)? ?([\w' -]{2,40})\?")


async def answer(value_: AnswerInput, tools: Tools) -> AnswerOutput:
    """An answer within the output's bounds. Never empty: "Not mentioned in the conversation" where there is nothing."""
    if value_.options:
        return AnswerOutput(answer=choose(value_)[:2000])
    asked = ask(value_.question)
    dated = value_.style in ("date", "official_date") or asked.kind in ("when", "span", "often")
    ranked = await _shortlist(asked, value_.evidence, tools, SHORTLIST if dated else LINES)
    if not ranked:
        return AnswerOutput(answer=NOT_MENTIONED)
    if value_.style == "open" and not _supported(ranked):
        return AnswerOutput(answer=NOT_MENTIONED)
    text = date_answer(asked, ranked) if dated else phrase_answer(asked, ranked, speakers_of(value_.evidence))
    return AnswerOutput(answer=(text or ranked[0].sentence.text or NOT_MENTIONED)[:2000])


async def _shortlist(asked: Asked, evidence: tuple[str, ...], tools: Tools, most: int) -> list[Ranked]:
    """All sentences of the best `most` lines, best line first, then by what the sentence itself shares with the question.

    The lines of the `SHORTLIST` best sentences are re-ranked with the cosine of line and question. Turns are embedded
    whole, so over a run no more texts are embedded than there are turns.
    """
    ranked = rank(asked, evidence)
    best: dict[int, Ranked] = {}
    for entry in ranked[:SHORTLIST]:
        best.setdefault(id(entry.line), entry)
    lines = list(best.values())
    if len(lines) > 1:
        vectors = await tools.embedder.embed([asked.text, *(r.line.text for r in lines)])
        for entry, cosine in zip(lines, (vectors[1:] @ vectors[0]).tolist(), strict=True):
            entry.score += COSINE * round(float(cosine), 5)
    lines.sort(key=lambda r: -r.score)
    out: list[Ranked] = []
    for first in lines[:most]:
        mates = [r for r in ranked if r.line is first.line]
        for entry in mates:
            entry.score = first.score
        out += sorted(mates, key=lambda r: -r.own)
    return out


def _supported(ranked: list[Ranked]) -> bool:
    best = ranked[0]
    return best.by_subject and best.score >= LEAST


def phrase_answer(asked: Asked, ranked: list[Ranked], speakers: frozenset[str]) -> str:
    if asked.kind == "yesno":
        return yes_or_no(asked, ranked)
    spans = candidates(asked, ranked, speakers)
    if not spans:
        return ""
    pairs = scored(spans)
    items = _items(pairs, ranked) if asked.several else []
    return ", ".join(items) or consensus(pairs).text


def _items(pairs: list[tuple[float, Span]], ranked: list[Ranked]) -> list[str]:
    """One short span from every line that has one scoring nearly as well as the best, for questions after several things."""
    chosen: dict[str, None] = {}
    for line in dict.fromkeys(id(r.line) for r in ranked):
        short = [p for p in pairs if id(ranked[p[1].source].line) == line and p[1].end - p[1].start <= ITEM]
        if short and short[0][0] > pairs[0][0] - ALSO:
            chosen[consensus(short).text] = None
    return list(chosen)


def yes_or_no(asked: Asked, ranked: list[Ranked]) -> str:
    """One of two alternatives where the question names them ("... or ..."), else yes or no by support for the statement."""
    either = _ALTERNATIVES.search(asked.text)
    if either:
        held = frozenset().union(*(r.line.roots for r in ranked))
        first, second = (frozenset(root(w) for w in either[g].lower().split()) for g in (1, 2))
        return either[1] if len(first & held) >= len(second & held) else either[2]
    best = ranked[0]
    positive = best.by_subject and best.own >= 0.3 and not best.sentence.negated
    if asked.text.lower().startswith(("would", "could", "might")):
        return "Yes" if positive else "Likely no"
    return "Yes" if positive else "No"


def date_answer(asked: Asked, ranked: list[Ranked]) -> str:
    """The resolved expression of the best line that has one of the kind asked for; else the day of the best line.

    A month, year or weekday that the question names itself must fit the answer, and is not an answer.
    """
    kinds = {"span": ("duration", "since"), "often": ("frequency",)}.get(asked.kind, ("point",))
    ago = asked.kind == "span" and " ago" in asked.text.lower()
    given = {t.low for s in split_sentences(asked.text) for t in analyse(s).tokens if t.low in MONTHS or t.tag == "D"}
    best: tuple[float, str] | None = None
    for entry in ranked:
        day = entry.line.date
        if day is None:
            continue
        for found in expressions(entry.sentence.text):
            if found.kind not in kinds and not (ago and found.kind == "point" and found.text.endswith("ago")):
                continue
            text = found.text if ago else found.resolve(day)
            score = entry.score + 0.15 * entry.own - 0.1 * (found.future != asked.future)
            score -= 0.5 * _misfit(given, found.text, text)
            if best is None or score > best[0]:
                best = (score, text)
    if best is not None and (best[0] >= ranked[0].score - FALLBACK or asked.kind != "when"):
        return in_digits(best[1]) if asked.kind == "span" else best[1]
    day = ranked[0].line.date
    return worded(day) if day is not None else ""


def _misfit(given: set[str], found: str, resolved: str) -> bool:
    """Does the answer leave out, or merely repeat, the time that the question names itself?"""
    if not given:
        return False
    return not given & set(resolved.lower().split()) or set(found.lower().split()) <= given | {"in"}


def choose(value_: AnswerInput) -> str:
    """The option that is not the fixed refusal if evidence by or about the right person holds its content."""
    refusals = [o for o in value_.options if o.strip().lower().startswith(("not mentioned", "no information"))]
    others = [o for o in value_.options if o not in refusals]
    asked = ask(value_.question)
    ranked = rank(asked, value_.evidence)
    if not refusals:
        return max(others, key=lambda o: _support(o, asked, ranked))
    best = max(others, key=lambda o: _support(o, asked, ranked), default="")
    return best if best and _support(best, asked, ranked) >= COVERED else refusals[0]


def _support(option: str, asked: Asked, ranked: list[Ranked]) -> float:
    """Best share of the option's content roots in a line of the right person that also meets the question."""
    wanted = frozenset().union(*(analyse(s).roots for s in split_sentences(option))) - asked.roots
    if not wanted:
        wanted = frozenset(root(t.low) for s in split_sentences(option) for t in analyse(s).tokens)
    shares = [len(wanted & r.line.roots) / max(1, len(wanted)) for r in ranked[:12] if r.by_subject and r.own > 0]
    return max(shares, default=0.0)
