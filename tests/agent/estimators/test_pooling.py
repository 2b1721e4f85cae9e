"""The family of set estimators: against brute force over all subsets and weightings, and at each of its corners."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from vpo_agent.estimators import advantages, standardise
from vpo_agent.estimators.weights import draw_weights


def batch(rollouts: int = 6, answers: int = 3, prompts: int = 4, tied: bool = False) -> tuple[Tensor, Tensor]:
    """Rewards (P, G, m, 3) and weights (P, 5, 3), float64."""
    generator = torch.Generator().manual_seed(rollouts)
    rewards = torch.rand(prompts, rollouts, answers, 3, generator=generator, dtype=torch.float64)
    weights = torch.from_numpy(draw_weights(range(prompts), num_objectives=3, num_weights=5, sampler="iid")).double()
    # In float32 they sum to 1 up to rounding, which estimators divide out.
    return (rewards * 2).round() / 2 if tied else rewards, weights / weights.sum(-1, keepdim=True)


def best_of(rollouts: list[Any], weighting: list[float]) -> float:
    """Return the utility of the best answer in several rollouts."""
    return max(sum(w * r for w, r in zip(weighting, answer, strict=True)) for rollout in rollouts for answer in rollout)


def by_hand(rollouts: list[Any], weightings: list[list[float]], k: int, baseline: str) -> list[float]:
    """Return A_i by listing every subset under every weighting; "marginal" is Poly-EPO's difference of two means."""
    result = []
    for i, own in enumerate(rollouts):
        others = rollouts[:i] + rollouts[i + 1 :]
        total = 0.0
        for w in weightings:
            rest = list(itertools.combinations(others, k - 1))
            containing = sum(best_of([own, *subset], w) for subset in rest) / len(rest)
            compared = {"subset": rest, "others": others, "marginal": rollouts}[baseline]
            pools = rest if baseline == "subset" else list(itertools.combinations(compared, k))
            base = sum(best_of(list(pool), w) for pool in pools) / len(pools)
            total += (containing - base) * (1 if baseline == "marginal" else k)
        result.append(total / len(weightings))
    return result


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("baseline", "n", "k"),
    [("subset", n, k) for n, k in [(2, 2), (3, 3), (5, 2), (6, 4)]]
    + [("others", n, k) for n, k in [(2, 1), (3, 2), (5, 3), (6, 1), (6, 4)]],
)
def test_the_pool_is_the_mean_over_all_subsets_and_weightings(
    baseline: str, n: int, k: int, tied: bool, answers: int
) -> None:
    rewards, weights = batch(n, answers, tied=tied)
    result = advantages(rewards, method="vpo_pool", weights=weights, k=k, baseline=baseline)
    for prompt, draws, row in zip(rewards.tolist(), weights.tolist(), result.advantages.tolist(), strict=True):
        assert row == pytest.approx(by_hand(prompt, draws, k, baseline), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_group_baseline_standardises_the_marginal_set_advantage(k: int) -> None:
    rewards, weights = batch()
    result = advantages(rewards, method="vpo_pool", weights=weights, k=k).advantages
    others = advantages(rewards, method="vpo_pool", weights=weights, k=k, baseline="others").advantages
    marginal = torch.tensor(
        [by_hand(p, w, k, "marginal") for p, w in zip(rewards.tolist(), weights.tolist(), strict=True)],
        dtype=torch.float64,
    )
    torch.testing.assert_close(others, k * 6 / (6 - k) * marginal, atol=1e-12, rtol=0)
    everyone = torch.ones(4, 6, dtype=torch.bool)
    torch.testing.assert_close(result, standardise(marginal, everyone), atol=1e-3, rtol=0)


@pytest.mark.parametrize("baseline", ["subset", "others", "group"])
def test_the_pool_without_invalid_rollouts_is_the_pool_of_the_rest(baseline: str) -> None:
    rewards, weights = batch(prompts=6)
    generator = torch.Generator().manual_seed(3)
    valid = torch.rand(6, 6, generator=generator) < 0.6
    valid[0], valid[1] = False, False
    valid[1, 4] = True
    options = {"k": 3, "baseline": baseline}
    result = advantages(rewards, method="vpo_pool", weights=weights, valid=valid, **options).advantages
    assert not result[~valid].any()
    for p in range(6):
        rest = [rollout for rollout, kept in zip(rewards[p].tolist(), valid[p].tolist(), strict=True) if kept]
        k = min(3, len(rest) - (baseline != "subset"))
        expected = torch.zeros(len(rest), dtype=torch.float64)
        if len(rest) >= 2:
            name = "subset" if baseline == "subset" else "others"
            expected = torch.tensor(by_hand(rest, weights[p].tolist(), k, name), dtype=torch.float64)
        if baseline == "group":
            expected = standardise(expected[None], torch.ones(1, len(rest), dtype=torch.bool))[0]
        torch.testing.assert_close(result[p, valid[p]], expected, atol=1e-4 if baseline == "group" else 1e-12, rtol=0)


@pytest.mark.parametrize("baseline", ["subset", "others"])
def test_the_pool_is_the_gradient_of_the_expected_best_answer(baseline: str) -> None:
    """Every outcome of three rollouts from a softmax over four sets of two answers, so both sides are exact."""
    logits = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(4, 2, 3, generator=generator, dtype=torch.float64)
    weights = torch.from_numpy(draw_weights([0], num_objectives=3, num_weights=8)).double()
    weights = weights / weights.sum(-1, keepdim=True)
    n, k = 3, 2
    probabilities = logits.softmax(0)
    worth = {
        pool: sum(best_of(sets[list(pool)].tolist(), w) for w in weights[0].tolist()) / 8
        for pool in itertools.product(range(4), repeat=k)
    }
    target: Any = sum(probabilities[list(pool)].prod() * value for pool, value in worth.items())
    (exact,) = torch.autograd.grad(target, logits)
    fixed = probabilities.detach()
    estimate = torch.zeros(4, dtype=torch.float64)
    for drawn in itertools.product(range(4), repeat=n):
        pulls = advantages(sets[list(drawn)][None], method="vpo_pool", weights=weights, k=k, baseline=baseline)
        for i, pull in zip(drawn, pulls.advantages[0], strict=True):
            estimate += fixed[list(drawn)].prod() * pull * (torch.eye(4, dtype=torch.float64)[i] - fixed) / n
    torch.testing.assert_close(estimate, exact, atol=1e-12, rtol=0)


# --- the corners ------------------------------------------------------------------------------------------------------


def test_a_pool_of_one_rollout_is_vpo() -> None:
    rewards, weights = batch()
    pool = advantages(rewards, method="vpo_pool", weights=weights, k=1)
    vpo = advantages(rewards, weights=weights)
    assert torch.equal(pool.advantages, vpo.advantages)
    assert torch.equal(pool.scores, vpo.scores)


def test_one_answer_under_drawn_weights_is_set_rl() -> None:
    rewards, weights = batch(answers=1)
    pool = advantages(rewards, method="vpo_pool", weights=weights, k=3, baseline="subset")
    assert torch.equal(pool.advantages, advantages(rewards, method="set_rl", weights=weights).advantages)


@pytest.mark.parametrize("baseline", ["subset", "others", "group"])
@pytest.mark.parametrize("k", [2, 4])
def test_set_rl_without_a_vector_is_max_at_k(baseline: str, k: int) -> None:
    rewards, weights = batch(answers=1)
    one, options = weights[:, :1], {"k": k, "baseline": baseline}
    without = advantages(rewards, method="set_rl", weights=one.expand(-1, 5, -1), **options)
    single = advantages(rewards, method="max_at_k", scalar_weights=one[:, 0], **options)
    torch.testing.assert_close(without.advantages, single.advantages, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 6}, "k must lie between 1 and 5 with 6 rollouts per prompt and baseline='group'; got 6"),
        ({"k": 1, "baseline": "subset"}, "k must lie between 2 and 6 .* got 1"),
        ({"baseline": "mean"}, "baseline must be one of group, subset, others; got 'mean'"),
        ({"k": 2.5}, "k=2.5 is invalid for vpo_pool: give a whole number"),
    ],
)
def test_wrong_options_of_the_pool_are_named(options: dict[str, Any], message: str) -> None:
    rewards, weights = batch()
    with pytest.raises(ValueError, match=message):
        advantages(rewards, method="vpo_pool", weights=weights, **options)
