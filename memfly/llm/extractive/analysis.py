"""Sentences, tokens, coarse word classes and noun phrases of English text, by rule and cached per text.

No model and no corpus: word lists (`lexicon`), suffixes, capitals and the word in front decide. Everything is a pure
function of the text. What the phrases are used for is up to the task modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from memfly.llm.extractive import lexicon
from memfly.text import STOPWORDS, stem

_LIKERS = frozenset("i you we they to do does don't doesn't didn't did would i'd really also".split())
MAX_CHARS = 60_000
"""Texts are read up to this length (characters); a turn has some hundreds, a whole conversation is split in lines first."""

_TOKEN = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St)\.(?=\s+[A-Z])|[^\W_]+(?:['’&./+-][^\W_]+)*'?|[^\w\s]")
_BREAK = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|\n+|\s+[-–—]{1,2}\s+(?=[A-Z])")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:mr|mrs|ms|dr|st|vs|etc|e\.g|i\.e|no|jr|sr|prof|[a-z])\.$", re.IGNORECASE)
_NOUN_ENDING = re.compile(r".{2,}(?:tion|ment|ness|ity|ship|ism|ist|hood|age|ance|ence|ology|graphy|ery|ette|ware)s?$")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")

ClassTag = str
"""F function word or adverb, V verb, A evaluative adjective, P proper noun, D number, N other content word, . mark."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    low: str
    start: int
    end: int
    tag: ClassTag


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and all that is computed once for it."""

    text: str
    tokens: tuple[Token, ...]
    roots: frozenset[str]
    """Roots of the content words (see `root`)."""
    names: frozenset[str]
    """Lower-cased proper-noun tokens, without persons who are only addressed ("Thanks, Mel!")."""
    numbers: frozenset[str]
    negated: bool
    question: bool


@lru_cache(maxsize=100_000)
def root(word: str) -> str:
    """The form words are compared in: irregular verb forms and everyday variants folded, then Porter-stemmed."""
    word = word.removesuffix("'s").removesuffix("'")
    word = lexicon.SAME_WORD.get(word, word)
    return stem(lexicon.IRREGULAR.get(word, word))


def fold(word: str) -> str:
    """Lower case with a plain apostrophe."""
    return word.lower().replace("’", "'")


@lru_cache(maxsize=20_000)
def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences in order, stripped; breaks after . ! ? and at line ends, not after titles and initials."""
    text = text[:MAX_CHARS]
    out: list[str] = []
    start = 0
    for match in _BREAK.finditer(text):
        piece = text[start : match.start()]
        if "\n" not in match.group() and _ABBREVIATION.search(piece[-8:]):
            continue
        piece = text[start : match.end()].strip(" \t\r\n-–—")
        if piece:
            out.append(piece)
        start = match.end()
    last = text[start:].strip(" \t\r\n-–—")
    return (*out, last) if last else tuple(out)


@lru_cache(maxsize=100_000)
def analyse(sentence: str) -> Sentence:
    """Tokens and derived sets of one sentence."""
    tokens = _tokenise(sentence[:MAX_CHARS])
    content = [token for token in tokens if token.tag in "VANPD" and token.low not in STOPWORDS]
    return Sentence(
        text=sentence,
        tokens=tokens,
        roots=frozenset(root(token.low) for token in content) - {""},
        names=frozenset(
            token.low.removesuffix("'s")
            for position, token in enumerate(tokens)
            if token.tag == "P" and not vocative(tokens, position)
        ),
        numbers=frozenset(_number(token.low) for token in tokens if token.tag == "D"),
        negated=any(token.low in lexicon.NEGATIONS or token.low.endswith("n't") for token in tokens),
        question=sentence.rstrip().endswith("?"),
    )


def vocative(tokens: tuple[Token, ...], position: int) -> bool:
    """Is this a name between marks, greetings or the sentence's ends, as in "Thanks, Mel!"?"""
    if tokens[position].tag != "P" or tokens[position].low.endswith("'s"):
        return False
    before = tokens[position - 1] if position else None
    after = tokens[position + 1] if position + 1 < len(tokens) else None
    opens = before is None or before.text in ",!.-" or before.low in lexicon.GREETINGS - lexicon.FUNCTION
    opens = opens or (before is not None and before.low in ("hey", "hi", "thanks", "wow", "yeah", "hello", "yep"))
    return opens and (after is None or after.tag == ".") and not (before is None and after is None)


def _number(word: str) -> str:
    return str(lexicon.NUMBER_WORDS.get(word, word))


def _tokenise(sentence: str) -> tuple[Token, ...]:
    out: list[Token] = []
    opening = True
    matches = list(_TOKEN.finditer(sentence))
    for position, match in enumerate(matches):
        word = match.group()
        following = matches[position + 1].group() if position + 1 < len(matches) else ""
        out.append(Token(word, fold(word), match.start(), match.end(), _tag(word, out, opening, following)))
        opening = word in '.!?:"“(' or (opening and not word[0].isalnum())
    return tuple(out)


def _tag(word: str, before: list[Token], opening: bool, following: str) -> ClassTag:
    low = fold(word)
    if not word[0].isalnum():
        return "."
    if word[0].isdigit() or (low in lexicon.NUMBER_WORDS and low != "one"):
        return "D"
    if low == "like" and before and before[-1].low in _LIKERS:
        return "V"
    if low in lexicon.FUNCTION and not (low == "may" and word == "May" and not opening):
        return "F"
    if word[0].isupper() and _proper(word, low, opening, following, before):
        return "P"
    if low in lexicon.VERB_BASE and not _nominal(low, before):
        return "V"
    if low in lexicon.EVALUATIVE:
        return "A"
    if low.endswith("ly") and len(low) > 4 and low not in ("family", "italy", "july", "assembly", "butterfly"):
        return "F"
    return "N"


