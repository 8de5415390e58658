"""The cells of a table: a mean with its clustered error bar, and which cells of a column are best, second, or cannot be told
from the best by a paired test. Knows no layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.compare import LOWER_IS_BETTER, has_best
from eval.compare import cells as cell_predicates
from eval.report.model import Cell, Column, Mark
from eval.runs import Scored
from eval.scoring.protocol import Protocol
from eval.stats import cluster_mean, holm, sign_flip


def parts(key: str) -> tuple[str, str]:
    """A column's cell and metric."""
    cell, _, metric = key.partition(".")
    return cell, metric


def cell_ids(scored: Scored, cell: str, without: frozenset[str]) -> list[str]:
    """The cell's questions but for those in `without`, in the run's order."""
    belongs = cell_predicates(scored.category)[cell]
    return [id for id in scored.category if id not in without and belongs(id)]


def tokens_cell(scored: Scored, without: frozenset[str] = frozenset()) -> Cell:
    """Mean tokens of evidence shown per answered question."""
    shown = [tokens for id, tokens in scored.tokens.items() if id not in without]
    return Cell(sum(shown) / len(shown) if shown else None)


def score_cell(scored: Scored, cell: str, metric: str, without: frozenset[str] = frozenset()) -> Cell:
    """Mean with its clustered error bar; and the mean without failed questions, where that is another number."""
    ids = cell_ids(scored, cell, without)
    values = scored.values(metric, ids)
    if not values:
        return Cell(None)
    estimate = cluster_mean(list(values.values()), [scored.conversation[id] for id in values])
    failed = len(scored.failed() & values.keys())
    left = scored.values(metric, ids, errors=False) if failed else {}
    return Cell(
        value=estimate.mean,
        se=estimate.se,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        n_error=failed,
        without_errors=sum(left.values()) / len(left) if left else None,
    )


def ranked(protocol: Protocol, cell: str, metric: str) -> bool:
    """Whether the highest value of a column is the best one."""
    return metric not in LOWER_IS_BETTER and has_best(protocol, cell, metric)


def marked(
    rows: Sequence[dict[str, Cell]],
    scored: Sequence[Scored],
    columns: Sequence[Column],
    without: frozenset[str],
    alpha: float,
) -> tuple[list[dict[str, Cell]], list[str]]:
    """The rows with best, second, and what a paired test cannot tell from the best; and a note where none could."""
    found = [dict(row) for row in rows]
    notes: dict[str, None] = {}
    for column in columns:
        means = [row[column.key].value if column.key in row else None for row in found]
        ranks = sorted({v for v in means if v is not None}, reverse=True)
        if not column.ranked or len([v for v in means if v is not None]) < 2:
            continue
        cell, metric = parts(column.key)
        each = [one.values(metric, cell_ids(one, cell, without)) for one in scored]
        best = scored[means.index(ranks[0])]
        tied, note = tied_with(means.index(ranks[0]), each, best.conversation, alpha)
        if note:
            notes[note] = None
        for i, value in enumerate(means):
            mark: Mark = "best" if value == ranks[0] else "second" if len(ranks) > 1 and value == ranks[1] else ""
            if value is not None:
                found[i][column.key] = replace(found[i][column.key], mark=mark, tied=i in tied)
    return found, list(notes)


def tied_with(
    best: int, values: Sequence[Mapping[str, float]], conversation: Mapping[str, str], alpha: float
) -> tuple[set[int], str]:
    """Which others of the rows (question id -> value; none: no row) the test does not tell from `values[best]`; and why it
    could not tell any, if so."""
    top = values[best]
    rivals = [i for i, other in enumerate(values) if i != best and other.keys() == top.keys()]
    if not rivals:
        return set(), "runs of different questions are not tested against each other"
    clusters = [conversation[id] for id in top]
    tests = [sign_flip([top[id] - values[i][id] for id in top], clusters) for i in rivals]
    if min(test.smallest for test in tests) * len(tests) > alpha:
        conversations = len(set(conversation.values()))
        few = f"{len(tests) + 1} rows and {conversations} conversation{'s' if conversations > 1 else ''}"
        return set(), f"no ≈ in some columns: with {few} no difference could reach p = {alpha:g} after Holm"
    return {i for i, p in zip(rivals, holm([t.p for t in tests]), strict=True) if p > alpha}, ""
