from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb

import moocore
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import bootstrap

from vpo_agent.pareto.metrics import (
    best_at_k,
    best_at_k_of_sets,
    bootstrap_mean,
    coverage,
    diversity,
    exact_expected_utility,
    non_dominated,
    paired_bootstrap,
    pass_at_k,
    regret,
    set_utility,
)

Floats = NDArray[np.float64]
EXACT = 1e-13


def uniform_simplex(count: int, d: int, seed: int = 0) -> Floats:
    gaps = np.random.default_rng(seed).standard_exponential((count, d))
    return np.asarray(gaps / gaps.sum(axis=1, keepdims=True))


def grid_points(max_d: int = 5, max_n: int = 6, steps: int = 4) -> st.SearchStrategy[Floats]:
    """Reward vectors on a coarse grid, where ties, repeats and flat shapes are common."""
    shapes = st.tuples(st.integers(1, max_n), st.integers(1, max_d))
    levels = shapes.flatmap(lambda shape: arrays(np.int64, shape, elements=st.integers(0, steps)))
    return levels.map(lambda level: level / steps)


# ------------------------------------------------------------------------------------------ best@k


@pytest.mark.parametrize("k", range(1, 8))
def test_best_at_k_is_the_mean_over_all_subsets(k: int) -> None:
    scores = np.random.default_rng(k).choice([0.0, 0.25, 0.5, 1.0], (2, 3, 7))
    brute = np.mean([scores[..., list(chosen)].max(axis=-1) for chosen in combinations(range(7), k)], axis=0)
    np.testing.assert_allclose(best_at_k(scores, k), brute, atol=EXACT)


@given(st.integers(1, 60), st.data())
def test_best_at_k_of_zeros_and_ones_is_unbiased_pass_at_k(n: int, data: st.DataObject) -> None:
    k, solved = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    scores = np.random.default_rng(0).permutation(np.arange(n) < solved)
    closed_form = 1 - Fraction(comb(n - solved, k), comb(n, k))
    assert float(best_at_k(scores, k)) == pytest.approx(float(closed_form), abs=EXACT)
    assert float(pass_at_k(scores * 0.8, k, threshold=0.8)) == pytest.approx(float(closed_form), abs=EXACT)


