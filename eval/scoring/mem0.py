"""mem0's word metrics, without its LLM judge: A-MEM's set F1 and BLEU on categories 1 to 4.

After mem0's evaluation/metrics/utils.py. Category 5 is skipped: every metric is None there and no average contains it.
`as_is` turns a missing answer into the word "None", as the original does; `fixed` reads it as empty.
"""

from __future__ import annotations

from eval.categories import Category
from eval.scoring import adversarial
from eval.scoring.amem import word_overlap
from eval.scoring.protocol import Protocol, Scores, as_text

METRICS = ("exact_match", "f1", "bleu1", "bleu2", "bleu3", "bleu4")


class Mem0(Protocol):
    """Keys of a score: `METRICS`, each in [0, 1], and `adversarial.readings`; `METRICS` are None in category 5."""

    name = "mem0"

    def score(
        self, prediction: str | int | None, reference: str | int | None, trap: str | None, category: Category
    ) -> Scores:
        missing = "None" if self.mode == "as_is" else ""
        ours, theirs = (missing if side is None else str(side).strip() for side in (prediction, reference))
        if category is Category.ADVERSARIAL:
            scores: Scores = dict.fromkeys(METRICS, None)
        elif ours and theirs:
            scores = word_overlap(ours, theirs)
        else:
            scores = dict.fromkeys(METRICS, 0.0)
        return scores | adversarial.readings(as_text(prediction), trap, category)

    def zeros(self, category: Category) -> Scores:
        zero = None if category is Category.ADVERSARIAL else 0.0
        return dict.fromkeys(METRICS, zero) | adversarial.zero_readings(category)
