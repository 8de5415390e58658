"""Error bars and tests for scores that cluster by conversation. Pure functions on numbers; draws are seeded.

Questions about one conversation share its memory, so they are not independent: the conversation is the cluster, and there
are only ten. Three choices follow.

*Standard error*: CR2 (Bell and McCaffrey 2002), each cluster's residual sum divided by sqrt(1 - its share of the questions),
which makes the variance unbiased when questions are in fact independent. *Interval*: Student's t with the Satterthwaite
degrees of freedom of the same paper. For G equal clusters both are the textbook ones, the standard error of G cluster means
and G - 1 degrees of freedom; unequal sizes lower them (8.6 instead of 9 over all of locomo10). In the simulations of
tests/eval/test_stats.py nominal 95 % intervals so made cover 93-97 %, at intra-conversation correlations from 0 to 0.2, both
with locomo10's sizes and with one conversation holding 40 times as many questions as another, where CR1 with G - 1 degrees
falls to 87 %. Right-or-wrong scores at a correlation of 0.2 and such extreme sizes are the limit: 92 %.

*Test*: exact sign flips of whole conversations, which needs no normality; ten conversations allow no p below 2/1024, and
fewer than six none below 0.05.

There is no cluster bootstrap: with ten clusters its percentile interval is too short.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from memfly.errors import DataError

Floats = NDArray[np.float64]

BETTER, WORSE, SAME = "better", "worse", "not distinguishable"
EXACT_CLUSTERS = 16
"""Up to so many conversations all sign patterns are counted; beyond, SIGN_DRAWS seeded ones."""
SIGN_DRAWS = 100_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A micro mean over `n` values in `clusters` conversations, in the values' unit. With one conversation there is no
    error bar: `se`, `low`, `high` and `df` are None."""

    mean: float
    se: float | None
    low: float | None
    high: float | None
    df: float | None
    n: int
    clusters: int
    level: float


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Two-sided p of the sign-flip test, the smallest p these clusters allow, and whether all patterns were counted."""

    p: float
    smallest: float
    exact: bool


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Where a score's variance comes from (squared units; estimates below zero are cut to zero).

    `seed`: one question, several seeds (None with one seed, when `question` contains it). `question`: questions of one
    conversation. `conversation`: conversations. `seed_sd`: standard deviation of the runs' means, None with one.
    """

    seed: float | None
    question: float
    conversation: float | None
    seeds: int
    seed_sd: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Run A against run B on the same questions. `difference` is A - B; a positive one is better unless the metric is one
    where lower is better, which `verdict` takes into account (A is better / worse / not distinguishable)."""

    cell: str
    a: float
    b: float
    difference: Estimate
    test: SignFlip
    p_mcnemar: float | None
    """Exact McNemar p where every value of both runs is 0 or 1, else None. Ignores the clusters."""
    detectable: float | None
    """The smallest true difference that a two-sided test at 5 % would find in 80 of 100 such experiments."""
    p_holm: float | None = None
    verdict: str | None = None
    note: str = ""


def cluster_mean(values: ArrayLike, clusters: Sequence[str], *, level: float = 0.95) -> Estimate:
    """Micro mean of `values` with its cluster-robust interval; `clusters[i]` is the conversation of `values[i]`.

    Raises DataError without values, or with differing lengths.
    """
    sums, sizes = _by_cluster(values, clusters)
    mean, se = mean_and_error(sums, sizes)
    total = int(sizes.sum())
    if len(sizes) < 2:
        return Estimate(float(mean), None, None, None, None, total, len(sizes), level)
    df = satterthwaite(sizes)
    half = float(stats.t.ppf(0.5 + level / 2, df)) * float(se)
    return Estimate(float(mean), float(se), float(mean) - half, float(mean) + half, df, total, len(sizes), level)


def mean_and_error(sums: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Micro mean and CR2 standard error from cluster sums, shape (..., clusters), and sizes, shape (clusters,).

    Both have shape (...). The error is nan for a single cluster.
    """
    total = sizes.sum()
    share = sizes / total
    mean = sums.sum(axis=-1) / total
    if len(sizes) < 2:
        return mean, np.full_like(mean, np.nan)
    residuals = sums - sizes * mean[..., None]
    return mean, np.sqrt((residuals**2 / (1 - share)).sum(axis=-1)) / total


