"""Evidence as the answerer sees it, taken apart again: lines with speaker and date, sentences, and their rank for a question.

An evidence item is "<date label> | <text>", where the text may hold several lines: raw turns ("Speaker: text [shares a
photo of: caption]", or 'Speaker said, "text"' in LoCoMo's rendering) and restated contexts. A line that opens with a date
label of its own uses that. A context sentence that repeats the raw turns of its own item is left out. Nothing here
decides on an answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache

from memfly.llm.extractive.analysis import Sentence, analyse, root, split_sentences
from memfly.llm.extractive.dates import parse_label

_SPEAKER = re.compile(r"^([^\W\d_][\w .'’-]{0,39}?)(?:: | said, \")(?=\S)")
_CAPTION = re.compile(r"\[shares a photo of: ([^\]]*)\]?")
_ABOUT = re.compile(r" ?\[about: ([^\]]*)\]")
_OWN_DATE = re.compile(r"^[\[(]?([^|\n]{0,40}?\d{4}[^|\n\])]{0,12})(?:[\])]:?| \|)\s+")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one item. `speaker` is lower-cased, empty for a context."""

    speaker: str
    date: date | None
    text: str
    """The line as shown, without its date; what is embedded."""
    sentences: tuple[Sentence, ...]
    captions: tuple[str, ...]
    roots: frozenset[str]
    names: frozenset[str]


@lru_cache(maxsize=20_000)
def read_item(item: str) -> tuple[Line, ...]:
    """The lines of one evidence item, raw turns first, then what its contexts add to them."""
    label, bar, body = item.partition(" | ")
    if not bar or len(label) > 60:
        label, body = "", item
    day = parse_label(label)
    about = frozenset(root(w) for match in _ABOUT.findall(body) for w in match.lower().replace(",", " ").split())
    body = _ABOUT.sub("", body)
    raw: list[Line] = []
    told: list[Line] = []
    for text in body.splitlines():
        line = _read_line(text.strip(), day)
        if line is not None:
            (raw if line.speaker else told).append(line)
    if about:
        raw = [replace(line, roots=line.roots | about) for line in raw]
    known = frozenset().union(*(line.roots | {root(w) for w in line.speaker.split()} for line in raw))
    return (*raw, *(new for line in told if (new := _only_new(line, known)) is not None))


def _read_line(text: str, day: date | None) -> Line | None:
    own = _OWN_DATE.match(text)
    if own and (parsed := parse_label(own[1])) is not None:
        day, text = parsed, text[own.end() :]
    shown = text
    match = _SPEAKER.match(text)
    speaker = match[1].lower() if match else ""
    text = text[match.end() :].removesuffix('"' if '"' in match[0] else "") if match else text
    captions = _CAPTION.findall(text)
    sentences = [analyse(s) for s in split_sentences(_CAPTION.sub("", text))]
    sentences += [analyse(c.strip()) for c in captions if c.strip()]
    if not sentences:
        return None
    return _line(speaker, day, shown, tuple(sentences), tuple(c.strip() for c in captions))


def _line(
    speaker: str, day: date | None, text: str, sentences: tuple[Sentence, ...], captions: tuple[str, ...]
) -> Line:
    roots = frozenset().union(*(s.roots for s in sentences))
    return Line(speaker, day, text, sentences, captions, roots, frozenset().union(*(s.names for s in sentences)))


def _only_new(line: Line, known: frozenset[str]) -> Line | None:
    if not known:
        return line
    fresh = tuple(s for s in line.sentences if len(s.roots - known) > 1)
    return _line("", line.date, line.text, fresh, ()) if fresh else None


SUBJECT = 0.15
"""What a line gains for being spoken by, or naming, a person of the question."""

