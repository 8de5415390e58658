"""Word-overlap measures and the tokenisations under them, shared by all scoring protocols.

Each measure gives the same floating-point number as the library it stands for (nltk's sentence BLEU with smoothing
method 1, rouge-score with the stemmer on, nltk's METEOR); tests compare them bit by bit. BLEU and ROUGE are computed
here because the libraries count every n-gram once per requested order and stem every word anew, which made up nearly
all of a run's scoring time. Tokenisation, stemming and METEOR stay library calls; texts and stems repeat across
protocols and controls, so both are cached. This module knows nothing about categories, references or protocols.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from nltk.corpus import wordnet
from nltk.stem.porter import PorterStemmer
from nltk.translate.meteor_score import meteor_score

from eval.scoring.treebank import tokenize

BLEU_WEIGHTS: tuple[tuple[float, ...], ...] = ((1.0,), (0.5, 0.5), (0.33, 0.33, 0.33), (0.25, 0.25, 0.25, 0.25))
"""A-MEM's weights for BLEU-1 to BLEU-4 (its utils.py). Those of BLEU-3 add up to 0.99; published numbers use them."""

_EPSILON = 0.1  # what smoothing method 1 puts in place of a zero count
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_SET_F1_BLANKS = str.maketrans(".,!?", "    ")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the|and)\b")

_porter = PorterStemmer()


@lru_cache(maxsize=1 << 16)
def word_tokens(text: str) -> tuple[str, ...]:
    """The tokens of `nltk.word_tokenize(text)`; see `eval.scoring.treebank`."""
    return tuple(tokenize(text))


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Porter stem in nltk's default mode; lower-cases."""
    return str(_porter.stem(word))


@lru_cache(maxsize=1 << 16)
def rouge_tokens(text: str) -> tuple[str, ...]:
    """rouge-score's default tokens: lower-cased runs of a-z and 0-9, stemmed when longer than three characters."""
    words = _NOT_ALPHANUMERIC.sub(" ", text.lower()).split()
    return tuple(stem(word) if len(word) > 3 else word for word in words)


@lru_cache(maxsize=1 << 16)
def normalise(text: str) -> str:
    """LoCoMo's normal form: lower case, ASCII punctuation deleted, "a", "an", "the" and "and" dropped, blanks squeezed.

    "self-care" becomes "selfcare", "an" becomes ""; typographic quotes and dashes stay (task_eval/evaluation.py).
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def set_f1(prediction: str, reference: str) -> float:
    """A-MEM's F1 on sets of lower-cased words, with . , ! ? read as blanks; no stemming, repeats ignored."""
    ours, theirs = (set(side.lower().translate(_SET_F1_BLANKS).split()) for side in (prediction, reference))
    return f_measure(len(ours & theirs), len(ours), len(theirs))


def f_measure(overlap: int, prediction: int, reference: int) -> float:
    """Harmonic mean of overlap/prediction and overlap/reference (counts); 0 when there is no overlap."""
    if overlap == 0:
        return 0.0
    precision, recall = overlap / prediction, overlap / reference
    return 2 * precision * recall / (precision + recall)


def bleu(prediction: Sequence[str], reference: Sequence[str]) -> tuple[float, float, float, float]:
    """BLEU-1 to BLEU-4 of token sequences against one reference, each in [0, 1].

    Clipped n-gram precision, smoothing method 1 (a zero count becomes 0.1), brevity penalty; 0 for all four when not one
    word overlaps. Exact matches shorter than n words stay below 1.
    """
    counts = [_clipped_matches(prediction, reference, n) for n in range(1, 5)]
    if counts[0][0] == 0:
        return 0.0, 0.0, 0.0, 0.0
    logs = [math.log((matches or _EPSILON) / total) for matches, total in counts]
    shorter = len(prediction) <= len(reference)
    brevity = math.exp(1 - len(reference) / len(prediction)) if shorter else 1.0
    b1, b2, b3, b4 = (
        brevity * math.exp(math.fsum(weight * log for weight, log in zip(weights, logs, strict=False)))
        for weights in BLEU_WEIGHTS
    )
    return b1, b2, b3, b4


def rouge(prediction: Sequence[str], reference: Sequence[str]) -> tuple[float, float, float]:
    """F-measures of ROUGE-1, ROUGE-2 and ROUGE-L of token sequences, each in [0, 1]; 0 where a side has no n-gram."""
    unigrams, bigrams = (_clipped_matches(prediction, reference, n)[0] for n in (1, 2))
    m, n = len(prediction), len(reference)
    return (
        f_measure(unigrams, m, n),
        f_measure(bigrams, m - 1, n - 1),
        f_measure(_longest_common_subsequence(prediction, reference) if unigrams else 0, m, n),
    )


def meteor(prediction: str, reference: str) -> float | None:
    """nltk's METEOR in [0, 1] on whitespace tokens, or None where WordNet is not installed: unavailable is not 0."""
    if not wordnet_available():
        return None
    return float(meteor_score([reference.split()], prediction.split()))


@lru_cache(maxsize=1)
def wordnet_available() -> bool:
    """Whether nltk finds its `wordnet` corpus. Looked up once per process; nothing is downloaded."""
    try:
        wordnet.ensure_loaded()
    except LookupError:
        return False
    return True


def _clipped_matches(prediction: Sequence[str], reference: Sequence[str], n: int) -> tuple[int, int]:
    """(n-grams of the prediction that the reference has too, each at most as often as there; all its n-grams, at least 1)."""
    total = len(prediction) - n + 1
    if total <= 0 or len(reference) < n:
        return 0, max(1, total)
    if n == 1:
        ours, theirs = Counter(prediction), Counter(reference)
        return sum(min(count, theirs[gram]) for gram, count in ours.items() if gram in theirs), total
    grams = Counter(zip(*(prediction[i:] for i in range(n)), strict=False))
    known = Counter(zip(*(reference[i:] for i in range(n)), strict=False))
    return sum(min(count, known[gram]) for gram, count in grams.items() if gram in known), total


def _longest_common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length, by the two-row table; O(len(a) * len(b)) time, O(len(b)) memory."""
    row = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            above = row[j]
            row[j] = diagonal + 1 if word == other else max(above, row[j - 1])
            diagonal = above
    return row[-1]