def satterthwaite(sizes: Floats) -> float:
    """Degrees of freedom of the CR2 variance of a mean, in (1, clusters - 1]; at least two clusters.

    The variance is a sum of squares of adjusted residual sums; their covariance C under independent questions gives
    trace(C)^2 / trace(C C). Equal sizes give clusters - 1.
    """
    share = sizes / sizes.sum()
    adjust = 1 / np.sqrt(1 - share)
    covariance = (np.diag(sizes) - np.outer(sizes, share)) * np.outer(adjust, adjust)
    return float(np.trace(covariance) ** 2 / (covariance**2).sum())


def sign_flip(differences: ArrayLike, clusters: Sequence[str], *, seed: int = 0) -> SignFlip:
    """Test that paired differences are symmetric about zero, flipping the sign of whole conversations.

    The statistic is the absolute micro mean. Exact over all 2^G patterns up to EXACT_CLUSTERS conversations.
    """
    sums, _ = _by_cluster(differences, clusters)
    count = len(sums)
    observed = abs(sums.sum())
    slack = 1e-12 * np.abs(sums).sum()
    if count <= EXACT_CLUSTERS:
        # The statistic is the same for a pattern and its opposite, so the first sign may stay as it is.
        signs = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=count - 1)], dtype=np.float64)
        p = float(np.mean(np.abs(signs @ sums) >= observed - slack))
        return SignFlip(p, 1 / len(signs), exact=True)
    signs = np.random.default_rng(seed).choice(np.array([1.0, -1.0]), size=(SIGN_DRAWS, count))
    hits = int(np.sum(np.abs(signs @ sums) >= observed - slack))
    return SignFlip((hits + 1) / (SIGN_DRAWS + 1), 1 / (SIGN_DRAWS + 1), exact=False)


def mcnemar(a: ArrayLike, b: ArrayLike) -> float | None:
    """Exact two-sided McNemar p of paired 0/1 values (binomial on the pairs that differ); None if others occur."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not np.isin(np.concatenate([left, right]), (0.0, 1.0)).all():
        return None
    only_a, only_b = int(np.sum(left > right)), int(np.sum(right > left))
    if only_a + only_b == 0:
        return 1.0
    return float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: they bound the chance of any false finding in the family."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def detectable_difference(estimate: Estimate, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """The true mean that a two-sided t test at `alpha` would find with chance `power`, given the estimate's error bar."""
    if estimate.se is None or estimate.df is None:
        return None
    significant, powerful = (float(stats.t.ppf(q, estimate.df)) for q in (1 - alpha / 2, power))
    return (significant + powerful) * estimate.se


