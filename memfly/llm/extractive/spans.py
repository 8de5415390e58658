"""Short answer spans cut from ranked sentences: candidates between phrase borders, scored by a linear rule per kind of question.

The weights stand in `WEIGHTS`; they were set on the bundled sample and on conversation conv-26 of LoCoMo ONLY (the other
nine conversations are test data). A candidate is a run of at most `LONGEST` tokens that starts and ends at content words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import Token, root
from memfly.llm.extractive.evidence import Asked, Ranked

LONGEST = 12
CONSIDERED = 40
"""Best spans that take part in the consensus."""
_WORDS = re.compile(r"[.,!?]")
_OPENERS = frozenset(
    "a an the my our his her their its your some to in on at for with by from of because since".split()
)
_BE = frozenset("is are was were be been being am i'm it's that's".split())
_TIME = lexicon.CALENDAR | frozenset(
    "yesterday today tonight week weekend month year ago last next lately recently".split()
)
QUOTES = frozenset('"“”')
_PLACE = frozenset("in at to from near on around through into outside by".split())
_REASON = frozenset("because 'cause cause since so to for as".split())


@dataclass(frozen=True, slots=True)
class Span:
    """A candidate: its text, the sentence's index in the ranking, and features by name."""

    text: str
    source: int
    start: int
    end: int
    features: Mapping[str, float]


def candidates(asked: Asked, ranked: list[Ranked], speakers: frozenset[str]) -> list[Span]:
    """All candidates of the given sentences, in their order."""
    top = ranked[0].score if ranked else 0.0
    most = max((entry.own for entry in ranked), default=0.0)
    out: list[Span] = []
    for source, entry in enumerate(ranked):
        tokens = entry.sentence.tokens[:80]
        hits = [root(t.low) in asked.roots and t.tag in "VNPDA" for t in tokens]
        ends = [i + 1 for i, t in enumerate(tokens) if t.tag in "NPDAV" or t.low in lexicon.PRONOUNS]
        shared = {
            "gap": top - entry.score,
            "first": float(source == 0),
            "first_line": float(entry.line is ranked[0].line),
            "own": entry.own,
            "own_gap": most - entry.own,
            "question": float(entry.sentence.question),
            "caption": float(entry.caption),
            "subject": float(entry.by_subject),
            "single": float(len(entry.line.sentences) == 1),
        }
        for start, token in enumerate(tokens):
            if not _may_start(tokens, start):
                continue
            for end in ends:
                if not start < end <= start + LONGEST:
                    continue
                if any(t.text in "!?;:" for t in tokens[start:end]):
                    break
                text = entry.sentence.text[token.start : tokens[end - 1].end]
                features = shared | _features(asked, tokens, hits, start, end, speakers)
                out.append(Span(text, source, start, end, features))
    return out


def _may_start(tokens: tuple[Token, ...], start: int) -> bool:
    token = tokens[start]
    if token.tag == ".":
        return False
    before = tokens[start - 1] if start else None
    if token.tag == "F":
        return token.low in _OPENERS
    return not (token.tag in "NP" and before is not None and before.tag in "NPA")


def _features(
    asked: Asked,
    tokens: tuple[Token, ...],
    hits: list[bool],
    start: int,
    end: int,
    speakers: frozenset[str],
) -> dict[str, float]:
    span = tokens[start:end]
    words = [t for t in span if t.tag != "."]
    length = len(words)
    before = tokens[start - 1] if start else None
    after = tokens[end] if end < len(tokens) else None
    repeated = sum(hits[start:end])
    left = next((d for d, i in enumerate(range(start - 1, -1, -1)) if hits[i]), None)
    right = next((d for d, i in enumerate(range(end, len(tokens))) if hits[i]), None)
    content = sum(t.tag in "NPDA" for t in words)
    kind = asked.kind
    verb_hit = bool(before is not None and before.tag == "V" and start and hits[start - 1])
    out = {
        "after_verb_hit": float(verb_hit),
        "after_verb": float(before is not None and before.tag == "V"),
        "after_be": float(before is not None and before.low in _BE),
        "after_prep": float(before is not None and before.low in lexicon.PREPOSITIONS),
        "after_to": float(before is not None and before.low == "to"),
        "after_det": float(before is not None and before.low in lexicon.DETERMINERS),
        "after_mark": float(before is not None and before.tag == "."),
        "at_start": float(before is None),
        "ends_focus": float(root(span[-1].low) in asked.focus),
        "before_focus": float(after is not None and root(after.low) in asked.focus),
        "quoted": float(before is not None and before.text in QUOTES and after is not None and after.text in QUOTES),
        "comma_inside": float(any(t.text == "," for t in span)),
        "and_inside": float(any(t.low == "and" for t in span)),
        "verb_inside": float(any(t.tag == "V" for t in span)),
        "starts_gerund": float(span[0].low.endswith("ing")),
        "time": float(any(t.low in _TIME for t in words)),
        "log_length": math.log(length),
        "repeated": repeated / length,
        "all_repeated": float(repeated >= content),
        "after_hit": 1 / (1 + left) if left is not None else 0.0,
        "before_hit": 1 / (1 + right) if right is not None else 0.0,
        "content": content / length,
        "len1": float(length == 1),
        "len2": float(length == 2),
        "len3": float(length == 3),
        "len45": float(length in (4, 5)),
        "len68": float(6 <= length <= 8),
        "len9": float(length >= 9),
        "starts_function": float(span[0].tag == "F"),
        "starts_verb": float(span[0].tag == "V"),
        "ends_noun": float(span[-1].tag in "NPD"),
        "ends_verb": float(span[-1].tag == "V"),
        "cuts_phrase": float(after is not None and after.tag in "NP" and span[-1].tag in "NPAD"),
        "at_border": float(after is None or after.tag == "."),
        "vague": float(all(t.low in lexicon.VAGUE_NOUNS or t.tag in "FA" for t in words)),
        "has_i": float(any(t.low in ("i", "i'm", "i've", "you", "we", "me") for t in words)),
        "has_speaker": float(any(t.tag == "P" and t.low.removesuffix("'s") in speakers for t in words)),
    }
    out |= _fit(kind, words, before, length)
    return out


