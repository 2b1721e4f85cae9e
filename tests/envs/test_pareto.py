"""Dominance and set utility against definitions written out."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vpo_envs.pareto import (
    COARSE,
    EXHAUSTIVE,
    FactGrid,
    best_set,
    best_sets,
    falling_component,
    gains,
    needs_a_set,
    non_dominated,
    set_utility,
    spread_weights,
)
from vpo_envs.tasks.generation import CertifiedConfig

POINTS = st.tuples(st.integers(0, 12), st.integers(1, 4)).flatmap(
    # Few distinct values, so that ties and repeated points are common.
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
)


@given(POINTS)
def test_non_dominated_keeps_what_no_other_point_beats_once(points: np.ndarray) -> None:
    kept = non_dominated(points)
    for i, point in enumerate(points):
        beaten = any((other >= point).all() and (other > point).any() for other in points)
        repeated = any((points[j] == point).all() for j in range(i))
        assert kept[i] == (not beaten and not repeated)


@pytest.mark.parametrize("num_objectives", [2, 3, 4, 5])
@pytest.mark.parametrize(("count", "error"), [(COARSE, 5e-3), (1 << 14, 1e-4)])
def test_spread_weights_are_even_on_the_simplex(num_objectives: int, count: int, error: float) -> None:
    weights = spread_weights(num_objectives, count)
    assert count - num_objectives < len(weights) <= count
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    # The first two moments of the uniform distribution on the simplex.
    np.testing.assert_allclose(weights.mean(axis=0), 1 / num_objectives)
    second = 2 / (num_objectives * (num_objectives + 1))
    np.testing.assert_allclose((weights**2).mean(axis=0), second, atol=error)


def test_fixed_weights_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        spread_weights(3)[0] = 1.0


@pytest.mark.parametrize("num_objectives", [1, 2, 3, 4, 5])
def test_spread_weights_give_the_utility_of_two_points_in_closed_form(num_objectives: int) -> None:
    weights = spread_weights(num_objectives)
    source = np.random.default_rng(0)
    for one, other in source.random((100, 2, num_objectives)):
        # With a = one - other, E[max(0, w·a)] is the sum over a_i > 0 of a_i^d / (d prod_{j != i} (a_i - a_j)).
        gains = one - other
        rise = sum(
            gain**num_objectives / (num_objectives * np.prod(gain - np.delete(gains, i)))
            for i, gain in enumerate(gains)
            if gain > 0
        )
        assert set_utility(np.stack([one, other]), weights) == pytest.approx(other.mean() + rise, rel=4e-4)


def best_set_utility(points: np.ndarray, size: int, weights: np.ndarray) -> float:
    return set_utility(points[best_set(points, size, weights)], weights)


@settings(max_examples=40)
@given(arrays(np.float64, (5, 3), elements=st.floats(0, 1)), st.integers(1, 6))
def test_best_set_utility_tries_every_set(points: np.ndarray, size: int) -> None:
    weights = spread_weights(3, 16)
    sets = combinations(points, min(size, len(points)))
    expected = max(sum(max(float(w @ p) for p in chosen) for w in weights) / len(weights) for chosen in sets)
    assert best_set_utility(points, size, weights) == pytest.approx(expected)


def test_the_best_set_of_many_points_is_grown() -> None:
    weights = spread_weights(3, 32)
    points = np.random.default_rng(0).dirichlet(np.ones(3), EXHAUSTIVE + 1)
    grown = best_set_utility(points, 3, weights)
    # A set utility is submodular, so growing a set by what adds most earns at least 1 - 1/e of the best.
    assert (1 - 1 / math.e) * best_set_utility(points[:-1], 3, weights) <= grown <= set_utility(points, weights)


@settings(max_examples=60)
@given(arrays(np.float64, (6, 3), elements=st.sampled_from([0.0, 0.2, 0.5, 1.0])))
def test_a_set_is_needed_by_its_definition(points: np.ndarray) -> None:
    front = points[non_dominated(points)]
    weights = spread_weights(3)
    gain = best_set_utility(front, 3, weights) - best_set_utility(front, 1, weights)
    assume(abs(gain - 0.05) > 1e-4)
    wanted = len(front) >= 3 and not (front == 1).all(axis=1).any() and gain >= 0.05
    assert needs_a_set(points) == wanted


@settings(max_examples=40)
@given(arrays(np.float64, (6, 3), elements=st.sampled_from([0.0, 0.2, 0.45, 0.5, 1.0])))
def test_the_gains_are_ratios_over_all_sets(points: np.ndarray) -> None:
    fixed, draws = np.array([0.5, 0.3, 0.2]), spread_weights(3, 512)

    def best(candidates: list[np.ndarray], size: int) -> float:
        sets = combinations(candidates, min(size, len(candidates)))
        return max(float(np.max([draws @ point for point in chosen], axis=0).mean()) for chosen in sets)

    scalar = [float(fixed @ point) for point in points]
    kept = [point for point, reward in zip(points, scalar, strict=True) if reward >= max(scalar) - 0.02 - 1e-9]
    one, three, by_scalar = best(list(points), 1), best(list(points), 3), best(kept, 3)
    expected = (1.0, 1.0) if one == 0 else (three / one, three / by_scalar)
    assert gains(points, fixed) == pytest.approx(expected, rel=5e-3)


def test_a_large_front_is_worth_at_least_what_its_best_scalar_points_are() -> None:
    points = np.random.default_rng(0).dirichlet(np.ones(3), EXHAUSTIVE + 30)
    best = best_sets(points, np.full(3, 1 / 3))
    assert best.three >= best.three_by_scalar > best.single
    assert best.vector_gain == 1.0


@pytest.mark.parametrize("levels", [3, 30])
def test_a_component_that_falls_is_found(levels: int) -> None:
    # Thirty levels of four facts are too many to try all of them.
    grid = FactGrid(lambda *facts: np.array(facts), (tuple(range(levels)),) * 4)
    assert falling_component(lambda facts: [*facts, facts.sum(), facts.min()], grid) is None
    assert falling_component(lambda facts: [facts[0], facts[2] - facts[1]], grid) == 1
    assert falling_component(lambda facts: [0.0, 0.0, 1.0 - (facts == levels - 1).all()], grid) == 2


def test_a_certificate_leaves_room_for_its_error() -> None:
    config = CertifiedConfig(min_set_gain=1.3, min_vector_gain=1.15)
    assert config.certifies(lambda: (1.3006, 1.1506))
    assert not config.certifies(lambda: (1.3003, 1.1506))
    assert not config.certifies(lambda: (1.3006, 1.1503))
    assert CertifiedConfig(min_set_gain=1, min_vector_gain=1).certifies(lambda: (1.0, 1.0))


SPECIALISTS = np.eye(3)
BEST_OF_WEIGHTS = 11 / 18
"""The mean of the largest of three weights that are uniform on the simplex: (1 + 1/2 + 1/3) / 3."""


@pytest.mark.parametrize("compromise", [0.4, 0.45, 0.5])
def test_specialists_that_lose_to_a_compromise_need_a_set_and_a_vector(compromise: float) -> None:
    expected = BEST_OF_WEIGHTS / compromise
    assert gains(np.vstack([SPECIALISTS, np.full(3, compromise)])) == pytest.approx((expected, expected), rel=1e-4)


def test_specialists_alone_need_a_set_but_no_vector() -> None:
    assert gains(SPECIALISTS) == pytest.approx((3 * BEST_OF_WEIGHTS, 1.0), rel=1e-4)
    # Under a scalar that prefers one of them they do.
    _, of_vector = gains(SPECIALISTS, np.array([0.5, 0.25, 0.25]))
    assert of_vector == pytest.approx(3 * BEST_OF_WEIGHTS, rel=1e-4)


@pytest.mark.parametrize("points", [np.zeros((2, 3)), np.ones((1, 3)), np.vstack([SPECIALISTS, np.ones(3)])])
def test_one_answer_for_all_needs_neither(points: np.ndarray) -> None:
    assert gains(points) == (1.0, 1.0)
