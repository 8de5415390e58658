"""Short answer spans cut from ranked sentences: candidates between phrase borders, scored by a linear rule per kind of question.

The weights stand in `WEIGHTS`; they were set on the bundled sample and on conversation conv-26 of LoCoMo ONLY (the other
nine conversations are test data). A candidate is a run of at most `LONGEST` tokens that starts and ends at content words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import Token, root
from memfly.llm.extractive.evidence import Asked, Ranked

LONGEST = 12
_OPENERS = frozenset(
    "a an the my our his her their its your some to in on at for with by from of because since".split()
)
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
    """All candidates of the given sentences, best sentence first."""
    top = ranked[0].score if ranked else 0.0
    out: list[Span] = []
    for source, entry in enumerate(ranked):
        tokens = entry.sentence.tokens[:80]
        hits = [root(t.low) in asked.roots and t.tag in "VNPDA" for t in tokens]
        ends = [i + 1 for i, t in enumerate(tokens) if t.tag in "NPDAV" or t.low in lexicon.PRONOUNS]
        for start, token in enumerate(tokens):
            if not _may_start(tokens, start):
                continue
            for end in ends:
                if not start < end <= start + LONGEST:
                    continue
                if any(t.text in "!?;:" for t in tokens[start:end]):
                    break
                text = entry.sentence.text[token.start : tokens[end - 1].end]
                features = _features(asked, entry, tokens, hits, start, end, speakers)
                features["gap"] = top - entry.score
                features["first"] = float(source == 0)
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
    entry: Ranked,
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
    out = {
        "score": entry.score,
        "subject": float(entry.by_subject),
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
    """Features of how well a span suits the kind of question; each has that kind in its name."""
    proper = any(t.tag == "P" for t in words)
    number = any(t.tag == "D" for t in words)
    lead = before.low if before is not None else ""
    first = words[0].low
    return {
        f"{kind}_proper": float(proper),
        f"{kind}_number": float(number),
        f"{kind}_kin": float(any(t.low in lexicon.KIN for t in words)),
        f"{kind}_place": float(lead in _PLACE),
        f"{kind}_reason": float(lead in _REASON or first in _REASON),
        f"{kind}_adjective": float(any(t.tag == "A" for t in words)),
        f"{kind}_verb": float(any(t.tag == "V" for t in words)),
        f"{kind}_length": float(length) / LONGEST,
        f"{kind}_short": float(length <= 2),
    }


WEIGHTS: Mapping[str, float] = {
    "score": 2.0,
    "subject": 0.5,
    "gap": -1.0,
    "first": 0.3,
    "repeated": -2.0,
    "all_repeated": -1.5,
    "after_hit": 0.8,
    "before_hit": 0.1,
    "content": 0.5,
    "len1": -0.2,
    "len3": 0.1,
    "len9": -0.8,
    "starts_function": -0.5,
    "ends_verb": -0.6,
    "cuts_phrase": -1.0,
    "at_border": 0.4,
    "vague": -1.0,
    "has_i": -0.7,
    "has_speaker": -0.7,
    "who_proper": 1.0,
    "who_kin": 0.6,
    "where_place": 1.0,
    "where_proper": 0.7,
    "count_number": 2.0,
    "count_short": 0.8,
    "span_number": 2.0,
    "often_number": 0.5,
    "why_reason": 1.5,
    "why_length": 1.0,
    "feel_adjective": 1.5,
    "which_proper": 0.8,
}


def value(span: Span, weights: Mapping[str, float] = WEIGHTS) -> float:
    """The linear score; only differences inside one question mean something."""
    return sum(weights.get(name, 0.0) * x for name, x in span.features.items())
