"""Keyword noun phrases of a turn (task `ingest`) and the parse of a question (task `question`), by rule.

Order and number follow MemFly 3.1: proper nouns, then concrete objects, then topics; 3 to 5,
none for phatic turns. Phrases are cut from the text, never invented.
"""

from __future__ import annotations

from functools import lru_cache

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import (
    Phrase,
    Token,
    analyse,
    asked_subject,
    fold,
    phrases,
    quoted,
    singular,
    split_sentences,
    vocative,
)
from memfly.llm.extractive.base import Tools
from memfly.tasks.question import QuestionInput, QuestionOutput

MOST = 5
MAX_WORDS = 4
_TRAILING = frozenset("photo photography picture image".split())


@lru_cache(maxsize=20_000)
def turn_keywords(speaker: str, text: str, caption: str) -> tuple[str, ...]:
    """Up to five keyword phrases of one turn; empty when it is small talk without a caption."""
    own = frozenset(fold(speaker).split())
    ranked: dict[str, tuple[int, int]] = {}
    spelling: dict[str, str] = {}
    for order, (sentence, from_caption) in enumerate(
        [(s, False) for s in split_sentences(text)] + [(s, True) for s in split_sentences(caption)]
    ):
        if is_small_talk(sentence) and not from_caption:
            continue
        for phrase in phrases(sentence):
            keyword = _trim(sentence, phrase, own)
            if keyword:
                spelling.setdefault(keyword.casefold(), keyword)
                ranked.setdefault(
                    keyword.casefold(), (_rank(keyword, phrase, from_caption), order * 1000 + phrase.start)
                )
        for title in quoted(sentence):
            spelling[title.casefold()] = title
            ranked[title.casefold()] = (0, order * 1000)
    chosen: list[str] = []
    for keyword in sorted(ranked, key=lambda k: (ranked[k][0], -min(len(k.split()), 2), ranked[k][1])):
        if not any(_inside(keyword, other) for other in chosen):
            chosen.append(keyword)
        if len(chosen) == MOST:
            break
    return tuple(spelling[keyword][:120] for keyword in chosen)


def _inside(keyword: str, other: str) -> bool:
    return set(keyword.split()) <= set(other.split())


def _trim(sentence: str, phrase: Phrase, own: frozenset[str]) -> str:
    """The phrase without evaluative, vague and own-name words at its edges, cut to its last `MAX_WORDS` words."""
    everything = analyse(sentence).tokens
    tokens = [t for t in everything[phrase.start : phrase.end] if t.tag != "."]
    if len(tokens) == 1 and vocative(everything, phrase.start):
        return ""
    while tokens and _weak(tokens[0], own):
        tokens = tokens[1:]
    while tokens and (_weak(tokens[-1], own) or tokens[-1].low in _TRAILING) and not _proper_run(tokens):
        tokens = tokens[:-1]
    tokens = tokens if _proper_run(tokens) else tokens[-MAX_WORDS:]
    if not any(t.tag in "PN" for t in tokens):
        return ""
    if all(t.low in lexicon.VAGUE_NOUNS or t.low in own or t.low in lexicon.CALENDAR for t in tokens):
        return ""
    text = sentence[tokens[0].start : tokens[-1].end].strip("'’")
    return text.removesuffix("'s").removesuffix("’s") if len(text) > 2 else ""


def _proper_run(tokens: list[Token]) -> bool:
    return bool(tokens) and all(t.tag in "PF" for t in tokens)


def _weak(token: Token, own: frozenset[str]) -> bool:
    low = token.low.removesuffix("'s")
    if token.tag in "AFD" or low in own or low in lexicon.VAGUE_NOUNS or low in lexicon.CALENDAR:
        return True
    return low in lexicon.VERB_BASE and low.endswith("ing") and lexicon.VERB_BASE[low] not in lexicon.ACTIVITIES


def _rank(keyword: str, phrase: Phrase, from_caption: bool) -> int:
    """0 proper noun, 1 compound or captioned thing, 2 single noun, 3 kin and other frequent words."""
    if phrase.proper and any(c.isupper() for c in keyword):
        return 0
    if all(word in lexicon.KIN for word in keyword.casefold().split()):
        return 3
    return 1 if " " in keyword or from_caption else 2


@lru_cache(maxsize=50_000)
def is_small_talk(sentence: str) -> bool:
    """True when a sentence holds only greetings, praise and vague words (names of people addressed do not count)."""
    found = analyse(sentence)
    if found.numbers or any(t.low in lexicon.CALENDAR for t in found.tokens):
        return False
    content = [t for t in found.tokens if t.tag in "VNPD"]
    called = {t.start for i, t in enumerate(found.tokens) if vocative(found.tokens, i)}
    rest = [t for t in content if t.low not in lexicon.GREETINGS and t.start not in called]
    return not rest


@lru_cache(maxsize=20_000)
def question_keywords(question: str) -> tuple[str, ...]:
    """Up to five canonical (singular, lower case but for names) search phrases of a question.

    The person a question is about ("did Anna bake") is left out when two other phrases are there: the name stands in
    hundreds of notes, and next to it a search by similar keywords brings in other persons' names.
    """
    found: dict[str, str] = {title.casefold(): title for title in quoted(question)}
    verbs: list[str] = []
    subjects: set[str] = set()
    for sentence in split_sentences(question):
        tokens = analyse(sentence).tokens
        for phrase in phrases(sentence):
            words = [t for t in tokens[phrase.start : phrase.end] if t.tag in "PNAD&"]
            while words and words[0].tag in "AD" and words[0].low in lexicon.EVALUATIVE:
                words = words[1:]
            text = canonical(" ".join(t.text for t in words))
            if text and not all(w in lexicon.VAGUE_NOUNS for w in text.casefold().split()):
                found.setdefault(text.casefold(), text)
        subjects |= {t.text for i, t in enumerate(tokens) if asked_subject(tokens, i)}
        verbs += [lexicon.VERB_BASE.get(t.low, t.low) for t in tokens if t.tag == "V"]
    for verb in verbs:
        if len(found) < 3 and verb not in _PLAIN_VERBS:
            found.setdefault(verb, verb)
    others = [text for text in found.values() if text not in subjects]
    chosen = others if len(others) > 1 else [*others, *(text for text in found.values() if text in subjects)]
    return tuple(text[:120] for text in chosen[:MOST])


_PLAIN_VERBS = frozenset("go get do make have take use say tell think know want like need give come see mean".split())


def canonical(phrase: str) -> str:
    """Last word singular, possessive endings off, no article; capitals kept on names."""
    words = [word.removesuffix("'s").removesuffix("’s").strip("'’") for word in phrase.split()]
    words = [word for word in words if word]
    if words and words[-1].islower():
        words[-1] = singular(words[-1])
    return " ".join(words)


async def question(value: QuestionInput, tools: Tools) -> QuestionOutput:
    """Topic heading of fewer than 8 words (the question's content words in order) and its keywords."""
    content = [
        token.text
        for sentence in split_sentences(value.question)
        for token in analyse(sentence).tokens
        if token.tag in "PNDV"
        and token.low not in _PLAIN_VERBS
        and lexicon.VERB_BASE.get(token.low) not in _PLAIN_VERBS
    ]
    heading = " ".join(content[:7])[:200] or value.question.strip()[:200]
    return QuestionOutput(topic_desc=heading, keywords=list(question_keywords(value.question)))