def _proper(word: str, low: str, opening: bool, following: str, before: list[Token]) -> bool:
    """Capital inside a sentence, or at its start when nothing speaks for an ordinary word."""
    if (len(word) > 1 and word.isupper()) or word[-1] == ".":
        return True
    if before and before[-1].tag == "P" and not opening:
        return True
    known = low in lexicon.VERB_BASE or low in lexicon.EVALUATIVE or low in lexicon.VAGUE_NOUNS
    capital_next = following[:1].isupper() and fold(following) not in lexicon.FUNCTION
    if not opening:
        return not known or capital_next
    if known or low in lexicon.GREETINGS or _NOUN_ENDING.match(low) or low.endswith(("ing", "ly", "ed", "s")):
        return capital_next and not known
    return True


def _nominal(low: str, before: list[Token]) -> bool:
    """Is this verb form used as a noun? The words in front decide: determiner, adjective, noun compound, list."""
    base = lexicon.VERB_BASE[low]
    gerund = low.endswith("ing")
    if not gerund and base not in lexicon.NOUN_OR_VERB and low not in lexicon.NOUN_OR_VERB:
        return False
    if low in lexicon.PAST_FORMS and low not in lexicon.NOUN_OR_VERB:
        return False
    if not before:
        return gerund
    last = before[-1]
    if gerund:
        return last.low not in lexicon.AUXILIARIES and last.low not in ("not", "just", "been")
    if last.low == "to" or last.low in lexicon.AUXILIARIES or last.low in lexicon.NEGATIONS:
        return False
    if last.low in lexicon.DETERMINERS or last.low in lexicon.PREPOSITIONS or last.low.endswith("'s"):
        return True
    if last.tag in "AD":
        return True
    if last.tag in "NP":
        return low == base and (last.tag == "N" or last.text.isupper())
    return last.low in ("and", ",", "or") and len(before) > 1 and before[-2].tag == "N"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase of a sentence: `start` and `end` are token positions, `proper` if it holds a proper noun."""

    text: str
    start: int
    end: int
    proper: bool


@lru_cache(maxsize=100_000)
def phrases(sentence: str) -> tuple[Phrase, ...]:
    """Noun phrases in order: runs of P, N, D and A words, cut at function words, verbs and marks; articles left out.

    "of" joins two phrases when a capital follows ("School of Music"); hyphens stay inside a token.
    """
    tokens = analyse(sentence).tokens
    out: list[Phrase] = []
    start: int | None = None
    for position in range(len(tokens) + 1):
        inside = position < len(tokens) and _continues(tokens, position, start)
        if inside and start is None:
            start = position
        elif not inside and start is not None:
            phrase = _phrase(sentence, tokens, start, position)
            if phrase is not None:
                out.append(phrase)
            start = position if position < len(tokens) and tokens[position].tag in "PNDA" else None
    return tuple(out)


def _continues(tokens: tuple[Token, ...], position: int, start: int | None) -> bool:
    token = tokens[position]
    if token.tag in "PND" or token.tag == "A":
        if start is None or position == start:
            return True
        before = tokens[position - 1]
        if before.tag == "N" and token.tag in "AD":
            return False
        return not (token.tag in "NA" and asked_subject(tokens, position - 1))
    joins = token.low in ("of", "&", "the", "for") and start is not None and tokens[position - 1].tag == "P"
    ahead = next((t for t in tokens[position + 1 : position + 3] if t.low != "the"), None)
    return joins and ahead is not None and ahead.tag == "P"


def asked_subject(tokens: tuple[Token, ...], position: int) -> bool:
    """A person's name between an auxiliary and the rest of a question ("does Anna bake"): no phrase goes over it."""
    token = tokens[position]
    return (
        token.tag == "P"
        and token.text[1:].islower()
        and not token.low.endswith("'s")
        and position > 0
        and tokens[position - 1].low in lexicon.AUXILIARIES
    )


def _phrase(sentence: str, tokens: tuple[Token, ...], start: int, end: int) -> Phrase | None:
    while start < end and tokens[start].tag == "A":
        start += 1
    while end > start and tokens[end - 1].tag in "AF":
        end -= 1
    run = tokens[start:end]
    if not any(token.tag in "PN" for token in run):
        return None
    text = sentence[run[0].start : run[-1].end].strip("'’")
    return Phrase(text, start, end, any(token.tag == "P" for token in run)) if text else None


def quoted(text: str) -> tuple[str, ...]:
    """What stands in double quotes, without them."""
    return tuple(match.strip() for match in _QUOTED.findall(text[:MAX_CHARS]))


def singular(word: str) -> str:
    """Singular of a lower-cased noun, by rule ("stories" -> "story", "boxes" -> "box", "glass" unchanged)."""
    if word in lexicon.IRREGULAR_PLURALS:
        return lexicon.IRREGULAR_PLURALS[word]
    if len(word) < 4 or word.endswith(("ss", "us", "is", "'s")) or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses", "zzes")):
        return word[:-2]
    return word[:-1]
