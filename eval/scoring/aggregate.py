"""From scored answers to a table's cells: per category, over all questions, and without category 5. One function for all.

Every average is over the questions that were asked. Questions that failed and questions never answered are counted, and
both readings are given: as zero, and left out. Questions on which the original scorer crashes have no score in any run, so
they are in no average. Error bars are `eval.stats`'s work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval.categories import Category
from eval.scoring import adversarial
from eval.scoring.protocol import OriginalFailure, Protocol, Scores, as_text
from memfly.errors import DataError

AVERAGE, AVERAGE4 = "average", "average4"
CELLS = (*(category.label for category in Category), AVERAGE, AVERAGE4)


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One asked question's outcome: its `scores`, or what went wrong in `error` (no scores also counts as an error).

    `unscorable` names the exception on which the original scorer ends here (`as_is` only), with an answer or without: then
    only the readings of category 5 have a value.
    """

    id: str
    scores: Mapping[str, float | None] | None
    error: str | None = None
    unscorable: str | None = None

    @property
    def answered(self) -> bool:
        return self.scores is not None and self.error is None


def score_answer(
    scorer: Protocol,
    id: str,
    prediction: str | int | None,
    reference: str | int | None,
    trap: str | None,
    category: Category,
) -> ScoredRow:
    """The row of an answer, whether the protocol can score it or crashes like the original."""
    try:
        return ScoredRow(id, scorer.score(prediction, reference, trap, category))
    except OriginalFailure as failure:
        blank = dict.fromkeys(scorer.zeros(category), None)
        read = adversarial.readings(as_text(prediction), trap, category)
        return ScoredRow(id, blank | read, unscorable=failure.original)


def counted_scores(row: ScoredRow | None, zeros: Scores) -> Mapping[str, float | None]:
    """What a question counts for: its scores; `zeros` without an answer, but for what the original could not score."""
    if row is not None and row.answered:
        return row.scores or {}
    if row is None or row.unscorable is None:
        return zeros
    return {name: value if name in adversarial.READINGS else None for name, value in zeros.items()}


@dataclass(frozen=True, slots=True)
class Cell:
    """The questions of one category, or of several. `n` = scored + `n_error` + `n_unscored`.

    A metric that is None for a scored row (not applicable, unavailable, or left unscored by a judge) is in no average;
    `count` says how many questions each average of `mean` rests on, `count_scored` those of `mean_scored`.
    """

    n: int
    n_error: int
    n_unscored: int
    """Asked, but with no row at all: the run is unfinished."""
    n_unscorable: int
    """The original scorer crashes on them; failed ones are in `n_error`, too."""
    mean: dict[str, float | None]
    """Metric to mean with errors and unscored questions as zero; None where no question has a value."""
    mean_scored: dict[str, float | None]
    """The same with them left out."""
    count: dict[str, int]
    count_scored: dict[str, int]


def aggregate(
    asked: Mapping[str, Category], rows: Iterable[ScoredRow], zeros: Callable[[Category], Scores]
) -> dict[str, Cell]:
    """Cells by name, in the order of `CELLS`: the five categories, `average` (all) and `average4` (categories 1-4).

    `asked` maps the id of every question of the run to its category, so averages are micro averages over questions.
    `zeros(category)` is `Protocol.zeros`: what an error or a missing answer gets in `Cell.mean`; metrics it does not name
    are averaged over the rows that have them. Raises DataError for a row that was not asked, or an id that comes twice.
    """
    by_id: dict[str, ScoredRow] = {}
    for row in rows:
        if row.id not in asked:
            raise DataError(f"scored question {row.id!r} was never asked; score a run against its own question list")
        if row.id in by_id:
            raise DataError(f"question {row.id!r} is scored twice; keep one final record per question")
        by_id[row.id] = row
    groups = {category.label: [category] for category in Category}
    groups |= {AVERAGE: list(Category), AVERAGE4: [c for c in Category if c is not Category.ADVERSARIAL]}
    return {name: _cell(asked, by_id, zeros, categories) for name, categories in groups.items()}


def _cell(
    asked: Mapping[str, Category],
    rows: Mapping[str, ScoredRow],
    zeros: Callable[[Category], Scores],
    categories: Sequence[Category],
) -> Cell:
    ids = [id for id, category in asked.items() if category in categories]
    found = {id: rows[id] for id in ids if id in rows}
    counted = {id: counted_scores(found.get(id), zeros(asked[id])) for id in ids}
    answered = [id for id, row in found.items() if row.answered]
    metrics = list(dict.fromkeys(name for scores in counted.values() for name in scores))
    every = {name: _values(counted.values(), name) for name in metrics}
    scored = {name: _values([counted[id] for id in answered], name) for name in metrics}
    return Cell(
        n=len(ids),
        n_error=len(found) - len(answered),
        n_unscored=len(ids) - len(found),
        n_unscorable=sum(row.unscorable is not None for row in found.values()),
        mean={name: _mean(values) for name, values in every.items()},
        mean_scored={name: _mean(values) for name, values in scored.items()},
        count={name: len(values) for name, values in every.items()},
        count_scored={name: len(values) for name, values in scored.items()},
    )


def _values(scores: Iterable[Mapping[str, float | None]], metric: str) -> list[float]:
    return [value for each in scores if (value := each.get(metric)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
