"""Canonical keywords: one form for "Pottery classes", "pottery class" and "pottery  class.".

Ours (MemFly leaves it open): casefold, punctuation and white space folded, last word singular by rule (no lemma
dictionary), then exact match. The optional merging of near-duplicates by cosine is in `memfly.ingest`, since it needs
embeddings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_FOLD = re.compile(r"[^\w']+|_")
_KEEP_S = ("ss", "us", "is", "as", "os", "'s")
_NO_PLURALS = frozenset({"news", "lens", "series", "species"})
_MAX_LENGTH = 120


def singular(word: str) -> str:
    """One key for a folded word and its plural, by suffix rules: "stories" and "story" -> "story", "cats" -> "cat".

    Where the plural does not tell how the singular ends, both lose the ending: "movies" and "movie" -> "movy",
    "headaches" and "headache" -> "headach". So it is a key, not always a word.
    """
    if word in _NO_PLURALS:
        return word
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "zes", "ches", "shes", "oes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(_KEEP_S):
        return word[:-1]
    if len(word) > 3 and word.endswith("ie"):
        return word[:-2] + "y"
    if len(word) > 3 and word.endswith(("xe", "ze", "che", "she", "oe")):
        return word[:-1]
    return word


def canonical(phrase: str) -> str:
    """Key of a phrase; empty when nothing of it is left (such keywords are dropped)."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", phrase.replace("\u2019", "'")).casefold())
    cut = " ".join(_FOLD.sub(" ", text).split())[:_MAX_LENGTH]
    folded = [word for raw in cut.split() if (word := raw.strip("'"))]
    if folded:
        folded[-1] = singular(folded[-1])
    while folded and folded[0] in ("a", "an", "the"):
        folded = folded[1:]
    return " ".join(folded)


def canonical_map(phrases: Iterable[str]) -> dict[str, str]:
    """Canonical key -> phrase as first written, order kept, empty ones dropped."""
    found: dict[str, str] = {}
    for phrase in phrases:
        key = canonical(phrase)
        if key:
            found.setdefault(key, " ".join(phrase.split())[:_MAX_LENGTH])
    return found
