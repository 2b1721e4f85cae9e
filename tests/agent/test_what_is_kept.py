"""What a decomposition keeps of a pool: measures against brute force and by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from pools import random_pool

from vpo_agent.decompose import (
    decompose_pool,
    explained_variance,
    mapped_pool,
    measure_decomposition,
    utility_of_choice,
    what_is_kept,
)
from vpo_agent.estimators.weights import draw_weights
from vpo_envs import Decomposition, Status
from vpo_envs.pareto import spread_weights

SPECIALISTS = np.vstack([np.eye(3), [[0.4, 0.4, 0.4]]])


def hand(**objectives: dict[str, float]) -> Decomposition:
    found = [{"name": name, "weights": weights} for name, weights in objectives.items()]
    return Decomposition.model_validate({"criteria": ("gold", "silver", "bronze"), "objectives": found})


def best_three(criteria: NDArray[np.float64]) -> float:
    # Another quadrature than that of the code, which is exact to 4e-4.
    weights = draw_weights([0], num_objectives=criteria.shape[1], num_weights=1 << 14)[0]
    sets = itertools.combinations(criteria, 3)
    return max(float((weights @ np.array(three).T).max(axis=1).mean()) for three in sets)


def test_objectives_that_are_the_criteria_choose_the_best_three() -> None:
    criteria = np.random.default_rng(0).random((8, 4))
    kept = what_is_kept(criteria, criteria)
    assert kept.vectors == 1
    assert kept.choice == pytest.approx(best_three(criteria), rel=1e-3)


def test_the_mean_chooses_the_compromise_and_the_criteria_the_specialists() -> None:
    kept = what_is_kept(SPECIALISTS, SPECIALISTS.mean(axis=1, keepdims=True))
    # After the compromise two of the specialists, each as likely.
    with_two = (spread_weights(3) @ SPECIALISTS[[3, 0, 1]].T).max(axis=1).mean()
    assert kept.choice == kept.scalar == pytest.approx(with_two, abs=0.003)
    assert kept.vectors == 0.5
    assert utility_of_choice(SPECIALISTS, SPECIALISTS) == pytest.approx(11 / 18, abs=0.003)


def test_ties_are_broken_at_random() -> None:
    # The one objective cannot tell the first two apart, and a single answer is chosen.
    criteria, objective = np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.0]]), np.array([[1.0], [1.0], [0.0]])
    each = [float((spread_weights(2) @ vector).mean()) for vector in criteria[:2]]
    found = utility_of_choice(criteria, objective, size=1)
    assert each[1] < found < each[0]


def test_the_variance_kept_is_that_of_a_regression_by_hand() -> None:
    rng = np.random.default_rng(0)
    criteria = rng.random((50, 4))
    criteria -= criteria.mean(axis=0)
    one = criteria[:, :1]
    correlations = np.array([np.corrcoef(one[:, 0], column)[0, 1] for column in criteria.T])
    variances = criteria.var(axis=0)
    assert explained_variance(criteria, one) == pytest.approx((correlations**2 @ variances) / variances.sum())
    assert explained_variance(criteria, criteria) == pytest.approx(1.0)
    assert explained_variance(0 * criteria, one) == 1.0


def test_a_mapped_pool_holds_the_rewards_of_good_answers_alone() -> None:
    pool = random_pool()
    found = hand(metal={"gold": 0.5, "silver": 0.5}, bronze={"bronze": 1.0})
    mapped = mapped_pool(pool, found)
    good = pool.status == Status.OK
    np.testing.assert_allclose(mapped.rewards[good], found.apply(pool.active_rewards()[good]), atol=1e-6)
    assert not mapped.rewards[~good].any()
    assert mapped.active.tolist() == [[True, True], [True, False], [True, True]]
    assert mapped.scalar_weights.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]


def test_a_pool_is_decomposed_from_its_good_answers_prompt_by_prompt() -> None:
    pool = random_pool(rollouts=12)
    good = np.where((pool.status == Status.OK)[..., None], pool.rewards, 0.123)
    assert decompose_pool(pool, 2, "pca") == decompose_pool(replace(pool, rewards=good.astype(np.float32)), 2, "pca")
    moved = pool.rewards / 2 + np.array([0.0, 0.2, 0.5])[:, None, None, None]
    first, second = (decompose_pool(one, 2, "pca") for one in (pool, replace(pool, rewards=moved.astype(np.float32))))
    np.testing.assert_allclose(first.matrix, second.matrix, atol=0.02)
    with pytest.raises(ValueError, match="the pool holds no answer with the status ok"):
        decompose_pool(replace(pool, status=np.full_like(pool.status, Status.MISSING)), 2, "pca")


def test_a_prompt_without_active_objectives_is_named() -> None:
    with pytest.raises(ValueError, match="none of the 1 objectives is active for prompt 1, which has only 2 of the 3"):
        measure_decomposition(random_pool(), hand(bronze={"bronze": 1.0}))
    other = Decomposition.model_validate({"criteria": ("left",), "objectives": [{"name": "x", "weights": {}}]})
    with pytest.raises(ValueError, match="but the pool has gold, silver, bronze"):
        measure_decomposition(random_pool(), other)