def average_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Question id to its mean over runs that differ in the seed alone. Raises DataError if their questions differ."""
    ids = _same_ids(runs)
    return {id: float(np.mean([run[id] for run in runs])) for id in ids}


def variance_components(runs: Sequence[Mapping[str, float]], conversation: Mapping[str, str]) -> VarianceComponents:
    """Variance between seeds, questions and conversations: moment estimates of the nested random-effects model.

    `runs` has one mapping from question id to value per seed; `conversation` maps those ids to clusters.
    """
    ids = _same_ids(runs)
    values = np.array([[run[id] for run in runs] for id in ids], dtype=np.float64)
    seeds = values.shape[1]
    seed = float(values.var(axis=1, ddof=1).mean()) if seeds > 1 else None
    means = values.mean(axis=1)
    sums, sizes = _by_cluster(means, [conversation[id] for id in ids])
    total, count = float(sizes.sum()), len(sizes)
    within = float((means**2).sum() - (sums**2 / sizes).sum()) / max(total - count, 1)
    between = None
    if count > 1:
        spread = float((sums**2 / sizes).sum() - sums.sum() ** 2 / total) / (count - 1)
        effective_size = (total - float((sizes**2).sum()) / total) / (count - 1)
        between = max(0.0, (spread - within) / effective_size)
    seed_sd = float(values.mean(axis=0).std(ddof=1)) if seeds > 1 else None
    return VarianceComponents(seed, max(0.0, within - (seed or 0.0) / seeds), between, seeds, seed_sd)


def compare(
    a: Mapping[str, float],
    b: Mapping[str, float],
    conversation: Mapping[str, str],
    cells: Mapping[str, Callable[[str], bool]],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> list[Comparison]:
    """Paired comparison of two runs in every cell, without verdicts; give the whole family to `with_verdicts`.

    `a` and `b` map the same question ids to values (average several seeds first); `cells` maps a cell's name to whether a
    question id belongs to it; cells without questions are left out. Raises DataError when the two runs' questions differ.
    """
    ids = _same_ids([a, b])
    result = []
    for cell, belongs in cells.items():
        chosen = [id for id in ids if belongs(id)]
        if not chosen:
            continue
        left, right = (np.array([run[id] for id in chosen], dtype=np.float64) for run in (a, b))
        clusters = [conversation[id] for id in chosen]
        difference = cluster_mean(left - right, clusters, level=level)
        result.append(
            Comparison(
                cell=cell,
                a=float(left.mean()),
                b=float(right.mean()),
                difference=difference,
                test=sign_flip(left - right, clusters, seed=seed),
                p_mcnemar=mcnemar(left, right),
                detectable=detectable_difference(difference),
            )
        )
    return result


def with_verdicts(
    family: Sequence[Comparison], *, alpha: float = 0.05, higher_is_better: bool = True
) -> list[Comparison]:
    """The same comparisons with Holm's p over all of them, a verdict on A at `alpha`, and a note where none was possible."""
    adjusted = holm([comparison.test.p for comparison in family])
    result = []
    for comparison, p in zip(family, adjusted, strict=True):
        verdict = SAME
        if p <= alpha:
            verdict = BETTER if (comparison.difference.mean > 0) == higher_is_better else WORSE
        smallest = comparison.test.smallest
        note = ""
        if smallest > alpha:
            note = f"{comparison.difference.clusters} conversations allow no p below {smallest:.2g}"
        elif smallest * len(family) > alpha:
            note = (
                f"a family of {len(family)} needs p <= {alpha / len(family):.2g} first; the smallest is {smallest:.2g}"
            )
        result.append(replace(comparison, p_holm=p, verdict=verdict, note=note))
    return result


def _by_cluster(values: ArrayLike, clusters: Sequence[str]) -> tuple[Floats, Floats]:
    """Sum and number of values of each cluster, clusters in the order of their names."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) != len(clusters) or len(numbers) == 0:
        raise DataError(
            f"statistics need one conversation per value and some values: got {numbers.shape}, {len(clusters)}"
        )
    _, index = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)
    return np.bincount(index, weights=numbers).astype(np.float64), np.bincount(index).astype(np.float64)


def _same_ids(runs: Sequence[Mapping[str, float]]) -> list[str]:
    """The question ids all runs share, sorted; DataError unless all have the same."""
    if not runs or not runs[0]:
        raise DataError("no scores to compare; score the runs first")
    first = runs[0].keys()
    for run in runs[1:]:
        if run.keys() != first:
            example = min(run.keys() ^ first)
            raise DataError(
                f"the runs answer different questions ({len(first)} and {len(run)}; {example!r} is in one alone): "
                "compare runs of the same questions"
            )
    return sorted(first)
