"""Category 5 read both ways: did the answer refuse, and did it fall for the trap?

LoCoMo's adversarial questions have no true answer. The official scorer gives 1 to a refusal; A-MEM's compares with the
trap, so being fooled scores 1. Reported alone either misleads, hence both readings go with every score. No
model is asked; these are rules on the answer's text.
"""

from __future__ import annotations

import re

from eval.categories import Category
from eval.scoring.protocol import Scores
from eval.scoring.text import normalise, set_f1

REFUSAL = "Not mentioned in the conversation"
"""The refusal that the two-option question of both harnesses offers (task_eval/gpt_utils.py, test_advanced.py)."""

FOOLED_F1 = 0.5
"""Set F1 with the trap from which an answer counts as having fallen for it. Half is where the shared words weigh at least
as much as all words that only one side has; the answer need not copy the trap's wording."""

READINGS = ("refused", "refused_tolerant", "fooled")
"""The metrics read off the answer's text here, which no scorer and no reference has a part in."""

OFFICIAL_PHRASES = ("no information available", "not mentioned")

_TOLERANT = re.compile(
    r"""
      \b no \s (?:specific\s|relevant\s|such\s|explicit\s)? (?:information|mention|record|evidence) \b
    | (?:\bnot|\bnever|n't) \s (?:(?:explicitly|specifically|directly|been|be)\s)*
      (?:mention(?:ed)?|specif(?:y|ied)|stated?|discuss(?:ed)?|indicated?|provided?) \b
    | (?:(?:\bnot|n't)\s(?:enough|sufficient)|\binsufficient) \s (?:\w+\s)? (?:information|context|evidence|detail)
    | \b (?:cannot|can\snot|can't|could\snot|couldn't) \s be \s (?:determined|answered|inferred|known|found) \b
    | \b (?:cannot|can\snot|can't|unable\sto) \s (?:determine|answer|infer|tell|say) \b
    | \b (?:conversation|context|text|dialogue|memory|memories) \s (?:does|do|did) (?:\snot|n't) \b
    | ^ \s* (?:i\s(?:do\snot|don't)\sknow | i(?:'m|\sam)\snot\ssure | unknown | unanswerable | n/?a | not\sapplicable
      | not\s(?:known|available|given) ) (?: \b | $ )
    """,
    re.VERBOSE,
)


def refused(prediction: str) -> bool:
    """The official test: the lower-cased answer contains "no information available" or "not mentioned", to the letter."""
    lowered = prediction.lower()
    return any(phrase in lowered for phrase in OFFICIAL_PHRASES)


def refused_tolerant(prediction: str) -> bool:
    """The official test widened to the usual other ways of refusing ("I don't know", "does not mention", "unknown").

    White space and apostrophes are unified first. Of locomo10's gold answers and traps only the two traps that read "Not
    mentioned" pass it (tested), so on that data it takes no real answer for a refusal.
    """
    text = " ".join(prediction.lower().replace("’", "'").split())
    return refused(text) or _TOLERANT.search(text) is not None


def fooled(prediction: str, trap: str) -> bool:
    """Whether an answer repeats the trap: equal to it after LoCoMo's normalisation, or A-MEM's set F1 >= FOOLED_F1.

    A refusal is never fooled, so refused (tolerant), fooled and neither add up to 1; two traps of locomo10 read "Not
    mentioned", and an answer equal to those counts as a refusal.
    """
    if not prediction.strip() or refused_tolerant(prediction):
        return False
    same = normalise(prediction) == normalise(trap) != ""
    return same or set_f1(prediction, trap) >= FOOLED_F1


def readings(prediction: str, trap: str | None, category: Category) -> Scores:
    """`refused`, `refused_tolerant` (0 or 1, in every category: in 1-4 a refusal is a miss) and `fooled` (None outside
    category 5, or without a trap)."""
    trapped = category is Category.ADVERSARIAL and trap is not None
    return {
        "refused": float(refused(prediction)),
        "refused_tolerant": float(refused_tolerant(prediction)),
        "fooled": float(fooled(prediction, trap or "")) if trapped else None,
    }


def zero_readings(category: Category) -> Scores:
    """The readings of a question that got no answer: it neither refused nor was fooled."""
    return {
        "refused": 0.0,
        "refused_tolerant": 0.0,
        "fooled": 0.0 if category is Category.ADVERSARIAL else None,
    }
