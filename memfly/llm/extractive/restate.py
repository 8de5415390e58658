"""A turn restated so that it can be read on its own (task `ingest`): names for "I", small talk out, captions folded in.

Rules, sentence by sentence: first person singular becomes the speaker's name with the verb agreeing, "we" becomes the
name "and others"; the second person stays; a sentence without a subject gets the name in front; a sentence of
greetings and praise alone is dropped; a shared image adds "<name> shared a photo of ...". A context in which the
speaker's name would not occur starts with "<name>: ". Expressions of time are never touched.

With preceding turns (`ingest.window` > 0) a turn that refers back (it, that, they, there, ...), is short, or follows a
question gets the keyword phrases of those turns appended, newest first, as "[about: ...]". Words only, no statements.
"""

from __future__ import annotations

import re
from functools import lru_cache

from memfly.llm.extractive import lexicon
from memfly.llm.extractive.analysis import analyse, fold, split_sentences
from memfly.llm.extractive.base import Tools
from memfly.llm.extractive.keywords import is_small_talk, turn_keywords
from memfly.tasks.ingest import IngestInput, IngestOutput

REFERENCES = frozenset("it its that this those these there them they he she him her his one ones here".split())
SHORT = 8
"""A turn with fewer content roots counts as short: it leans on what came before."""
MOST_REFERENTS = 6

