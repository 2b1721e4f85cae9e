"""Credit for each answer: each kind against its formula written out another way."""

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


def test_without_credit_vpo_credit_is_vpo() -> None:
    rewards, weights = batch()
    plain = advantages(rewards, weights=weights)
    result = advantages(rewards, weights=weights, method="vpo_credit", credit="0*prefix")
    torch.testing.assert_close(result.advantages, plain.advantages)
    assert result.credit is not None
    assert not result.credit.any()


def standardised(scores: Tensor) -> Tensor:
    """Each row less its mean, over its population deviation."""
    return (scores - scores.mean(dim=1, keepdim=True)) / (scores.std(dim=1, correction=0, keepdim=True) + 1e-6)


def test_marginal_credit_is_what_the_set_loses_without_the_answer() -> None:
    rewards, weights = batch()
    result = advantages(rewards, weights=weights, method="vpo_credit", credit="marginal")
    whole = advantages(rewards, weights=weights).scores
    assert result.credit is not None
    for s in range(3):
        rest = advantages(rewards[:, :, [i for i in range(3) if i != s]], weights=weights).scores
        torch.testing.assert_close(result.credit[:, :, s], standardised(whole - rest), atol=1e-9, rtol=0)


@pytest.mark.parametrize("credit", ["prefix", "marginal"])
@pytest.mark.parametrize("spread", [3e-5, 1e-3])
def test_credit_is_bounded_where_the_scores_of_a_group_are_nearly_alike(credit: str, spread: float) -> None:
    """The last answer is the best one in all rollouts of the first group, so only what precedes it differs there."""
    rewards, weights = batch(prompts=16)
    rewards[0, :, 2] = 0.99 + spread * rewards[0, :, 2]
    result = advantages(rewards, weights=weights, method="vpo_credit", credit=credit)
    assert result.credit is not None
    assert 0 < float(result.scores[0].std()) < 2 * spread
    # Of n numbers with mean 0 and deviation 1 none exceeds sqrt(n - 1).
    largest = math.sqrt(8 - 1)
    of_tokens = result.credit if credit == "marginal" else result.advantages[..., None] + result.credit
    assert float(of_tokens[0].abs().max()) > 0.5
    assert float(of_tokens.abs().max()) <= largest
    assert float(result.credit.abs().max()) <= 2 * largest


@pytest.mark.parametrize("credit", ["prefix", "marginal"])
def test_a_group_of_equal_scores_gets_no_credit(credit: str) -> None:
    rewards, weights = batch(prompts=16)
    rewards[0, :, 2] = 1.0
    result = advantages(rewards, weights=weights, method="vpo_credit", credit=credit)
    assert result.credit is not None
    assert not result.credit[0].any()
    assert not result.advantages[0].any()
    assert result.credit[1:].any()


def test_own_credit_is_the_reward_of_the_answer_against_all_answers_of_the_group() -> None:
    rewards, weights = batch()
    valid = torch.ones(5, 8, dtype=torch.bool)
    valid[1, 3] = False
    result = advantages(
        rewards,
        weights=weights,
        method="vpo_credit",
        credit="0.5*own",
        valid=valid,
        scalar_weights=[1, 2, 0, 1],
    )
    scalar = (rewards * torch.tensor([0.25, 0.5, 0.0, 0.25])).sum(-1)
    assert result.credit is not None
    assert not result.credit[1, 3].any()
    for prompt in range(5):
        kept = scalar[prompt][valid[prompt]]
        expected = 0.5 * (kept - kept.mean()) / (kept.std(correction=0) + 1e-6)
        torch.testing.assert_close(result.credit[prompt][valid[prompt]], expected)


def test_prefix_credit_replaces_the_advantage_by_the_standardised_residual() -> None:
    """The residual of the least-squares fit of the score on that of the answers before, over all groups at once."""
    rewards, weights = batch(prompts=40)
    result = advantages(rewards, weights=weights, method="vpo_credit")
    assert result.credit is not None
    assert not result.credit[:, :, 0].any(), "nothing precedes the first answer"
    centred = result.scores - result.scores.mean(dim=1, keepdim=True)
    for s in (1, 2):
        before = advantages(rewards[:, :, :s], weights=weights).scores
        before = before - before.mean(dim=1, keepdim=True)
        slope = torch.linalg.lstsq(before.reshape(-1, 1), centred.reshape(-1, 1)).solution.item()
        residual = centred - slope * before
        assert float(residual.square().sum()) < 0.95 * float(centred.square().sum())
        of_tokens = result.advantages + result.credit[:, :, s]
        torch.testing.assert_close(of_tokens, standardised(residual), atol=1e-6, rtol=0)


def test_kinds_of_credit_add_up() -> None:
    rewards, weights = batch()

    def credit(kinds: str) -> Tensor:
        given = advantages(rewards, weights=weights, method="vpo_credit", credit=kinds).credit
        assert given is not None
        return given

    torch.testing.assert_close(credit("prefix+own"), credit("prefix") + credit("own"))
    torch.testing.assert_close(credit(" 0.5*own + marginal"), 0.5 * credit("own") + credit("marginal"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"credit": "shapley"}, "credit must be 'prefix', 'marginal' or 'own', or a sum .* got 'shapley'"),
        ({"credit": "prefix+x*own"}, r"or a sum such as 'prefix\+0.5\*own'; got 'prefix\+x\*own'"),
        ({"credit": ["prefix", "own"]}, r"got \['prefix', 'own'\]"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, object], message: str) -> None:
    rewards, weights = batch()
    with pytest.raises(ValueError, match=message):
        advantages(rewards, weights=weights, method="vpo_credit", **options)