def _fit(kind: str, words: list[Token], before: Token | None, length: int) -> dict[str, float]:
    """How well a span suits the kind of question; only what that kind looks at."""
    lead = before.low if before is not None else ""
    proper = float(any(t.tag == "P" for t in words))
    verb = float(any(t.tag == "V" for t in words))
    size = length / LONGEST
    if kind == "who":
        return {"who_proper": proper, "who_kin": float(any(t.low in lexicon.KIN for t in words))}
    if kind == "where":
        return {"where_proper": proper, "where_place": float(lead in _PLACE)}
    if kind == "count":
        return {"count_number": float(any(t.tag == "D" for t in words)), "count_short": float(length <= 2)}
    if kind == "why":
        reason = float(lead in _REASON or words[0].low in _REASON)
        return {"why_reason": reason, "why_length": size, "why_verb": verb}
    if kind == "feel":
        return {"feel_adjective": float(any(t.tag == "A" for t in words))}
    if kind == "which":
        return {"which_proper": proper, "which_verb": verb, "which_length": size}
    return {f"{kind}_verb": verb, f"{kind}_length": size}


WEIGHTS: Mapping[str, float] = {
    "after_be": 0.29,
    "after_det": 0.33,
    "after_hit": 2.43,
    "after_mark": 0.57,
    "after_prep": 0.66,
    "after_to": -0.13,
    "after_verb": 1.06,
    "after_verb_hit": -1.65,
    "all_repeated": -0.81,
    "and_inside": 0.67,
    "at_border": 0.62,
    "at_start": 0.98,
    "before_focus": -0.46,
    "before_hit": 0.67,
    "caption": 0.05,
    "comma_inside": -0.83,
    "content": 2.46,
    "count_number": 4.26,
    "count_short": 3.13,
    "cuts_phrase": -0.55,
    "ends_focus": 1.64,
    "ends_noun": 0.22,
    "ends_verb": 0.44,
    "feel_adjective": -0.05,
    "first": 0.19,
    "first_line": 0.06,
    "gap": -1.79,
    "has_i": -0.24,
    "has_speaker": -1.79,
    "how_length": 1.99,
    "how_verb": 0.41,
    "len1": -0.64,
    "len2": 0.05,
    "len3": 0.32,
    "len45": 0.18,
    "len68": -0.12,
    "len9": 0.21,
    "log_length": -0.21,
    "own": 0.63,
    "own_gap": -0.63,
    "question": 0.43,
    "quoted": -0.78,
    "repeated": -2.67,
    "single": -0.85,
    "starts_function": -0.22,
    "starts_gerund": 0.07,
    "starts_verb": 0.33,
    "subject": 0.24,
    "time": -1.9,
    "vague": -1.68,
    "verb_inside": -0.25,
    "what_length": -0.27,
    "what_verb": 0.53,
    "where_place": 0.55,
    "where_proper": 2.1,
    "which_length": 0.09,
    "which_proper": 0.89,
    "which_verb": 0.28,
    "who_kin": 1.84,
    "who_proper": 2.21,
    "why_length": 2.38,
    "why_reason": 0.61,
    "why_verb": 1.61,
}
"""Weights of the linear score, found by fitting the spans' F1 with the gold answers of the calibration data."""


def scored(spans: list[Span]) -> list[tuple[float, Span]]:
    """Spans with their linear score, best first, equals in text order; only differences inside one question matter."""
    pairs = [(sum(WEIGHTS.get(name, 0.0) * x for name, x in span.features.items()), span) for span in spans]
    return sorted(pairs, key=lambda pair: -pair[0])


def consensus(pairs: list[tuple[float, Span]]) -> Span:
    """The span that agrees most with all good spans: highest expected word F1 when each is right with softmax weight.

    Scoring single spans picks a lucky outlier too often; agreement prefers the core that many good candidates share.
    `pairs` must not be empty.
    """
    best = pairs[:CONSIDERED]
    weights = [math.exp(score - best[0][0]) for score, _ in best]
    bags = [frozenset(t for t in _WORDS.sub(" ", span.text.lower()).split()) for _, span in best]
    expected = [sum(w * _f1(bag, other) for w, other in zip(weights, bags, strict=True)) for bag in bags]
    return best[max(range(len(best)), key=lambda i: (round(expected[i], 9), -i))][1]


def _f1(a: frozenset[str], b: frozenset[str]) -> float:
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0