KINDS = ("who", "where", "when", "count", "span", "often", "why", "feel", "yesno", "which", "what", "how")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question taken apart. `roots`: content roots; `names`: lower-cased proper nouns;
    `focus`: roots of the noun asked for ("what BOOK"); `several`: asks for a list; `future`: speaks of what will be."""

    text: str
    kind: str
    roots: frozenset[str]
    names: frozenset[str]
    focus: frozenset[str]
    several: bool
    future: bool


_EMPTY = frozenset(
    root(w)
    for w in "kind type sort many much often long time name thing say tell mention recently do go get have according "
    "likely describe be use s first last new".split()
)
_YESNO = frozenset("did do does is are was were has have had can could would will should might".split())


@lru_cache(maxsize=20_000)
def ask(question: str) -> Asked:
    found = [analyse(s) for s in split_sentences(question)]
    tokens = [t for s in found for t in s.tokens if t.tag != "."]
    words = [t.low for t in tokens]
    names = frozenset(t.low.removesuffix("'s") for t in tokens if t.tag == "P")
    roots = frozenset(root(t.low) for t in tokens if t.tag in "VNPDA") - _EMPTY
    at = next((i for i, w in enumerate(words) if w in ("what", "which", "whose")), None)
    focus: list[str] = []
    several = False
    if at is not None:
        for token in tokens[at + 1 : at + 6]:
            if token.tag in "VP" or (token.tag == "F" and token.low != "of"):
                break
            if token.tag == "N" and root(token.low) not in _EMPTY:
                focus.append(root(token.low))
                several = several or (token.low.endswith("s") and not token.low.endswith("ss"))
    has = any(w in ("has", "have") for w in words[:3])
    return Asked(
        text=question,
        kind=_kind(words, bool(focus)),
        roots=roots,
        names=names,
        focus=frozenset(focus),
        several=several or (has and words[:1] in (["what"], ["where"], ["which"])) or "children" in words[:2],
        future=any(w in ("will", "planning", "plan", "going", "plans") for w in words),
    )


def _kind(words: list[str], focused: bool) -> str:
    first, second = ([*words, "", ""])[:2]
    if first == "how":
        named = {"many": "count", "much": "count", "old": "count", "long": "span", "often": "often"}
        return named.get(second, "feel" if "feel" in words else "how")
    if first in _YESNO:
        return "yesno"
    if "when" in words[:3] or ("date" in words[:3] and first in ("what", "which")):
        return "when"
    for word, kind in (("who", "who"), ("whom", "who"), ("whose", "who"), ("where", "where"), ("why", "why")):
        if word in words[:3]:
            return kind
    if "reason" in words[:4] or "motivated" in words[:4] or "inspired" in words[:3]:
        return "why"
    return "which" if focused else "what"


@dataclass(slots=True)
class Ranked:
    """A sentence with its place and its relevance (about 0 to 1.5) to the question asked."""

    sentence: Sentence
    line: Line
    score: float
    own: float
    """Share of the question's weighted roots in the sentence itself."""
    cover: float
    """Share of the question's weighted roots in the sentence's whole line."""
    caption: bool
    """Is it the caption of an image?"""
    by_subject: bool
    """Spoken by, or naming, a person of the question."""


def speakers_of(items: Sequence[str]) -> frozenset[str]:
    return frozenset(line.speaker for item in items for line in read_item(item) if line.speaker)


def rank(asked: Asked, items: Sequence[str]) -> list[Ranked]:
    """All sentences of the evidence, best first; equal scores keep the order shown."""
    lines = [line for item in items for line in read_item(item)]
    if not lines:
        return []
    speakers = frozenset(line.speaker for line in lines if line.speaker)
    subjects = frozenset(s for s in speakers if any(_same_person(s, n) for n in asked.names))
    persons = frozenset(root(n) for n in asked.names if is_name_of(speakers, n))
    wanted = asked.roots - persons
    frequency = Counter(r for line in lines for r in line.roots & wanted)
    weight = {r: math.log(1 + len(lines) / (1 + frequency[r])) for r in wanted}
    total = sum(sorted(weight.values())) or 1.0
    out: list[Ranked] = []
    for place, line in enumerate(lines):
        in_line = line.roots & wanted
        before = lines[place - 1] if place else None
        led: frozenset[str] = frozenset()
        if before is not None and before.date == line.date and before.speaker != line.speaker:
            led = before.roots & wanted
        around = sum(sorted(weight[r] for r in in_line))
        leading = sum(sorted(weight[r] for r in led - in_line))
        by_subject = not asked.names or line.speaker in subjects or bool(line.names & asked.names)
        for sentence in line.sentences:
            inside = sum(sorted(weight[r] for r in sentence.roots & wanted))
            score = (inside + 0.5 * (around - inside) + 0.25 * leading) / total
            score += SUBJECT * (by_subject and bool(subjects)) - 0.25 * sentence.question
            caption = sentence.text in line.captions
            out.append(Ranked(sentence, line, score, inside / total, around / total, caption, by_subject))
    return sorted(out, key=lambda r: -r.score)


@lru_cache(maxsize=5_000)
def _same_person(speaker: str, name: str) -> bool:
    """Same first name, or a short form of it ("Mel" for "Melanie")."""
    first = speaker.split()[0] if speaker.split() else speaker
    return first == name or (
        len(name) >= 3 and (first.startswith(name) or (name.startswith(first) and len(first) >= 3))
    )


def is_name_of(speakers: frozenset[str], name: str) -> bool:
    return any(_same_person(s, name) for s in speakers)
