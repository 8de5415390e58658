"""Statistics against closed forms, against brute-force matrix algebra, and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as reference

from eval import stats
from memfly.errors import DataError

Floats = NDArray[np.float64]

LOCOMO10 = np.array([199, 105, 193, 260, 242, 158, 190, 239, 196, 204], dtype=np.float64)
OPEN_DOMAIN = np.array([13, 8, 11, 14, 7, 13, 10, 13, 7], dtype=np.float64)
SKEWED = np.array([400, 200, 150, 100, 80, 60, 40, 30, 20, 10], dtype=np.float64)


def _names(sizes: list[int]) -> list[str]:
    return [f"c{g}" for g, size in enumerate(sizes) for _ in range(size)]


def test_equal_clusters_give_the_t_interval_of_the_cluster_means() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(10, 7)) + rng.normal(size=(10, 1))
    estimate = stats.cluster_mean(values.ravel(), _names([7] * 10))
    means = values.mean(axis=1)
    expected = reference.ttest_1samp(means, 0).confidence_interval(0.95)
    assert estimate.se == pytest.approx(means.std(ddof=1) / np.sqrt(10))
    assert estimate.df == pytest.approx(9)
    assert estimate.low == pytest.approx(expected.low)
    assert estimate.high == pytest.approx(expected.high)
    assert (estimate.n, estimate.clusters) == (70, 10)


def test_clusters_of_one_give_the_ordinary_standard_error() -> None:
    values = np.array([0.0, 1.0, 0.5, 0.25, 1.0])
    estimate = stats.cluster_mean(values, _names([1] * 5))
    assert estimate.se == pytest.approx(values.std(ddof=1) / np.sqrt(5))
    assert estimate.df == pytest.approx(4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 10_000))
def test_cr2_and_satterthwaite_are_bell_and_mccaffreys_by_brute_force(sizes: list[int], seed: int) -> None:
    n = sum(sizes)
    y = np.random.default_rng(seed).normal(size=n)
    design = np.ones((n, 1))
    bread = np.linalg.inv(design.T @ design)
    residual_maker = np.eye(n) - design @ bread @ design.T
    rows, start = [], 0
    for size in sizes:
        block = slice(start, start + size)
        start += size
        hat = design[block] @ bread @ design[block].T
        eigenvalues, vectors = np.linalg.eigh(np.eye(size) - hat)
        adjust = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        rows.append((bread @ design[block].T @ adjust @ residual_maker[block]).ravel())
    weights = np.array(rows)  # one row per cluster; the variance is the sum of squares of weights @ y
    moments = weights @ weights.T
    estimate = stats.cluster_mean(y, _names(sizes))
    assert estimate.mean == pytest.approx(y.mean())
    assert estimate.se == pytest.approx(np.sqrt(((weights @ y) ** 2).sum()))
    assert estimate.df == pytest.approx(np.trace(moments) ** 2 / (moments**2).sum())


def test_one_cluster_has_no_error_bar() -> None:
    estimate = stats.cluster_mean([0.0, 1.0], ["a", "a"])
    assert (estimate.mean, estimate.se, estimate.low, estimate.df) == (0.5, None, None, None)
    assert stats.detectable_difference(estimate) is None


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], ["a", "b"])])
def test_values_and_clusters_must_match(values: list[float], clusters: list[str]) -> None:
    with pytest.raises(DataError):
        stats.cluster_mean(values, clusters)


def _coverage(sums: Floats, sizes: Floats, truth: float) -> float:
    mean, se = stats.mean_and_error(sums, sizes)
    half = reference.t.ppf(0.975, stats.satterthwaite(sizes)) * se
    return float(np.mean(np.abs(mean - truth) <= half))


@pytest.mark.parametrize("sizes", [LOCOMO10, OPEN_DOMAIN, SKEWED], ids=["locomo10", "open_domain", "skewed"])
@pytest.mark.parametrize("correlation", [0.0, 0.01, 0.05, 0.2])
def test_nominal_95_percent_intervals_cover_93_to_97_percent(sizes: Floats, correlation: float) -> None:
    """20,000 experiments with normal conversation effects and question noise; Monte Carlo error 0.15 points."""
    rng = np.random.default_rng(20)
    shape = (20_000, len(sizes))
    shared = rng.normal(size=shape) * np.sqrt(correlation) * sizes
    own = rng.normal(size=shape) * np.sqrt((1 - correlation) * sizes)
    assert 0.93 <= _coverage(shared + own, sizes, 0.0) <= 0.97


@pytest.mark.parametrize("sizes", [LOCOMO10, OPEN_DOMAIN], ids=["locomo10", "open_domain"])
@pytest.mark.parametrize("correlation", [0.01, 0.05])
def test_coverage_holds_for_right_or_wrong_answers(sizes: Floats, correlation: float) -> None:
    rng = np.random.default_rng(21)
    truth, strength = 0.3, 1 / correlation - 1
    rates = rng.beta(truth * strength, (1 - truth) * strength, size=(20_000, len(sizes)))
    sums = rng.binomial(sizes.astype(int), rates).astype(np.float64)
    assert 0.93 <= _coverage(sums, sizes, truth) <= 0.97


def test_cr1_with_one_degree_less_than_clusters_would_not_cover_very_unequal_sizes() -> None:
    rng = np.random.default_rng(20)
    shape = (20_000, len(SKEWED))
    sums = rng.normal(size=shape) * np.sqrt(0.2) * SKEWED + rng.normal(size=shape) * np.sqrt(0.8 * SKEWED)
    mean = sums.sum(axis=1) / SKEWED.sum()
    residuals = sums - SKEWED * mean[:, None]
    cr1 = np.sqrt((residuals**2).sum(axis=1) * 10 / 9) / SKEWED.sum()
    assert np.mean(np.abs(mean) <= reference.t.ppf(0.975, 9) * cr1) < 0.89


def test_right_or_wrong_scores_with_large_effects_and_very_unequal_sizes_are_the_limit() -> None:
    rng = np.random.default_rng(21)
    rates = rng.beta(0.3 * 4, 0.7 * 4, size=(20_000, len(SKEWED)))
    sums = rng.binomial(SKEWED.astype(int), rates).astype(np.float64)
    assert 0.91 <= _coverage(sums, SKEWED, 0.3) < 0.93


def test_ignoring_the_clusters_would_not_cover() -> None:
    rng = np.random.default_rng(22)
    shared = rng.normal(size=(5_000, 10)) * np.sqrt(0.05)
    own = rng.normal(size=(5_000, 10)) * np.sqrt(0.95 / LOCOMO10)
    mean = ((shared + own) * LOCOMO10).sum(axis=1) / LOCOMO10.sum()
    naive = 1.96 / np.sqrt(LOCOMO10.sum())
    assert np.mean(np.abs(mean) <= naive) < 0.6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_sign_flip_is_exact(sums: list[int]) -> None:
    result = stats.sign_flip([float(s) for s in sums], _names([1] * len(sums)))
    patterns = list(itertools.product((1, -1), repeat=len(sums)))
    extreme = sum(abs(sum(s * x for s, x in zip(signs, sums, strict=True))) >= abs(sum(sums)) for signs in patterns)
    assert result.p == pytest.approx(extreme / len(patterns))
    assert result.exact
    assert result.smallest == 2 / 2 ** len(sums)


def test_ten_conversations_that_all_agree_give_two_in_1024() -> None:
    assert stats.sign_flip(np.full(10, 0.1), _names([1] * 10)).p == pytest.approx(2 / 1024)


def test_sign_flip_over_many_conversations_is_drawn_and_seeded() -> None:
    differences = np.random.default_rng(0).normal(0.2, 1, size=30)
    one, again = (stats.sign_flip(differences, _names([1] * 30), seed=5) for _ in range(2))
    assert one == again
    assert not one.exact
    assert one.p == pytest.approx(reference.ttest_1samp(differences, 0).pvalue, abs=0.02)


def test_sign_flip_keeps_its_level_with_unequal_clusters() -> None:
    rng = np.random.default_rng(7)
    clusters = [f"c{g}" for g in range(10)]
    sums = rng.normal(size=(2_000, 10)) * np.sqrt(SKEWED)
    rejected = np.mean([stats.sign_flip(row, clusters).p <= 0.05 for row in sums])
    assert rejected == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(("only_a", "only_b", "p"), [(0, 5, 2 / 32), (3, 3, 1.0), (1, 6, 16 / 128), (0, 0, 1.0)])
def test_mcnemar_closed_forms(only_a: int, only_b: int, p: float) -> None:
    a = [1.0] * only_a + [0.0] * only_b + [1.0, 0.0]
    b = [0.0] * only_a + [1.0] * only_b + [1.0, 0.0]
    assert stats.mcnemar(a, b) == pytest.approx(p)


def test_mcnemar_is_for_binary_values() -> None:
    assert stats.mcnemar([0.5, 1.0], [0.0, 1.0]) is None


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([]) == []
    assert stats.holm([0.6, 0.9]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = stats.holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(p_values) * p) + 1e-12
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert all(adjusted[i] <= adjusted[j] for i, j in itertools.pairwise(order))


def test_the_detectable_difference_is_detected_in_80_of_100_experiments() -> None:
    rng = np.random.default_rng(11)
    noise = rng.normal(size=(4_000, 10))
    true_error = 1 / np.sqrt(10)
    significant, powerful = (float(reference.t.ppf(q, 9)) for q in (0.975, 0.8))
    shifted = noise + (significant + powerful) * true_error
    mean, se = stats.mean_and_error(shifted, np.ones(10))
    assert np.mean(np.abs(mean / se) > significant) == pytest.approx(0.8, abs=0.04)
    estimate = stats.cluster_mean(noise[0], _names([1] * 10))
    assert estimate.se is not None
    assert stats.detectable_difference(estimate) == pytest.approx((significant + powerful) * estimate.se)


def test_seeds_are_averaged_within_a_question() -> None:
    assert stats.average_seeds([{"a": 1.0, "b": 0.0}, {"b": 1.0, "a": 0.0}, {"a": 0.5, "b": 0.5}]) == {
        "a": 0.5,
        "b": 0.5,
    }


def test_variance_components_recover_the_model() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(20, 60, size=200)
    conversation, runs = {}, [dict[str, float]() for _ in range(4)]
    for g, size in enumerate(sizes):
        shared = rng.normal(0, 0.3)
        for i in range(size):
            id = f"{g}#{i}"
            conversation[id] = f"c{g}"
            level = shared + rng.normal(0, 0.5)
            for run in runs:
                run[id] = level + rng.normal(0, 0.2)
    found = stats.variance_components(runs, conversation)
    assert found.seed == pytest.approx(0.04, rel=0.05)
    assert found.question == pytest.approx(0.25, rel=0.05)
    assert found.conversation == pytest.approx(0.09, rel=0.25)
    assert found.seeds == 4
    assert found.seed_sd == pytest.approx(np.std([np.mean(list(run.values())) for run in runs], ddof=1))


def test_variance_components_of_a_single_run() -> None:
    found = stats.variance_components(
        [{"a": 0.0, "b": 1.0, "c": 0.0, "d": 1.0}], {"a": "x", "b": "x", "c": "y", "d": "y"}
    )
    assert (found.seed, found.seed_sd, found.seeds) == (None, None, 1)
    assert (found.question, found.conversation) == (0.5, 0.0)


def _runs() -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    rng = np.random.default_rng(9)
    ids = [f"c{g}#{i}" for g in range(10) for i in range(8 + g)]
    b = {id: float(rng.integers(0, 2)) for id in ids}
    a = dict.fromkeys(ids, 1.0)
    return a, b, {id: id.split("#")[0] for id in ids}


def test_compare_pairs_the_same_questions() -> None:
    a, b, conversation = _runs()
    cells = {"even": lambda id: int(id.split("#")[1]) % 2 == 0, "none": lambda id: False, "average": lambda id: True}
    found = {c.cell: c for c in stats.compare(a, b, conversation, cells)}
    assert list(found) == ["even", "average"]
    everything = found["average"]
    assert everything.difference.mean == pytest.approx(everything.a - everything.b)
    assert everything.difference.n == len(a)
    assert everything.p_mcnemar == stats.mcnemar([a[i] for i in a], [b[i] for i in a])
    swapped = stats.compare(b, a, conversation, {"average": lambda id: True})[0]
    assert swapped.test.p == everything.test.p
    assert swapped.difference.mean == pytest.approx(-everything.difference.mean)


def test_verdicts_follow_holm_over_the_family() -> None:
    a, b, conversation = _runs()
    everywhere = {"average": lambda id: True}
    family = [*stats.compare(a, b, conversation, everywhere), *stats.compare(b, b, conversation, everywhere)]
    up, same = stats.with_verdicts(family)
    assert up.verdict == stats.BETTER
    assert up.p_holm == pytest.approx(2 * 2 / 1024)
    assert (same.verdict, same.p_holm) == (stats.SAME, 1.0)
    assert stats.with_verdicts(family, higher_is_better=False)[0].verdict == stats.WORSE
    large = stats.with_verdicts(family[:1] * 30)
    assert large[0].verdict == stats.SAME
    assert "family of 30" in large[0].note


def test_too_few_conversations_are_noted() -> None:
    ids = {f"{g}": f"c{g}" for g in range(5)}
    comparison = stats.with_verdicts(
        stats.compare(dict.fromkeys(ids, 1.0), dict.fromkeys(ids, 0.0), ids, {"average": lambda id: True})
    )[0]
    assert comparison.verdict == stats.SAME
    assert "5 conversations allow no p below 0.062" in comparison.note


def test_runs_of_different_questions_are_refused() -> None:
    with pytest.raises(DataError, match="different questions"):
        stats.compare({"a": 1.0}, {"b": 1.0}, {"a": "x", "b": "x"}, {"average": lambda id: True})
    with pytest.raises(DataError):
        stats.average_seeds([])