def test_best_at_k_stays_exact_for_many_scores() -> None:
    n = 20_000
    for k in (1, 30, n // 2, n):
        expected_rank = Fraction(k * (n + 1), k + 1)
        assert float(best_at_k(np.arange(1, n + 1), k)) == pytest.approx(float(expected_rank), rel=1e-12)


@given(arrays(np.float64, st.integers(2, 12), elements=st.floats(0, 1)))
def test_best_at_k_rises_with_k_from_the_mean_to_the_maximum(scores: Floats) -> None:
    curve = [float(best_at_k(scores, k)) for k in range(1, len(scores) + 1)]
    assert curve[0] == pytest.approx(scores.mean(), abs=EXACT)
    assert curve[-1] == scores.max()
    assert (np.diff(curve) >= -EXACT).all()


def test_best_at_k_of_sets_draws_whole_rollouts() -> None:
    scores = np.random.default_rng(0).random((2, 5, 3))
    for rollouts in range(1, 6):
        brute = np.mean([scores[:, list(c)].max(axis=(1, 2)) for c in combinations(range(5), rollouts)], axis=0)
        np.testing.assert_allclose(best_at_k_of_sets(scores, rollouts), brute, atol=EXACT)


def test_answers_of_one_rollout_are_not_counted_as_independent_draws() -> None:
    scores = np.array([[1.0, 1.0], [0.0, 0.0]])  # one rollout repeats its success, the other its failure
    assert float(best_at_k_of_sets(scores, 1)) == 0.5
    assert float(best_at_k(scores.ravel(), 2)) == pytest.approx(5 / 6)


def test_pass_at_k_counts_a_score_at_the_threshold() -> None:
    assert float(pass_at_k([0.5, 0.0], 1, threshold=0.5)) == 0.5
    assert float(pass_at_k([0.5, 0.0], 1, threshold=0.51)) == 0.0


@pytest.mark.parametrize("k", [-1, 0, 4])
def test_k_out_of_range_is_an_error_naming_k_and_n(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k={k} with n=3"):
        best_at_k([0.1, 0.2, 0.3], k)
    with pytest.raises(ValueError, match=rf"k={k} with n=3"):
        pass_at_k([0.1, 0.2, 0.3], k, 0.5)
    with pytest.raises(ValueError, match=rf"rollouts={k} with R=3"):
        best_at_k_of_sets(np.zeros((3, 2)), k)


def test_k_must_be_whole() -> None:
    with pytest.raises(TypeError):
        best_at_k([0.1, 0.2], 1.5)  # type: ignore[arg-type]  # the mistake under test


def test_a_score_that_is_not_a_number_is_an_error_that_says_where() -> None:
    with pytest.raises(ValueError, match=r"scores\[1, 0\] is nan; leave invalid answers out"):
        best_at_k([[0.1, 0.2], [np.nan, 0.2]], 1)
    with pytest.raises(ValueError, match=r"without answers"):
        best_at_k_of_sets(np.zeros((3, 0)), 1)
    with pytest.raises(ValueError, match=r"shape \(\.\.\., R, m\); got shape \(3,\)"):
        best_at_k_of_sets(np.zeros(3), 1)


# ------------------------------------------------------------------------------------------ utility


def test_set_utility_is_the_mean_of_the_best_under_each_weight() -> None:
    rng = np.random.default_rng(0)
    rewards, weights = rng.random((2, 3, 4, 5)), uniform_simplex(7, 5)
    for prompt in range(2):
        for method in range(3):
            brute = np.mean([max(float(w @ r) for r in rewards[prompt, method]) for w in weights])
            assert set_utility(rewards, weights)[prompt, method] == pytest.approx(brute, abs=EXACT)


def test_set_utility_is_the_same_in_chunks_as_at_once() -> None:
    rewards, weights = np.random.default_rng(0).random((1500, 30, 3)), uniform_simplex(256, 3)
    chunked = set_utility(rewards, weights)  # 11.5 million products, above the limit of one chunk
    np.testing.assert_allclose(chunked[::100], [set_utility(r, weights) for r in rewards[::100]], atol=EXACT)


def test_inactive_objectives_leave_utility_as_if_they_were_not_there() -> None:
    rewards, weights = np.random.default_rng(0).random((3, 4, 4)), uniform_simplex(50, 4)
    active = np.array([[True, False, True, True], [True, True, True, True], [False, True, False, False]])
    for row, mask in enumerate(active):
        kept = weights[:, mask] / weights[:, mask].sum(axis=1, keepdims=True)
        expected = float(set_utility(rewards[row][:, mask], kept))
        assert set_utility(rewards, weights, active=active)[row] == pytest.approx(expected, abs=EXACT)
        assert float(set_utility(rewards[row], weights, active=mask)) == pytest.approx(expected, abs=EXACT)


def test_uniform_weights_stay_uniform_over_the_active_objectives() -> None:
    rewards = np.random.default_rng(1).random((4, 4))
    active = np.array([True, True, False, True])
    sampled = float(set_utility(rewards, uniform_simplex(400_000, 4), active=active))
    assert sampled == pytest.approx(exact_expected_utility(rewards, active), abs=5e-4)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.5]], r"shape \(K, 3\)"),
        (np.zeros((0, 3)), r"K >= 1"),
        ([[1.0, 0.0, 0.0], [0.5, 0.6, 0.0]], r"weights\[1\].*not on the simplex"),
        ([[1.5, -0.5, 0.0]], r"weights\[0\].*not on the simplex"),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], r"weights\[1\].*no weight on an active objective"),
    ],
)
def test_weights_off_the_simplex_are_errors(weights: Sequence[Sequence[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        set_utility(np.ones((2, 3)), weights, active=[True, True, False])


def test_regret_is_zero_for_the_front_and_what_is_missing_for_less() -> None:
    front = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.8]])
    weights = uniform_simplex(100, 2)
    reached = np.stack([front, np.repeat(front[:1], 3, axis=0)])
    gaps = regret(front, reached, weights)
    assert gaps[0] == 0.0
    brute = np.mean([max(w @ r for r in front) - w[0] for w in weights])
    assert gaps[1] == pytest.approx(brute, abs=EXACT)
    assert float(regret(front, front[:1], weights, active=[True, False])) == 0.0


# ------------------------------------------------------------------------------------------ exact expected utility


