"""Words, stems, phrases and token counts, shared by indices, systems and scorers' neighbours. No model, no download."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from nltk.stem.porter import PorterStemmer

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_STEMMER = PorterStemmer()

STOPWORDS = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his how i if in into is it its "
    "me my of on or our she so than that the their them then there these they this to too up us was we were what when "
    "where which who whom why will with would you your s t re ve ll d m".split()
)


def words(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; an apostrophe inside a word is kept."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Porter stem of one lower-cased word, its possessive ending removed first."""
    return str(_STEMMER.stem(word.removesuffix("'s")))


def stems(text: str) -> list[str]:
    """Stems of all words; the unit of BM25."""
    return [stem(word) for word in words(text)]


def content_stems(text: str) -> list[str]:
    """Stems of the words that are no stop words."""
    return [stem(word) for word in words(text) if word not in STOPWORDS]


@cache
def _encoding() -> Any:
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")


@lru_cache(maxsize=50_000)
def count_tokens(text: str) -> int:
    """Tokens in the o200k_base vocabulary (GPT-4o's), the unit of every token column the harness counts itself."""
    return len(_encoding().encode_ordinary(text))
