"""Words, stems, phrases and token counts, shared by indices, systems and scorers' neighbours. No model, no download."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_HALF = re.compile(r"[\ud800-\udfff]")

STOPWORDS = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his how i if in into is it its "
    "me my of on or our she so than that the their them then there these they this to too up us was we were what when "
    "where which who whom why will with would you your s t re ve ll d m".split()
)


def words(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; an apostrophe inside a word is kept."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


@cache
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer  # a second of imports, paid only when something is stemmed

    return PorterStemmer()


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Porter stem of one lower-cased word, its possessive ending removed first."""
    return str(_stemmer().stem(word.removesuffix("'s")))


def stems(text: str) -> list[str]:
    """Stems of all words; the unit of BM25."""
    return [stem(word) for word in words(text)]


def content_stems(text: str) -> list[str]:
    """Stems of the words that are no stop words."""
    return [stem(word) for word in words(text) if word not in STOPWORDS]


def whole(value: Any) -> Any:
    """A JSON value with every half of a surrogate pair in its texts (a cut emoji escape, say) replaced by U+FFFD: no
    file, request or tokenizer could take it."""
    if isinstance(value, str):
        return value if value.isascii() or not _HALF.search(value) else _HALF.sub("\ufffd", value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


@cache
def _encoding() -> Any:
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")


_PIECE = 50_000
"""Characters tokenized at once: the tokenizer refuses more than 200,000 tokens, and a character takes 4 at most."""


def _encode(text: str) -> list[int]:
    encode = _encoding().encode_ordinary
    return [token for start in range(0, len(text), _PIECE) for token in encode(text[start : start + _PIECE])]


@lru_cache(maxsize=50_000)
def count_tokens(text: str) -> int:
    """Tokens in the o200k_base vocabulary (GPT-4o's), the unit of every token column the harness counts itself."""
    return len(_encode(text))


def cut_tokens(text: str, n: int) -> str:
    """The first `n` tokens of a text (o200k_base); a character cut in two at the end is left out."""
    if n <= 0:
        return ""
    tokens = _encode(text)
    return text if len(tokens) <= n else str(_encoding().decode(tokens[:n])).rstrip("\ufffd")


def split_tokens(text: str, size: int) -> list[str]:
    """The text in consecutive pieces of `size` tokens (o200k_base); joined, they are the text again.

    A piece ends up to 3 tokens early where it would otherwise end inside a character. Raises ValueError for size < 4,
    because one character may take 4 tokens.
    """
    if size < 4:
        raise ValueError(f"pieces of {size} tokens; give 4 or more")
    tokens, pieces, start = _encode(text), [], 0
    while start < len(tokens):
        end = min(start + size, len(tokens))
        while end < len(tokens) and end - start > 1 and _inside_character(tokens[start:end]):
            end -= 1
        pieces.append(str(_encoding().decode(tokens[start:end])))
        start = end
    return pieces


def _inside_character(tokens: list[int]) -> bool:
    return str(_encoding().decode(tokens[-4:])).endswith("\ufffd")
