"""Our BLEU, ROUGE and tokens against the libraries they stand for, bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer

from eval.scoring.text import BLEU_WEIGHTS, bleu, rouge, rouge_tokens, word_tokens
from eval.scoring.treebank import tokenize, tokenize_in_full

_SMOOTHING = SmoothingFunction().method1
_ROUGE = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)

_tokens = st.lists(st.sampled_from(["the", "dog", "ran", "to", ",", "May"]), max_size=12)
_pieces = st.sampled_from(
    "great No Mr. U.S. he 's 'tis ' \" '' `` “ ” ’ — -- ... . ! ? , ; : ( ] $5 1,000 3.5 can't cannot gonna wanna gimme a 5 "
    "p.m. Jan. dogs' 'a' é 日本 running flies Übung".split()
)
_texts = st.lists(st.tuples(_pieces, st.sampled_from(["", " ", "  ", "\n"])), max_size=10).map(
    lambda parts: "".join(piece + blank for piece, blank in parts)
)


@settings(max_examples=400, deadline=None)
@given(_tokens, _tokens)
def test_bleu_is_nltks_to_the_bit(prediction: list[str], reference: list[str]) -> None:
    expected = tuple(
        float(sentence_bleu([reference], prediction, weights=weights, smoothing_function=_SMOOTHING))
        for weights in ((1, 0, 0, 0), *BLEU_WEIGHTS[1:])
    )
    assert bleu(prediction, reference) == expected


@settings(max_examples=300, deadline=None)
@given(_texts, _texts)
def test_rouge_is_rouge_scores_to_the_bit(prediction: str, reference: str) -> None:
    theirs = _ROUGE.score(reference, prediction)
    expected = tuple(float(theirs[kind].fmeasure) for kind in ("rouge1", "rouge2", "rougeL"))
    assert rouge(rouge_tokens(prediction), rouge_tokens(reference)) == expected


@settings(max_examples=400, deadline=None)
@given(_texts | st.text(max_size=30))
def test_tokenising_with_shortcuts_gives_the_same_tokens(text: str) -> None:
    for variant in (text, text.lower()):
        assert tokenize(variant) == tokenize_in_full(variant)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("Mr. Smith went. He left.", ["Mr.", "Smith", "went", ".", "He", "left", "."]),
        ("the store is doing great. !", ["the", "store", "is", "doing", "great", ".", "!"]),
        ("'Bring it on Home'", ["'", "Bring", "it", "on", "Home", "'"]),
        ("Game 7 of the '16 Finals", ["Game", "7", "of", "the", "'", "16", "Finals"]),
        ('she said "no"', ["she", "said", "``", "no", "''"]),
        ("She can't, I cannot.", ["She", "ca", "n't", ",", "I", "can", "not", "."]),
        ("1,000 miles, $5", ["1,000", "miles", ",", "$", "5"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert list(word_tokens(text)) == tokens
