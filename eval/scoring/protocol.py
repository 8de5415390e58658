"""What a scoring protocol is: a pure function from one answer to named numbers, in one of two modes.

`as_is` keeps the original scorer's bugs, for parity with published numbers; `fixed` carries the repairs that
docs/protocols.md lists. The protocols themselves are in `amem`, `locomo` and `mem0`. Averages are `aggregate`'s work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

from eval.categories import Category
from memfly.errors import MemflyError

Mode = Literal["as_is", "fixed"]
MODES: tuple[Mode, ...] = get_args(Mode)

Scores = dict[str, float | None]
"""Metric name to value; None where the metric does not apply or is unavailable, which is never the same as 0."""


class OriginalFailure(MemflyError):
    """In `as_is` mode, the original scorer would have crashed on this input; `original` names its exception type."""

    def __init__(self, message: str, *, original: str):
        super().__init__(message)
        self.original = original


class Protocol(ABC):
    """One way to score an answer. Stateless: the same arguments always give the same numbers."""

    name: str
    """"amem", "locomo" or "mem0"."""
    trap_metrics: tuple[str, ...] = ()
    """Metrics that compare a category-5 answer with the trap: more of them there means more fooled, not better."""

    def __init__(self, mode: Mode = "fixed"):
        self.mode: Mode = mode

    @abstractmethod
    def score(
        self, prediction: str | int | None, reference: str | int | None, trap: str | None, category: Category
    ) -> Scores:
        """All metrics of one answer; always the same keys, all of `zeros(category)`'s.

        `reference` is the question's `answer` (LoCoMo has six ints, and none for 444 of the category-5 questions), `trap`
        its `adversarial_answer`, None outside category 5. Raises OriginalFailure in `as_is` mode where the original
        scorer crashes.
        """

    @abstractmethod
    def zeros(self, category: Category) -> Scores:
        """What a question without an answer (an error) gets when errors count as zero; None where not applicable."""


def as_text(value: str | int | None) -> str:
    """The answer as text; None becomes ""."""
    return "" if value is None else str(value)
