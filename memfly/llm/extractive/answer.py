"""The shared answerer without a model (task `answer`): a span for a phrase, a resolved date, or one of two options.

The question's own words decide how it is answered (who, when, how many, yes or no ...); the style only says whether a
date, an option or leave to abstain is asked for. All constants were set on the bundled sample and on conversation conv-26
of LoCoMo ONLY; the other nine conversations are test data.
"""

from __future__ import annotations

from memfly.llm.extractive.analysis import analyse, root, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.dates import Temporal, expressions, worded
from memfly.llm.extractive.evidence import Asked, Ranked, ask, rank, speakers_of
from memfly.llm.extractive.spans import candidates, value
from memfly.tasks.answer import NOT_MENTIONED, AnswerInput, AnswerOutput

SHORTLIST = 6
"""Sentences that are embedded per question."""
COSINE = 0.6
"""Weight of the cosine between question and sentence beside the lexical score."""
COVERED = 0.6
"""Share of an option's content roots that a sentence (with its turn) must hold to speak for it."""
LEAST = 0.45
"""Relevance below which the open style abstains."""


async def answer(value_: AnswerInput, tools: Tools) -> AnswerOutput:
    """An answer within the output's bounds. Never empty: "Not mentioned in the conversation" where there is nothing."""
    if value_.options:
        return AnswerOutput(answer=choose(value_)[:2000])
    asked = ask(value_.question)
    ranked = await _shortlist(asked, value_.evidence, tools)
    if not ranked:
        return AnswerOutput(answer=NOT_MENTIONED)
    if value_.style == "open" and not _supported(ranked):
        return AnswerOutput(answer=NOT_MENTIONED)
    dated = value_.style in ("date", "official_date") or asked.kind in ("when", "span", "often")
    text = date_answer(asked, ranked) if dated else phrase_answer(asked, ranked, speakers_of(value_.evidence))
    return AnswerOutput(answer=(text or ranked[0].sentence.text or NOT_MENTIONED)[:2000])


async def _shortlist(asked: Asked, evidence: tuple[str, ...], tools: Tools) -> list[Ranked]:
    """The sentences ranked, the first `SHORTLIST` of them re-ranked with embeddings."""
    ranked = rank(asked, evidence)
    head = ranked[:SHORTLIST]
    if len(head) > 1:
        vectors = await tools.embedder.embed([asked.text, *(r.sentence.text for r in head)])
        for entry, cosine in zip(head, (vectors[1:] @ vectors[0]).tolist(), strict=True):
            entry.score += COSINE * round(float(cosine), 5)
    return sorted(head, key=lambda r: -r.score)


def _supported(ranked: list[Ranked]) -> bool:
    best = ranked[0]
    return best.by_subject and best.score >= LEAST


def phrase_answer(asked: Asked, ranked: list[Ranked], speakers: frozenset[str]) -> str:
    if asked.kind == "yesno":
        return yes_or_no(asked, ranked)
    spans = candidates(asked, ranked[:4], speakers)
    if not spans:
        return ""
    best = max(spans, key=value)
    if not asked.several:
        return best.text
    chosen = [best.text]
    for source in range(len(ranked[:4])):
        rest = [s for s in spans if s.source == source and s.source != best.source]
        if rest and len(chosen) < 3:
            other = max(rest, key=value)
            if value(other) > value(best) - 0.8:
                chosen.append(other.text)
    return ", ".join(dict.fromkeys(chosen))


def yes_or_no(asked: Asked, ranked: list[Ranked]) -> str:
    best = ranked[0]
    positive = best.by_subject and best.own >= 0.3 and not best.sentence.negated
    if asked.text.lower().startswith(("would", "could", "might")):
        return "Yes" if positive else "Likely no"
    return "Yes" if positive else "No"


def date_answer(asked: Asked, ranked: list[Ranked]) -> str:
    """The resolved expression of the best line that has one of the kind asked for; else the day of the best line."""
    kinds = {"span": ("duration", "since"), "often": ("frequency",)}.get(asked.kind, ("point",))
    if asked.kind == "span" and "ago" in asked.text.lower():
        kinds = ("point", "duration")
    best: tuple[float, str] | None = None
    for entry in ranked:
        if entry.line.date is None:
            continue
        for sentence in entry.line.sentences:
            for found in expressions(sentence.text):
                if found.kind not in kinds:
                    continue
                score = entry.score - 0.15 * (sentence is not entry.sentence) - 0.1 * (found.future != asked.future)
                if best is None or score > best[0]:
                    best = (score, _worded(asked, found, entry))
    if best is not None and (best[0] >= ranked[0].score - 0.5 or asked.kind != "when"):
        return best[1]
    day = ranked[0].line.date
    return worded(day) if day is not None else ""


def _worded(asked: Asked, found: Temporal, entry: Ranked) -> str:
    if asked.kind == "span" and "ago" in asked.text.lower():
        return found.text
    assert entry.line.date is not None
    return found.resolve(entry.line.date)


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