def rational_expected_utility(points: Floats) -> float:
    """E[max_s w·r_s] in exact fractions, by cutting the simplex until one point is best throughout each piece.

    On a piece where one point is best the utility is linear, and its mean is the mean over the corners.
    """
    rows = [[Fraction(value) for value in row] for row in points.tolist()]
    d = len(rows[0])

    def dot(weight: list[Fraction], row: list[Fraction]) -> Fraction:
        return sum((w * r for w, r in zip(weight, row, strict=True)), Fraction(0))

    def mean(corners: list[list[Fraction]], best: int, rival: int) -> Fraction:
        if rival == len(rows):
            return sum((dot(corner, rows[best]) for corner in corners), Fraction(0)) / d
        lead = [dot(corner, rows[rival]) - dot(corner, rows[best]) for corner in corners]
        i, j = lead.index(max(lead)), lead.index(min(lead))
        if lead[i] <= 0:
            return mean(corners, best, rival + 1)
        if lead[j] >= 0:
            return mean(corners, rival, rival + 1)
        share = lead[i] / (lead[i] - lead[j])
        cut = [a + share * (b - a) for a, b in zip(corners[i], corners[j], strict=True)]
        near, far = list(corners), list(corners)
        near[j], far[i] = cut, cut
        return share * mean(near, best, rival) + (1 - share) * mean(far, best, rival)

    corners = [[Fraction(int(i == j)) for j in range(d)] for i in range(d)]
    return float(mean(corners, 0, 1))


@settings(deadline=None, max_examples=150)
@given(grid_points(max_n=5))
def test_exact_utility_agrees_with_rational_arithmetic(points: Floats) -> None:
    assert exact_expected_utility(points) == pytest.approx(rational_expected_utility(points), abs=1e-12)


@pytest.mark.parametrize(("d", "n"), [(2, 6), (3, 12), (4, 5), (5, 8)])
def test_exact_utility_agrees_with_two_million_samples(d: int, n: int) -> None:
    points = np.random.default_rng(d).random((n, d))
    best = np.concatenate([(uniform_simplex(500_000, d, seed) @ points.T).max(axis=1) for seed in range(4)])
    standard_error = best.std() / np.sqrt(len(best))
    assert abs(exact_expected_utility(points) - best.mean()) < 5 * standard_error


@pytest.mark.parametrize("d", range(1, 6))
def test_the_unit_vectors_are_worth_the_expected_largest_weight(d: int) -> None:
    harmonic_number = sum(Fraction(1, i) for i in range(1, d + 1))
    assert exact_expected_utility(np.eye(d)) == pytest.approx(float(harmonic_number / d), abs=EXACT)


@given(arrays(np.float64, st.tuples(st.integers(1, 8), st.just(2)), elements=st.floats(0, 1)))
def test_two_objectives_are_an_integral_over_a_line(points: Floats) -> None:
    # The utility is linear between the weights where two lines cross, so the trapezoid rule on all of them is exact.
    slope = points[:, 0] - points[:, 1]
    crossings = [
        (points[j, 1] - points[i, 1]) / (slope[i] - slope[j])
        for i, j in combinations(range(len(points)), 2)
        if abs(slope[i] - slope[j]) > 1e-9
    ]
    knots = np.unique(np.clip([0.0, 1.0, *crossings], 0.0, 1.0))
    best = (knots[:, None] * slope + points[:, 1]).max(axis=1)
    assert exact_expected_utility(points) == pytest.approx(np.trapezoid(best, knots), abs=1e-8)


@settings(deadline=None)
@given(arrays(np.float64, st.tuples(st.just(2), st.integers(1, 5)), elements=st.floats(0, 1, width=16)))
def test_two_points_agree_with_rational_arithmetic(points: Floats) -> None:
    assert exact_expected_utility(points) == pytest.approx(rational_expected_utility(points), abs=1e-8)


def test_a_point_alone_is_worth_its_mean() -> None:
    assert exact_expected_utility([[0.2, 0.4, 0.9]]) == pytest.approx(0.5, abs=EXACT)
    assert exact_expected_utility([[0.0, 0.0]]) == 0.0
    assert exact_expected_utility([[0.3]] * 4) == pytest.approx(0.3, abs=EXACT)
    assert exact_expected_utility([[0.3], [0.7]]) == pytest.approx(0.7, abs=EXACT)


