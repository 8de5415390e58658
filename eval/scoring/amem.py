"""A-MEM's metrics: the protocol behind the F1 and BLEU-1 of A-MEM's and MemFly's tables.

After `calculate_metrics` in the utils.py of AgenticMemory and A-mem. In category 5 the reference is the trap, so a high
score there means the system was fooled; that is the protocol, and both modes keep it. The readings of `adversarial` stand
beside it. BERTScore is not computed.

`as_is` keeps one bug: an answer or reference that is falsy (0, not only "") scores 0 throughout, and a blank-only answer
still goes to the embedding metric. `fixed` scores 0 like any other answer and treats blank-only as empty. Both modes report
METEOR and SBERT as None where WordNet or an embedder is missing; the original said 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.categories import Category
from eval.scoring import adversarial
from eval.scoring.protocol import Mode, Protocol, Scores, as_text
from eval.scoring.text import bleu, meteor, rouge, rouge_tokens, set_f1, word_tokens, wordnet_available

Embed = Callable[[Sequence[str]], NDArray[np.floating]]
"""Texts to vectors, shape (texts, dimensions); any length, zero vectors allowed."""

LEXICAL = ("exact_match", "f1", "bleu1", "bleu2", "bleu3", "bleu4", "rouge1_f", "rouge2_f", "rougeL_f")


class AMem(Protocol):
    """Keys of a score: `LEXICAL`, `meteor`, `sbert_similarity` (all in [0, 1], the last in [-1, 1]), `answer_length` in
    words, and `adversarial.readings`. Never raises. `embed` is called once per answer with the two texts."""

    name = "amem"
    trap_metrics = (*LEXICAL, "meteor", "sbert_similarity")

    def __init__(self, mode: Mode = "fixed", embed: Embed | None = None):
        super().__init__(mode)
        self._embed = embed

    def score(
        self, prediction: str | int | None, reference: str | int | None, trap: str | None, category: Category
    ) -> Scores:
        """Category 5 compares with `trap`, or with `reference` where only that is given (pairs scored elsewhere)."""
        if category is Category.ADVERSARIAL and trap is not None:
            reference = trap
        ours, theirs = as_text(prediction).strip(), as_text(reference).strip()
        scores = self._compare(ours, theirs) if self._present(prediction) and self._present(reference) else self._zero()
        scores["answer_length"] = float(len(ours.split()))
        return scores | adversarial.readings(ours, trap, category)

    def zeros(self, category: Category) -> Scores:
        return self._zero() | {"answer_length": None} | adversarial.zero_readings(category)

    def _present(self, value: str | int | None) -> bool:
        return bool(value) if self.mode == "as_is" else as_text(value).strip() != ""

    def _zero(self) -> Scores:
        zero: Scores = dict.fromkeys(LEXICAL, 0.0)
        zero["meteor"] = 0.0 if wordnet_available() else None
        zero["sbert_similarity"] = 0.0 if self._embed is not None else None
        return zero

    def _compare(self, prediction: str, reference: str) -> Scores:
        scores = lexical_scores(prediction, reference)
        scores["meteor"] = meteor(prediction, reference)
        scores["sbert_similarity"] = None if self._embed is None else cosine(*self._embed([prediction, reference]))
        return scores


def word_overlap(prediction: str, reference: str) -> Scores:
    """exact_match (case-blind), set F1 and BLEU-1 to BLEU-4: what A-MEM's and mem0's scorers share."""
    b1, b2, b3, b4 = bleu(word_tokens(prediction.lower()), word_tokens(reference.lower()))
    return {
        "exact_match": float(prediction.lower() == reference.lower()),
        "f1": set_f1(prediction, reference),
        "bleu1": b1,
        "bleu2": b2,
        "bleu3": b3,
        "bleu4": b4,
    }


def lexical_scores(prediction: str, reference: str) -> Scores:
    """The metrics of `LEXICAL`, for texts without outer blanks."""
    r1, r2, rl = rouge(rouge_tokens(prediction), rouge_tokens(reference))
    return word_overlap(prediction, reference) | {"rouge1_f": r1, "rouge2_f": r2, "rougeL_f": rl}


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Cosine of two vectors, in [-1, 1]; 0 when one of them is zero."""
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.dot(a, b)) / norm if norm > 0 else 0.0
