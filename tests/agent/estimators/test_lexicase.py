"""Lexicase selection as a score, and DALex, whose limit it is: against all orders of the objectives."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vpo_agent.estimators import advantages, standardise
from vpo_agent.estimators.lexicase import lexicase_probabilities
from vpo_agent.estimators.weights import draw_weights

Vectors = list[tuple[float, ...]]

ANSWERS = st.integers(1, 4).flatmap(
    lambda d: st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * d), min_size=1, max_size=8)
)


def by_all_orders(vectors: Vectors) -> list[Fraction]:
    """Select once for each order of the objectives; answers that tie to the end share the win."""
    wins = [Fraction(0)] * len(vectors)
    orders = list(itertools.permutations(range(len(vectors[0]))))
    for order in orders:
        best = max(tuple(vector[i] for i in order) for vector in vectors)
        winners = [n for n, vector in enumerate(vectors) if tuple(vector[i] for i in order) == best]
        for n in winners:
            wins[n] += Fraction(1, len(winners) * len(orders))
    return wins


@given(ANSWERS)
def test_the_probabilities_are_those_over_all_orders(vectors: Vectors) -> None:
    assert lexicase_probabilities(vectors) == pytest.approx([float(win) for win in by_all_orders(vectors)], abs=1e-12)


def test_a_rollout_scores_the_orders_that_its_answers_win_and_invalid_ones_do_not_compete() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards = (torch.rand(4, 5, 3, 4, generator=generator, dtype=torch.float64) * 2).round() / 2
    valid = torch.ones(4, 5, dtype=torch.bool)
    valid[1, 2] = valid[3, 0] = False
    result = advantages(rewards, method="vpo_lexicase", valid=valid)
    for group, kept, scores in zip(rewards, valid, result.scores, strict=True):
        wins = by_all_orders([tuple(vector) for vector in group[kept].flatten(0, 1).tolist()])
        by_hand = [float(sum(wins[first : first + 3])) for first in range(0, len(wins), 3)]
        assert scores[kept].tolist() == pytest.approx(by_hand, abs=1e-12)
    assert result.scores[~valid].tolist() == [0.0, 0.0]
    torch.testing.assert_close(result.advantages, standardise(result.scores, valid))


def test_an_inactive_objective_decides_nothing() -> None:
    rewards = torch.tensor([[[[1.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]]]])
    result = advantages(rewards, method="vpo_lexicase", active=torch.tensor([[True, True, False]]))
    assert result.scores.tolist() == [[0.5, 0.5]]


def test_sixteen_tests_are_quick_to_order() -> None:
    # 16! orders are 2e13; the sets of survivors are few.
    vectors = [tuple(row) for row in np.random.default_rng(0).integers(0, 2, (24, 16)).astype(float).tolist()]
    assert sum(lexicase_probabilities(vectors)) == pytest.approx(1.0)


def test_weights_of_dalex_choose_as_lexicase_does_the_more_the_larger_sigma() -> None:
    # Tests passed or failed, so that the first objective of an order rarely decides. From sigma = 10 on the weights of
    # the later ones begin to drown in rounding.
    matrices = np.random.default_rng(1).integers(0, 2, (20, 6, 5)).astype(float)
    wanted = np.array([lexicase_probabilities([tuple(row) for row in matrix.tolist()]) for matrix in matrices])

    def off(sigma: float) -> float:
        drawn = draw_weights(range(20), num_objectives=5, num_weights=4096, sampler="dalex", sigma=sigma)
        utilities = np.einsum("pkd,pnd->pkn", drawn.astype(np.float64), matrices)
        best = np.isclose(utilities, utilities.max(axis=2, keepdims=True), rtol=0, atol=1e-15)
        chosen = (best / best.sum(axis=2, keepdims=True)).mean(axis=1)
        return float(np.abs(chosen - wanted).mean())

    assert off(6.0) < 0.002 < off(3.0) < 0.005 < off(1.0) < off(0.5)


def test_dalex_is_a_softmax_of_standard_normals() -> None:
    weights = draw_weights(range(2000), num_objectives=3, num_weights=16, sampler="dalex", sigma=2.0)
    assert weights.shape == (2000, 16, 3)
    np.testing.assert_allclose(weights.sum(axis=2), 1.0, atol=1e-6)
    logs = np.log(weights.astype(np.float64)).reshape(-1, 3)
    differences = np.stack([logs[:, 0] - logs[:, 1], logs[:, 1] - logs[:, 2]])
    # Of sigma (z_i - z_j): variance 2 sigma^2, and covariance -sigma^2 of two that share one.
    np.testing.assert_allclose(np.cov(differences), [[8.0, -4.0], [-4.0, 8.0]], atol=0.15)
    np.testing.assert_allclose(differences.mean(axis=1), 0.0, atol=0.05)


def test_dalex_without_spread_gives_equal_weights_and_none_to_inactive_objectives() -> None:
    active = np.array([[True, False, True], [True, True, True]])
    weights = draw_weights([3, 4], num_objectives=3, num_weights=4, sampler="dalex", sigma=0.0, active=active)
    np.testing.assert_allclose(weights[0], np.tile([0.5, 0.0, 0.5], (4, 1)))
    np.testing.assert_allclose(weights[1], 1 / 3, rtol=1e-6)