_CONTRACTED = {"i'm": "is", "i've": "has", "i'll": "will", "i'd": "would", "im": "is", "ive": "has"}
_AGREE = {"am": "is", "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "was": "was"}
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|\s+|[^\w\s]|_")
_CAPTION_OPENING = re.compile(
    r"^(?:an?|the)?\s*(?:photo|photography|picture|image|close up)\s*(?:of|showing)\s+", re.IGNORECASE
)
_ADDRESS = re.compile(
    r"^(?:(?:(?:hey|hi|hello|thanks|thank you|wow|congrats)(?: [A-Z][\w'’]*)?"
    r"|yeah|yep|yup|yes|no|nope|oh|well|btw|by the way|whoa|woah)[,!.]+\s*"
    r"|(?-i:[A-Z][a-z'’]+[,!]\s+(?=I\b)))+",
    re.IGNORECASE,
)
_RENDERED = re.compile(
    r"^(?P<speaker>[^:\n]{1,40}): (?P<text>.*?)(?: \[shares a photo of: (?P<caption>.*)\])?$", re.DOTALL
)


def restate(speaker: str, text: str, caption: str | None) -> str:
    """The self-contained restatement; never empty for a turn that says anything."""
    kept = [s for s in split_sentences(text) if not is_small_talk(s)]
    parts = [restate_sentence(speaker, sentence) for sentence in kept]
    if caption:
        thing = _CAPTION_OPENING.sub("", caption.strip())
        parts.append(f"{speaker} shared a photo of {thing}.")
    if not parts:
        parts = [restate_sentence(speaker, text.strip())] if text.strip() else []
    context = " ".join(part if part[-1] in '.!?…"”' else part + "." for part in parts if part)
    return context if speaker in context else f"{speaker}: {context}"


@lru_cache(maxsize=50_000)
def restate_sentence(speaker: str, sentence: str) -> str:
    """One sentence with the first person replaced (see the module's rules)."""
    sentence = _ADDRESS.sub("", sentence) or sentence
    pieces = _WORD.findall(sentence)
    out: list[str] = []
    agree = False
    for piece in pieces:
        low = fold(piece)
        new, agree = _replace(speaker, piece, low, agree)
        out.append(new)
    text = "".join(out).strip()
    if _lacks_subject(sentence):
        text = _with_subject(speaker, text)
    return text[:1].upper() + text[1:]


def _replace(speaker: str, piece: str, low: str, agree: bool) -> tuple[str, bool]:
    """(replacement, whether the next verb has to agree with a name in front of it)."""
    if low in _CONTRACTED:
        return f"{speaker} {_CONTRACTED[low]}", False
    if low == "i" and piece in ("I", "i"):
        return speaker, True
    plain = {
        "me": speaker,
        "myself": speaker,
        "my": f"{speaker}'s",
        "mine": f"{speaker}'s",
        "we": f"{speaker} and others",
        "us": f"{speaker} and others",
        "our": f"{speaker}'s",
        "ours": f"{speaker}'s",
        "ourselves": "themselves",
        "we're": f"{speaker} and others are",
        "we've": f"{speaker} and others have",
        "we'll": f"{speaker} and others will",
        "we'd": f"{speaker} and others would",
    }
    if low in plain and not (low == "us" and piece == "US"):
        return plain[low], False
    if not agree or piece.isspace():
        return piece, agree
    if low in _AGREE:
        return _AGREE[low], False
    if low in lexicon.VERB_BASE.values() and low in lexicon.VERB_BASE and low not in lexicon.PAST_FORMS:
        return third_person(piece), False
    return piece, low in (
        "really",
        "just",
        "also",
        "still",
        "always",
        "never",
        "totally",
        "usually",
        "often",
        "definitely",
    )


def third_person(verb: str) -> str:
    """ "love" -> "loves", "try" -> "tries", "teach" -> "teaches"."""
    if verb.endswith(("s", "x", "ch", "sh", "go")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def _lacks_subject(sentence: str) -> bool:
    """Starts with a verb that has lost its "I": "Went to ...", "Gonna ...", "Been reading ...", "Researching ..."."""
    words = [t for t in analyse(sentence).tokens if t.tag != "."]
    if not words or sentence.rstrip().endswith("?"):
        return False
    first = words[0].low
    if first in ("gonna", "been", "just", "gotta", "wanna"):
        return len(words) > 2 and words[1].low not in lexicon.PRONOUNS
    if first in lexicon.PAST_FORMS and first in lexicon.IRREGULAR and first != "thought":
        return True
    if first.endswith("ed") and first in lexicon.PAST_FORMS:
        return True
    finite = any(
        t.low in ("is", "are", "was", "were", "can", "helps", "makes", "has") or t.low.endswith("'s") for t in words
    )
    finite = finite or any(t.low in lexicon.PAST_FORMS and t.tag == "V" for t in words)
    return first.endswith("ing") and first in lexicon.VERB_BASE and not finite


def _with_subject(speaker: str, text: str) -> str:
    first = text.split(maxsplit=1)[0].lower()
    rest = text[:1].lower() + text[1:]
    link = "is " if first.endswith("ing") or first == "gonna" else "has " if first == "been" else ""
    return f"{speaker} {link}{rest}"


def referents(speaker: str, text: str, preceding: tuple[str, ...]) -> tuple[str, ...]:
    """Keyword phrases of the preceding turns that this turn may refer to, newest turn first; may be empty."""
    found = [analyse(s) for s in split_sentences(text)]
    roots = frozenset().union(*(s.roots for s in found)) if found else frozenset()
    refers = any(t.low.split("'")[0] in REFERENCES for s in found for t in s.tokens)
    asked = bool(preceding) and preceding[-1].split(" [shares a photo of:")[0].rstrip().endswith("?")
    if not (refers or asked or len(roots) < SHORT):
        return ()
    own = set(turn_keywords(speaker, text, ""))
    out: dict[str, None] = {}
    for line in reversed(preceding):
        parsed = _RENDERED.match(line)
        if parsed:
            keys = turn_keywords(parsed["speaker"], parsed["text"], parsed["caption"] or "")
            out.update(dict.fromkeys(k for k in keys if k not in own and k != speaker))
    return tuple(out)[:MOST_REFERENTS]


async def ingest(value: IngestInput, tools: Tools) -> IngestOutput:
    """Keywords and restatement of one turn, within the output's bounds."""
    caption = value.caption or ""
    keywords = turn_keywords(value.speaker, value.text, caption)
    context = restate(value.speaker, value.text, value.caption)
    about = referents(value.speaker, value.text, value.preceding)
    if about:
        context = f"{context[:1700]} [about: {', '.join(about)[:280]}]"
    return IngestOutput(keywords=list(keywords), context=context[:2000])