@settings(deadline=None)
@given(grid_points(), st.floats(-3, 3), st.floats(0.1, 10))
def test_exact_utility_has_the_symmetries_of_the_expectation(points: Floats, c: float, a: float) -> None:
    rng = np.random.default_rng(len(points))
    value = exact_expected_utility(points)
    shuffled = rng.permutation(rng.permutation(points, axis=0), axis=1)
    repeated_and_beaten = np.concatenate([points, points, points - 0.1])
    assert exact_expected_utility(shuffled) == pytest.approx(value, abs=1e-12)
    assert exact_expected_utility(repeated_and_beaten) == pytest.approx(value, abs=1e-12)
    assert exact_expected_utility(a * points + c) == pytest.approx(a * value + c, abs=1e-11)
    assert points.mean(axis=1).max() - 1e-12 <= value <= points.max(axis=0).max() + 1e-12


def test_a_repeated_objective_counts_twice() -> None:
    # With u the weight on the two equal columns, of density 2u: ∫ max(u, (1 − u)/2) 2u du = 37/54.
    points = np.array([[1.0, 0.0, 1.0], [0.0, 0.5, 0.0], [0.4, 0.2, 0.4]])  # the third is on the front, yet never best
    assert exact_expected_utility(points) == pytest.approx(37 / 54, abs=EXACT)
    assert exact_expected_utility(points[:2]) == pytest.approx(37 / 54, abs=EXACT)


@pytest.mark.parametrize("apart", [1e-15, 1e-12, 1e-10, 1e-8, 1e-6])
def test_crowds_of_almost_equal_points_cost_no_more_than_their_distance(apart: float) -> None:
    # Moving every point by at most ε moves the utility by at most ε. Some of these crowds make Qhull's first try fail.
    rng = np.random.default_rng(0)
    for _ in range(10):
        points = np.unique(rng.integers(0, 5, (40, 5)) / 4, axis=0)
        crowd = np.concatenate([points, points + apart * rng.uniform(-1, 1, points.shape)])
        assert exact_expected_utility(crowd) == pytest.approx(exact_expected_utility(points), abs=apart + 1e-5)


def test_inactive_objectives_are_left_out_of_the_exact_utility() -> None:
    points = np.random.default_rng(0).random((4, 8))
    active = np.array([False, True, True, False, False, True, False, True])
    assert exact_expected_utility(points, active) == exact_expected_utility(points[:, active])


def test_exact_utility_states_its_limits() -> None:
    with pytest.raises(ValueError, match="at most 5 active objectives; got 6; use set_utility"):
        exact_expected_utility(np.eye(6))
    with pytest.raises(ValueError, match="points are empty"):
        exact_expected_utility(np.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"points must have shape \(n, d\).*got shape \(2, 2, 2\)"):
        exact_expected_utility(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="active leaves no objective"):
        exact_expected_utility(np.eye(2), [False, False])
    with pytest.raises(ValueError, match="active needs 2 values"):
        exact_expected_utility(np.eye(2), [True])
    with pytest.raises(ValueError, match="active must be booleans"):
        exact_expected_utility(np.eye(2), [1, 0])
    with pytest.raises(ValueError, match="call once per prompt"):
        exact_expected_utility(np.eye(2), [[True, True]])


# ------------------------------------------------------------------------------------------ fronts, diversity


@given(grid_points(max_n=12, steps=3))
def test_non_dominated_agrees_with_moocore_and_keeps_the_first_of_equals(points: Floats) -> None:
    mask = non_dominated(points)
    assert {tuple(p) for p in points[mask]} == {
        tuple(p) for p in points[moocore.is_nondominated(points, maximise=True, keep_weakly=False)]
    }
    for kept in np.flatnonzero(mask):
        assert np.flatnonzero((points == points[kept]).all(axis=1))[0] == kept
    assert len(np.unique(points[mask], axis=0)) == mask.sum()


def test_the_front_of_nothing_is_empty() -> None:
    assert non_dominated(np.zeros((0, 3))).shape == (0,)
    with pytest.raises(ValueError, match="d >= 1"):
        non_dominated(np.zeros((3, 0)))


