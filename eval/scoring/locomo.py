"""LoCoMo's official question-answering score: one F1 per question, by rules that depend on the category.

After LoCoMo's task_eval/evaluation.py. Categories 2, 3 and 4 use a stemmed multiset F1, 3 after cutting the gold answer at
its first ';'; 1 splits both sides at commas and averages the best F1 per gold piece; 5 is 1 when the answer refuses in the
official words, else 0. Gold answers scored against themselves give 1 in 1, 2 and 4 and 0.9274 in 3 (eleven have a ';').

`as_is` raises OriginalFailure where the original crashes: a prediction that is no string, and a missing reference, which
released code meets on 444 of the 446 category-5 questions before it looks at the category. `fixed` reads a missing
prediction as "" and needs no reference in category 5.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from eval.categories import Category
from eval.scoring import adversarial
from eval.scoring.protocol import OriginalFailure, Protocol, Scores, as_text
from eval.scoring.text import f_measure, normalise, stem


class Locomo(Protocol):
    """Keys of a score: `f1` in [0, 1] (category 5: 0 or 1) and `adversarial.readings`."""

    name = "locomo"

    def score(
        self, prediction: str | int | None, reference: str | int | None, trap: str | None, category: Category
    ) -> Scores:
        if self.mode == "as_is":
            _fail_like_the_original(prediction, reference)
        ours = as_text(prediction)
        f1 = official_f1(ours, as_text(trap if reference is None else reference), category)
        return {"f1": f1} | adversarial.readings(ours, trap, category)

    def zeros(self, category: Category) -> Scores:
        return {"f1": 0.0} | adversarial.zero_readings(category)


def official_f1(prediction: str, reference: str, category: Category) -> float:
    """The official score of one answer. `reference` is not looked at in category 5."""
    if category is Category.ADVERSARIAL:
        return float(adversarial.refused(prediction))
    if category is Category.MULTI_HOP:
        return multi_answer_f1(prediction, reference)
    if category is Category.OPEN_DOMAIN:
        reference = reference.split(";")[0].strip()
    return stemmed_f1(prediction, reference)


def stemmed_f1(prediction: str, reference: str) -> float:
    """F1 on multisets of Porter stems of the normalised texts; 0 without overlap, also when both are empty."""
    ours, theirs = stems(prediction), stems(reference)
    overlap = (Counter(ours) & Counter(theirs)).total()
    return f_measure(overlap, len(ours), len(theirs))


def multi_answer_f1(prediction: str, reference: str) -> float:
    """Mean over the comma-separated gold pieces of the best F1 any predicted piece reaches: extra pieces cost nothing."""
    ours, gold = prediction.split(","), reference.split(",")
    best = [max(stemmed_f1(piece, wanted) for piece in ours) for wanted in gold]
    return sum(best) / len(best)


@lru_cache(maxsize=1 << 16)
def stems(text: str) -> tuple[str, ...]:
    """Porter stems of the normalised text's words, in order."""
    return tuple(stem(word) for word in normalise(text).split())


def _fail_like_the_original(prediction: str | int | None, reference: str | int | None) -> None:
    if reference is None:
        raise OriginalFailure(
            "locomo as_is: the question has no 'answer', on which the original raises KeyError; use mode 'fixed'",
            original="KeyError",
        )
    if not isinstance(prediction, str):
        raise OriginalFailure(
            f"locomo as_is: prediction {prediction!r} is no string, on which the original raises AttributeError; "
            "use mode 'fixed'",
            original="AttributeError",
        )
