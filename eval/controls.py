"""Answers that no memory produced, scored like any run: what a table's numbers mean can be read off beside them.

"Always refuse" wins category 5 under LoCoMo's scorer and loses it under A-MEM's, the trap does the reverse, and a fair coin
between the two sits at half. No model is asked; the one random control is seeded per question, and the coin is its exact
expected value, not a draw.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.categories import Category
from eval.scoring.adversarial import REFUSAL
from eval.scoring.aggregate import Cell, ScoredRow, aggregate, score_answer
from eval.scoring.protocol import Protocol, Scores

Answer = str | int | None
Mixture = Sequence[tuple[float, Answer]]
"""Predictions with their probabilities, which add up to 1; scores are averaged with these weights."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with all that is known about its answer."""

    id: str
    question: str
    answer: Answer
    trap: str | None
    category: Category


CONTROLS: Mapping[str, str] = {
    "gold": "the gold answer; in category 5, where nothing is true, the refusal",
    "empty": "the empty answer",
    "refuse": f'"{REFUSAL}"',
    "trap": "the trap (category 5 only)",
    "coin": "the refusal or the trap, even odds, as exact expected value (category 5 only)",
    "echo": "the question itself",
    "other_gold": "the gold answer of another question, drawn at random from those of the same category",
}
"""Control answers by name, and what each says."""


def predictions(items: Sequence[Item], *, seed: int = 0) -> dict[str, dict[str, Mixture]]:
    """Control name to question id to what that control answers; questions it has no answer for are absent.

    `other_gold` draws from another question of the category (in category 5: another trap), by a stream keyed by `seed`
    and the question's id, so it depends on nothing else but the questions; absent when there is no other.
    """
    answers: dict[str, dict[str, Mixture]] = {control: {} for control in CONTROLS}
    pools = {category: [item for item in items if item.category is category] for category in Category}
    for item in items:
        adversarial = item.category is Category.ADVERSARIAL
        certain: dict[str, Answer] = {
            "gold": REFUSAL if adversarial else item.answer,
            "empty": "",
            "refuse": REFUSAL,
            "echo": item.question,
        }
        for control, answer in certain.items():
            answers[control][item.id] = [(1.0, answer)]
        if adversarial and item.trap is not None:
            answers["trap"][item.id] = [(1.0, item.trap)]
            answers["coin"][item.id] = [(0.5, REFUSAL), (0.5, item.trap)]
        others = [other for other in pools[item.category] if other.id != item.id]
        if others:
            drawn = random.Random(f"{seed}/{item.id}/other_gold").choice(others)
            answers["other_gold"][item.id] = [(1.0, drawn.trap if adversarial else drawn.answer)]
    return answers


def score_controls(items: Sequence[Item], protocol: Protocol, *, seed: int = 0) -> dict[str, dict[str, Cell]]:
    """Control -> its cells (`aggregate.CELLS`), those that it has questions in; scored and averaged as a run's answers are."""
    by_id = {item.id: item for item in items}
    table = {}
    for control, mixtures in predictions(items, seed=seed).items():
        asked = {id: by_id[id].category for id in mixtures}
        rows = [_score(protocol, by_id[id], mixture) for id, mixture in mixtures.items()]
        table[control] = {name: cell for name, cell in aggregate(asked, rows, protocol.zeros).items() if cell.n}
    return table


def _score(protocol: Protocol, item: Item, mixture: Mixture) -> ScoredRow:
    expected: Scores = {}
    unscorable = None
    for weight, answer in mixture:
        row = score_answer(protocol, item.id, answer, item.answer, item.trap, item.category)
        unscorable = unscorable or row.unscorable
        for metric, value in (row.scores or {}).items():
            known = expected.get(metric, 0.0)
            expected[metric] = None if value is None or known is None else known + weight * value
    return ScoredRow(item.id, expected, unscorable=unscorable)