def test_coverage_is_the_share_of_the_front_attained() -> None:
    front = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.2, 0.9]])
    assert coverage(front, front) == 1.0
    assert coverage(front, [[0.6, 0.5], [0.0, 1.0 - 1e-9]]) == 0.5
    assert coverage(front, [[0.0, 0.99]]) == 0.0
    assert coverage(front, [[0.0, 0.99]], tolerance=0.02) == 0.25
    assert coverage(front, np.zeros((0, 2))) == 0.0
    assert coverage(front, [[1.0, 0.0]], active=[True, False]) == 1.0
    with pytest.raises(ValueError, match="front is empty"):
        coverage(np.zeros((0, 2)), front)
    with pytest.raises(ValueError, match="front has 2 objectives and reached 3"):
        coverage(front, np.zeros((1, 3)))


def test_diversity_is_the_mean_over_pairs() -> None:
    rewards = np.random.default_rng(0).random((2, 3, 6, 4))
    pairs = [np.abs(rewards[..., i, :] - rewards[..., j, :]).sum(axis=-1) for i, j in combinations(range(6), 2)]
    np.testing.assert_allclose(diversity(rewards), np.mean(pairs, axis=0), atol=EXACT)


def test_equal_rewards_have_no_diversity_at_all() -> None:
    assert (diversity(np.full((3, 7, 4), 0.1)) == 0.0).all()


@pytest.mark.parametrize("n", [0, 1])
def test_sets_of_fewer_than_two_have_no_diversity(n: int) -> None:
    assert diversity(np.ones((5, n, 3))).tolist() == [0.0] * 5
    assert diversity(np.ones((n, 3)), active=np.ones((5, 3), dtype=bool)).shape == (5,)


def test_inactive_objectives_add_no_diversity() -> None:
    rewards = np.random.default_rng(0).random((2, 5, 3))
    active = np.array([[True, False, True], [False, True, False]])
    for row, mask in enumerate(active):
        expected = float(diversity(rewards[row][:, mask]))
        assert diversity(rewards, active=active)[row] == pytest.approx(expected, abs=EXACT)
        assert diversity(rewards, active=mask)[row] == pytest.approx(expected, abs=EXACT)


# ------------------------------------------------------------------------------------------ intervals


def test_bootstrap_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).exponential(size=80)
    ours = bootstrap_mean(values, confidence=0.9)
    theirs = bootstrap((values,), np.mean, confidence_level=0.9, n_resamples=10_000, method="percentile", rng=1)
    assert ours.mean == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.02)


def test_bootstrap_of_many_values_is_the_normal_interval() -> None:
    values = np.random.default_rng(0).random(5000)  # large enough to be resampled in several chunks
    half = 1.96 * values.std() / np.sqrt(len(values))
    interval = bootstrap_mean(values, resamples=2000)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_is_deterministic_in_its_seed() -> None:
    values = np.random.default_rng(0).random(30)
    assert bootstrap_mean(values, seed=1) == bootstrap_mean(values, seed=1)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values, seed=2)


def test_pairing_cancels_how_hard_the_prompts_are() -> None:
    rng = np.random.default_rng(0)
    before = rng.random(100)
    interval = paired_bootstrap(before, before + 0.05)
    assert interval == pytest.approx((0.05, 0.05, 0.05))
    noisy = before + 0.05 + rng.normal(0, 0.02, 100)
    assert paired_bootstrap(before, noisy) == bootstrap_mean(noisy - before)
    backward = paired_bootstrap(noisy, before)
    assert backward.mean == pytest.approx(-paired_bootstrap(before, noisy).mean)
    assert backward.high < 0 < paired_bootstrap(before, noisy).low


def test_one_prompt_has_an_interval_of_no_width() -> None:
    assert bootstrap_mean([0.3]) == (0.3, 0.3, 0.3)


def test_bootstrap_arguments_out_of_range_are_errors() -> None:
    with pytest.raises(ValueError, match="N >= 1"):
        bootstrap_mean([])
    with pytest.raises(ValueError, match=r"got shape \(2, 2\)"):
        bootstrap_mean(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="before has 2 prompts and after 3"):
        paired_bootstrap([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1; got 95"):
        bootstrap_mean([1, 2], confidence=95)
    with pytest.raises(ValueError, match="resamples must be at least 1; got 0"):
        bootstrap_mean([1, 2], resamples=0)


def test_metrics_need_nothing_but_numpy_to_import() -> None:
    code = "import sys, vpo_agent.pareto.metrics; sys.exit(bool({'scipy', 'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
