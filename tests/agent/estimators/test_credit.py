"""Credit for each answer, against its formula written out another way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vpo_agent.estimators import advantages
from vpo_agent.estimators.weights import draw_weights


def batch(answers: int = 3, objectives: int = 4, prompts: int = 5, rollouts: int = 8) -> tuple[Tensor, Tensor]:
    """Rewards (P, G, m, d) and weights (P, K, d), float64."""
    generator = torch.Generator().manual_seed(answers)
    rewards = torch.rand(prompts, rollouts, answers, objectives, generator=generator, dtype=torch.float64)
    weights = draw_weights(range(prompts), num_objectives=objectives, num_weights=16)
    return rewards, torch.from_numpy(weights).double()


def standardised(scores: Tensor) -> Tensor:
    """Each row less its mean, over its population deviation."""
    return (scores - scores.mean(dim=1, keepdim=True)) / (scores.std(dim=1, correction=0, keepdim=True) + 1e-6)


def test_credit_is_what_the_set_loses_without_the_answer() -> None:
    rewards, weights = batch()
    result = advantages(rewards, weights=weights, method="vpo_credit")
    plain = advantages(rewards, weights=weights)
    whole = plain.scores
    assert torch.equal(result.advantages, plain.advantages)
    assert result.credit is not None
    for s in range(3):
        rest = advantages(rewards[:, :, [i for i in range(3) if i != s]], weights=weights).scores
        torch.testing.assert_close(result.credit[:, :, s], standardised(whole - rest), atol=1e-9, rtol=0)


@pytest.mark.parametrize("spread", [3e-5, 1e-3])
def test_credit_is_bounded_where_the_scores_of_a_group_are_nearly_alike(spread: float) -> None:
    """The last answer is the best one in all rollouts of the first group, so only what precedes it differs there."""
    rewards, weights = batch(prompts=16)
    rewards[0, :, 2] = 0.99 + spread * rewards[0, :, 2]
    result = advantages(rewards, weights=weights, method="vpo_credit")
    assert result.credit is not None
    assert 0 < float(result.scores[0].std()) < 2 * spread
    # Of n numbers with mean 0 and deviation 1 none exceeds sqrt(n - 1).
    largest = math.sqrt(8 - 1)
    assert float(result.credit[0].abs().max()) > 0.5
    assert float(result.credit.abs().max()) <= largest


def test_a_group_of_equal_scores_gets_no_credit() -> None:
    rewards, weights = batch(prompts=16)
    rewards[0, :, 2] = 1.0
    result = advantages(rewards, weights=weights, method="vpo_credit")
    assert result.credit is not None
    assert not result.credit[0].any()
    assert not result.advantages[0].any()
    assert result.credit[1:].any()
