"""Rendered turns taken apart into sentences, and the most informative of them; shared by the baselines' task functions.

Informative is: content words that recur in the text, names and numbers, per length; questions and small talk count little.
Sentences are never rewritten except by the backbone's own restatement.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memfly.llm.extractive.analysis import analyse, split_sentences
from memfly.llm.extractive.keywords import is_small_talk
from memfly.llm.extractive.restate import restate_sentence

_SPEAKER = re.compile(r"([^\W\d_][\w .'’-]{0,39}): (?=\S)")
_DATE = re.compile(r"\(([^()\n]{0,40}\d{4}[^()\n]{0,12})\) ")
_PHOTO_OF = re.compile(r"^(?:an?|the)?\s*(?:photo|picture|image)\s+of\s+", re.IGNORECASE)
_CAPTION = re.compile(r"\[shares a photo of: ([^\]]*)\]?")

LONG = 300
"""Sentences looked at more than once, best first; the choice is quadratic in them."""


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence of one turn. `turn` is the position of the turn among the lines, `date` a label where it had one."""

    turn: int
    speaker: str
    text: str
    date: str = ""

    @property
    def restated(self) -> str:
        """With the speaker's name for "I"."""
        text = restate_sentence(self.speaker, self.text) if self.speaker else self.text
        return text if not self.speaker or self.speaker in text else f"{self.speaker}: {text}"


@lru_cache(maxsize=20_000)
def read(line: str, turn: int = 0) -> tuple[Said, ...]:
    """Sentences of "(date) Speaker: text [shares a photo of: caption]"; date, speaker and caption may be missing."""
    date = _DATE.match(line)
    line = line[date.end() :] if date else line
    label = date[1] if date else ""
    match = _SPEAKER.match(line)
    speaker, text = (match[1], line[match.end() :]) if match else ("", line)
    found = [Said(turn, speaker, sentence, label) for sentence in split_sentences(_CAPTION.sub("", text))]
    for caption in _CAPTION.findall(text):
        thing = _PHOTO_OF.sub("", caption.strip())
        if thing:
            found.append(Said(turn, speaker, f"{speaker} shared a photo of {thing}.", label))
    return tuple(found)


def read_all(lines: Iterable[str]) -> list[Said]:
    return [said for turn, line in enumerate(lines) for said in read(line, turn)]


def best(sentences: Sequence[str], most_words: int, most: int = 1000) -> list[int]:
    """Positions, in order, of up to `most` of the most informative sentences with at most `most_words` words in all; at
    least one, where there is one. Words that a chosen sentence already brought count half in later ones."""
    found = [analyse(sentence) for sentence in sentences]
    spread = Counter(root for sentence in found for root in sentence.roots)
    known: set[str] = set()
    chosen: list[int] = []
    left = most_words

    def worth(position: int) -> float:
        sentence = found[position]
        value = sum((1.0 if spread[r] == 1 else 1.5) * (0.5 if r in known else 1.0) for r in sorted(sentence.roots))
        value += len(sentence.names) + len(sentence.numbers)
        value /= math.sqrt(len(sentence.tokens) + 8)
        return value * (0.3 if sentence.question else 1.0) * (0.1 if is_small_talk(sentences[position]) else 1.0)

    open_ = sorted(range(len(sentences)), key=worth, reverse=True)[:LONG]
    while open_ and left > 0 and len(chosen) < most:
        top = max(open_, key=worth)
        open_.remove(top)
        size = len(sentences[top].split())
        if size > left and chosen:
            continue
        chosen.append(top)
        known |= found[top].roots
        left -= size
    return sorted(chosen)


def shorten(lines: Sequence[str], most_words: int) -> str:
    """The most informative sentences of some turns in their order, with names for "I" and each date label kept once."""
    said = read_all(lines)
    kept = best([s.text for s in said], most_words)
    out: list[str] = []
    date = ""
    for position in kept:
        sentence = said[position]
        if sentence.date and sentence.date != date:
            date = sentence.date
            out.append(f"({date})")
        out.append(sentence.restated)
    return " ".join(out)


def overlap(query: frozenset[str], texts: Sequence[frozenset[str]]) -> list[float]:
    """How much of a query's roots each text holds, rare roots among the texts counting more; in [0, 1]."""
    size = len(texts)
    frequency = Counter(root for text in texts for root in text & query)
    weight = {root: 1.0 / (1.0 + frequency[root] / max(size, 1) * 4) for root in sorted(query)}
    total = sum(weight.values()) or 1.0
    return [sum(weight[root] for root in sorted(query & text)) / total for text in texts]


@lru_cache(maxsize=20_000)
def roots(text: str) -> frozenset[str]:
    """Content roots of all sentences of a text."""
    return frozenset().union(*(analyse(sentence).roots for sentence in split_sentences(text)))
