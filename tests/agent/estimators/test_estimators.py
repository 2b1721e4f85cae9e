"""The estimators: each against its formula written out, and what all of them promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vpo_agent.estimators import (
    Advantages,
    RewardGroups,
    advantages,
    available_estimators,
    estimator,
    register_estimator,
    standardise,
)
from vpo_agent.estimators.weights import draw_weights

SETS = ("vpo", "vpo_pool", "multi_rlvr")
DRAWN = ("vpo", "vpo_pool", "set_rl")
POOLS = ("vpo_pool", "set_rl", "max_at_k")
BUILT_IN = (*SETS, "set_rl", "max_at_k", "grpo")
MEAN_ZERO = tuple(name for name in BUILT_IN if name not in ("max_at_k", "set_rl"))
STANDARDISED = ("vpo", "vpo_pool", "multi_rlvr", "grpo")


def batch(
    prompts: int = 6, rollouts: int = 8, answers: int = 3, objectives: int = 4, draws: int = 16, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return rewards (P, G, m, d) and weights (P, K, d), float64."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(prompts, rollouts, answers, objectives, generator=generator, dtype=torch.float64)
    weights = torch.from_numpy(draw_weights(range(prompts), num_objectives=objectives, num_weights=draws, seed=seed))
    # In float32 they sum to 1 up to rounding, which is divided out.
    return rewards, weights.double() / weights.double().sum(-1, keepdim=True)


def batch_for(method: str, **sizes: int) -> tuple[Tensor, Tensor]:
    """Return a batch with as many answers as the method takes."""
    return batch(answers=1 if estimator(method).answers == "single" else 3, **sizes)


def standardised_by_hand(scores: list[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
    return [0.0 if deviation < 1e-6 else (score - mean) / (deviation + 1e-6) for score in scores]


def vpo_by_hand(rewards: Tensor, weights: Tensor) -> tuple[list[list[float]], list[list[float]]]:
    """Return advantages and set scores as the paper states them, one number at a time."""
    all_advantages, all_scores = [], []
    for prompt, draws in zip(rewards.tolist(), weights.tolist(), strict=True):
        scores = []
        for rollout in prompt:
            total = 0.0
            for draw in draws:
                total += max(sum(w * r for w, r in zip(draw, answer, strict=True)) for answer in rollout)
            scores.append(total / len(draws))
        all_scores.append(scores)
        all_advantages.append(standardised_by_hand(scores))
    return all_advantages, all_scores


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_vpo_is_the_formula_of_the_paper(dtype: torch.dtype) -> None:
    rewards, weights = batch()
    rewards, weights = rewards.to(dtype), weights.to(dtype)
    by_hand, scores = vpo_by_hand(rewards, weights)
    result = advantages(rewards, weights=weights)
    torch.testing.assert_close(result.advantages, torch.tensor(by_hand, dtype=dtype), atol=1e-6, rtol=0)
    torch.testing.assert_close(result.scores, torch.tensor(scores, dtype=dtype), atol=1e-6, rtol=0)
    assert result.advantages.dtype == result.scores.dtype == dtype


def test_one_answer_under_one_weighting_is_grpo() -> None:
    """By symmetric weights of one value, where the mean over drawn weights is the mean over the objectives."""
    rewards, weights = batch(answers=1)
    even = torch.full_like(weights, 0.25)
    for method in ("vpo", "multi_rlvr"):
        result = advantages(rewards, method=method, weights=even)
        torch.testing.assert_close(result.advantages, advantages(rewards, method="grpo").advantages, atol=1e-9, rtol=0)


def test_multi_rlvr_scores_the_mean_answer() -> None:
    rewards, _ = batch()
    result = advantages(rewards, method="multi_rlvr", scalar_weights=[1, 2, 3, 4])
    expected = (rewards.mean(dim=2) * torch.tensor([0.1, 0.2, 0.3, 0.4])).sum(dim=-1)
    torch.testing.assert_close(result.scores, expected, atol=1e-6, rtol=0)


def test_grpo_is_its_formula() -> None:
    rewards = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64).reshape(1, 4, 1, 1)
    signs = torch.tensor([[-1.0, 1.0, 1.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(advantages(rewards, method="grpo").advantages, signs, atol=1e-5, rtol=0)


# --- max_at_k, whose other properties are those of the pool (test_pooling.py) ---


def test_max_at_k_stays_exact_for_large_groups() -> None:
    # C(400, 200) has 120 digits. The best of distinct scores adds max - E[max of a random (k-1)-subset of the rest].
    n, k = 400, 200
    rewards = torch.linspace(0, 1, n, dtype=torch.float64).view(1, n, 1, 1)
    result = advantages(rewards, method="max_at_k", k=k).advantages[0]
    rest = rewards.flatten()[:-1]
    chances = [math.comb(i, k - 2) / math.comb(n - 1, k - 1) for i in range(n - 1)]
    expected = k * (1 - sum(c * r for c, r in zip(chances, rest.tolist(), strict=True)))
    assert result[-1].item() == pytest.approx(expected, rel=1e-9)
    assert result[0].item() == pytest.approx(0, abs=1e-9)


# --- what all of them promise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BUILT_IN)
def test_groups_of_equal_scores_and_groups_of_one_teach_nothing(method: str) -> None:
    rewards, weights = batch_for(method)
    equal = rewards[:, :1].expand_as(rewards) * 0.7
    torch.testing.assert_close(
        advantages(equal, method=method, weights=weights).advantages,
        torch.zeros(6, 8, dtype=torch.float64),
        atol=0,
        rtol=0,
    )
    alone = advantages(rewards[:, :1], method=method, weights=weights)
    torch.testing.assert_close(alone.advantages, torch.zeros(6, 1, dtype=torch.float64), atol=0, rtol=0)


@pytest.mark.parametrize("method", MEAN_ZERO)
def test_advantages_of_a_group_sum_to_zero(method: str) -> None:
    rewards, weights = batch_for(method)
    valid = torch.ones(6, 8, dtype=torch.bool)
    valid[0, :3] = False
    result = advantages(rewards, method=method, weights=weights, valid=valid).advantages
    torch.testing.assert_close(result.sum(dim=1), torch.zeros(6, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", STANDARDISED)
def test_advantages_of_a_group_have_unit_deviation(method: str) -> None:
    rewards, weights = batch_for(method)
    result = advantages(rewards, method=method, weights=weights).advantages
    torch.testing.assert_close(result.std(dim=1, correction=0), torch.ones(6, dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("method", BUILT_IN)
def test_permuting_prompts_rollouts_or_answers_permutes_the_advantages(method: str) -> None:
    rewards, weights = batch_for(method)
    plain = advantages(rewards, method=method, weights=weights).advantages
    generator = torch.Generator().manual_seed(1)
    prompts, rollouts = torch.randperm(6, generator=generator), torch.randperm(8, generator=generator)
    shuffled = rewards[prompts][:, rollouts].flip(2)
    result = advantages(
        shuffled, method=method, weights=weights[prompts].flip(1) if method in ("vpo", *POOLS) else weights[prompts]
    )
    torch.testing.assert_close(result.advantages, plain[prompts][:, rollouts], atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", BUILT_IN)
@pytest.mark.parametrize("garbage", [1.0, -50.0, math.nan, math.inf])
def test_inactive_objectives_never_count(method: str, garbage: float) -> None:
    rewards, _ = batch_for(method)
    active = torch.ones(6, 4, dtype=torch.bool)
    active[::2, 1] = False
    active[3, 2:] = False
    drawn = draw_weights(range(6), num_objectives=4, num_weights=16, active=active.numpy())
    weights = torch.from_numpy(drawn).double()
    filled = torch.where(active[:, None, None, :], rewards, garbage)
    first = advantages(rewards, method=method, weights=weights, active=active)
    second = advantages(filled, method=method, weights=weights, active=active)
    torch.testing.assert_close(second.advantages, first.advantages, atol=0, rtol=0)
    torch.testing.assert_close(second.scores, first.scores, atol=0, rtol=0)


@pytest.mark.parametrize("method", BUILT_IN)
def test_a_task_with_an_inactive_objective_is_the_task_without_it(method: str) -> None:
    rewards, weights = batch_for(method)
    active = torch.tensor([True, True, False, True]).expand(6, 4)
    masked = advantages(rewards, method=method, weights=weights, active=active, scalar_weights=[1, 2, 9, 3])
    kept = [0, 1, 3]
    shorter = weights[..., kept] / weights[..., kept].sum(dim=-1, keepdim=True)
    narrow = advantages(rewards[..., kept], method=method, weights=shorter, scalar_weights=[1, 2, 3])
    torch.testing.assert_close(masked.advantages, narrow.advantages, atol=1e-9, rtol=0)
    torch.testing.assert_close(masked.scores, narrow.scores, atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", BUILT_IN)
def test_a_group_with_invalid_rollouts_is_the_group_without_them(method: str) -> None:
    rewards, weights = batch_for(method, prompts=1)
    valid = torch.tensor([[True, False, True, True, False, True, True, True]])
    filled = torch.where(valid[..., None, None], rewards, math.nan)
    options: dict[str, Any] = {"k": 3} if method in POOLS else {}
    masked = advantages(filled, method=method, weights=weights, valid=valid, **options)
    alone = advantages(rewards[:, valid[0]], method=method, weights=weights, **options)
    for full, part in zip(masked, alone, strict=True):
        if full is None or part is None:
            assert full is part
            continue
        torch.testing.assert_close(full[valid], part[0], atol=1e-12, rtol=0)
        assert (full[~valid] == 0).all()


@pytest.mark.parametrize("method", BUILT_IN)
def test_a_batch_of_invalid_rollouts_is_all_zeros(method: str) -> None:
    rewards, weights = batch_for(method)
    result = advantages(rewards, method=method, weights=weights, valid=torch.zeros(6, 8, dtype=torch.bool))
    assert not result.advantages.any()
    assert not result.scores.any()


@pytest.mark.parametrize("method", BUILT_IN)
def test_inputs_are_left_as_they_were(method: str) -> None:
    rewards, weights = batch_for(method)
    scalar, active = torch.ones(4, dtype=torch.float64), torch.ones(6, 4, dtype=torch.bool)
    active[0, 0] = False
    valid = torch.ones(6, 8, dtype=torch.bool)
    given = (rewards, weights, scalar, active, valid)
    before = [tensor.clone() for tensor in given]
    advantages(rewards, method=method, weights=weights, scalar_weights=scalar, active=active, valid=valid)
    for tensor, copy in zip(given, before, strict=True):
        assert torch.equal(tensor, copy)


@pytest.mark.parametrize("method", BUILT_IN)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes_are_computed_and_returned_in_float32(method: str, dtype: torch.dtype) -> None:
    rewards, weights = batch_for(method)
    rewards = rewards.round() if dtype == torch.int64 else rewards
    result = advantages(rewards.to(dtype), method=method, weights=weights)
    expected = advantages(rewards.to(dtype).double(), method=method, weights=weights)
    assert result.advantages.dtype == result.scores.dtype == torch.float32
    torch.testing.assert_close(result.advantages.double(), expected.advantages, atol=1e-5, rtol=0)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_vpo_holds_on_any_rewards(data: st.DataObject) -> None:
    prompts, rollouts, answers, objectives = (data.draw(st.integers(1, 4)) for _ in range(4))
    level = st.integers(0, 4).map(lambda value: value / 4)
    size = prompts * rollouts * answers * objectives
    values = data.draw(st.lists(level, min_size=size, max_size=size))
    rewards = torch.tensor(values, dtype=torch.float64).view(prompts, rollouts, answers, objectives)
    drawn = draw_weights(range(prompts), num_objectives=objectives, num_weights=4)
    weights = torch.from_numpy(drawn).double()
    result = advantages(rewards, weights=weights)
    by_hand, _ = vpo_by_hand(rewards, weights)
    torch.testing.assert_close(result.advantages, torch.tensor(by_hand, dtype=torch.float64), atol=1e-6, rtol=1e-6)
    # An answer more can only help, and no set beats its best answer in every objective.
    single = advantages(rewards[:, :, :1], weights=weights)
    assert (result.scores >= single.scores - 1e-12).all()
    assert (result.scores <= rewards.amax(dim=(2, 3)) + 1e-6).all()


# --- registry and errors ----------------------------------------------------------------------------------------------


def test_the_table_of_the_paper_is_registered() -> None:
    assert set(BUILT_IN) <= set(available_estimators())
    for name in BUILT_IN:
        entry = estimator(name)
        assert entry.name == name
        assert entry.answers == ("set" if name in SETS else "single")
        assert entry.needs_weights == (name in DRAWN)


@pytest.mark.usefixtures("own_registry")
def test_a_user_can_register_an_estimator() -> None:
    @register_estimator("best_answer", answers="set")
    def best_answer(groups: RewardGroups, *, power: float = 1.0) -> Advantages:
        """Best answer under the fixed weights."""
        scores = groups.scalar_scores().amax(dim=-1) ** power
        return Advantages(standardise(scores, groups.valid), scores)

    rewards, _ = batch()
    result = advantages(rewards, method="best_answer", power=2.0)
    torch.testing.assert_close(result.scores, rewards.mean(dim=-1).amax(dim=-1) ** 2)
    assert estimator("best_answer").function is best_answer


@pytest.mark.usefixtures("own_registry")
def test_an_estimator_of_the_wrong_shape_is_named() -> None:
    @register_estimator("wrong", answers="set")
    def wrong(groups: RewardGroups) -> Advantages:
        scores = groups.scalar_scores()
        return Advantages(scores, scores)

    with pytest.raises(ValueError, match=r"advantages of wrong need shape \(6, 8\), one per rollout; got \(6, 8, 3\)"):
        advantages(batch()[0], method="wrong")


def test_names_and_kinds_are_checked() -> None:
    with pytest.raises(ValueError, match="'vpo' is already registered"):
        register_estimator("vpo", answers="set")
    with pytest.raises(ValueError, match="'single' or 'set'; got 'many'"):
        register_estimator("anything", answers="many")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ValueError, match=r"unknown method 'ppo': did you mean vpo\? choose one of vpo, vpo_pool"):
        estimator("ppo")


@pytest.mark.parametrize("method", [name for name in BUILT_IN if name not in SETS])
def test_methods_of_one_answer_refuse_several(method: str) -> None:
    rewards, weights = batch()
    with pytest.raises(
        ValueError, match=f"{method} scores one answer.*got rewards of 3.*num_answers=1.*multi_rlvr or vpo"
    ):
        advantages(rewards, method=method, weights=weights)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": None}, "vpo needs weights of shape .*draw_weights"),
        ({"weights": torch.full((6, 8, 3), 1 / 3)}, r"weights need shape \(6, K, 4\).*got \(6, 8, 3\)"),
        ({"weights": torch.full((6, 0, 4), 0.25)}, r"weights need shape \(6, K, 4\).*got \(6, 0, 4\)"),
        ({"weights": torch.full((4,), 0.25)}, r"weights need shape .*got \(4,\)"),
        ({"weights": torch.ones(6, 8, 4)}, "must sum to 1 over the objectives; one row is off by 3"),
        ({"weights": torch.tensor([1.5, -0.5, 0, 0]).expand(6, 8, 4)}, "not negative; got -0.5"),
        ({"scalar_weights": [1, 1, 1]}, "scalar_weights need 4 values, one per objective; got 3"),
        ({"scalar_weights": torch.ones(6, 3)}, "scalar_weights need 4 values, one per objective; got 3"),
        ({"scalar_weights": torch.ones(5, 4)}, "scalar_weights need 6 rows, one per prompt; got 5"),
        ({"scalar_weights": torch.ones(1, 5, 4)}, r"scalar_weights need shape \(d,\) or \(P, d\)"),
        ({"scalar_weights": [1.0, -1.0, 1.0, 1.0]}, "scalar_weights must be finite and not negative; got -1"),
        ({"scalar_weights": [0.0, 0.0, 0.0, 0.0]}, "scalar_weights need a positive value.*prompt 0"),
        ({"rewards": torch.zeros(6, 8, 4)}, r"rewards need shape .*got \(6, 8, 4\)"),
        ({"rewards": torch.zeros(6, 0, 3, 4)}, r"none of them 0; got \(6, 0, 3, 4\)"),
        ({"rewards": torch.full((6, 8, 3, 4), math.nan)}, "rewards must be finite; those of prompt 0.*valid"),
        ({"active": torch.ones(6, 3, dtype=torch.bool)}, r"active needs shape \(6, 4\).*got \(6, 3\)"),
        ({"active": torch.zeros(6, 4, dtype=torch.bool)}, "prompt 0 has none"),
        ({"valid": torch.ones(8, 6, dtype=torch.bool)}, r"valid needs shape \(6, 8\).*got \(8, 6\)"),
        ({"k": 3}, "vpo takes no options; got 'k'"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    rewards, weights = batch()
    arguments: dict[str, Any] = {"rewards": rewards, "weights": weights} | changed
    with pytest.raises(ValueError, match=message):
        advantages(arguments.pop("rewards"), **arguments)


def test_fixed_weights_on_inactive_objectives_alone_are_an_error() -> None:
    rewards, _ = batch()
    active = torch.ones(6, 4, dtype=torch.bool)
    active[2, 0] = False
    with pytest.raises(ValueError, match="those of prompt 2 are all zero there"):
        advantages(rewards, method="multi_rlvr", scalar_weights=[1, 0, 0, 0], active=active)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("max_at_k", {"k": [1, 2]}, r"method_options k=\[1, 2\] is invalid for max_at_k: give a whole number"),
        ("max_at_k", {"k": True}, "k=True is invalid for max_at_k: give a whole number"),
        ("max_at_k", {"k": "x"}, "k='x' is invalid for max_at_k: give a whole number"),
        ("max_at_k", {"k": 2.5}, "k=2.5 is invalid for max_at_k: give a whole number"),
    ],
)
def test_options_of_a_wrong_type_are_named(method: str, options: dict[str, Any], message: str) -> None:
    rewards, weights = batch(answers=1)
    with pytest.raises(ValueError, match=message):
        advantages(rewards, method=method, weights=weights, **options)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("value", ["abc", [1, 2], True, None])
def test_options_of_ones_own_method_are_numbers_where_the_default_is_one(value: Any) -> None:
    @register_estimator("sharp", answers="single")
    def sharp(groups: RewardGroups, *, beta: float = 2.0) -> Advantages:
        return Advantages(beta * groups.scalar_scores()[..., 0], groups.scalar_scores()[..., 0])

    rewards, _ = batch(answers=1)
    torch.testing.assert_close(advantages(rewards, method="sharp", beta=3).advantages, 3 * rewards.mean(dim=(2, 3)))
    with pytest.raises(ValueError, match=r"method_options beta=.* is invalid for sharp: give a number \(default 2.0"):
        advantages(rewards, method="sharp", beta=value)


# --- prompts that ask for different numbers of answers ---


@pytest.mark.parametrize("method", SETS)
def test_prompts_that_ask_for_fewer_answers_are_scored_as_alone(method: str) -> None:
    """Whatever stands in the padding, a prompt gets what it gets in a batch of its own."""
    rewards, weights = batch(prompts=4, answers=3)
    counts = [3, 1, 2, 3]
    answered = torch.arange(3) < torch.tensor(counts)[:, None]
    padded = torch.where(answered[:, None, :, None], rewards, torch.nan)
    mixed = advantages(padded, method=method, weights=weights, answered=answered)
    for prompt, m in enumerate(counts):
        one = slice(prompt, prompt + 1)
        alone = advantages(rewards[one, :, :m], method=method, weights=weights[one])
        torch.testing.assert_close(mixed.advantages[one], alone.advantages, atol=1e-12, rtol=0)
        torch.testing.assert_close(mixed.scores[one], alone.scores, atol=1e-12, rtol=0)


def test_a_prompt_without_answers_is_named() -> None:
    rewards, weights = batch(prompts=2)
    answered = torch.tensor([[True, False, False], [False, False, False]])
    with pytest.raises(ValueError, match="every prompt needs an answer; prompt 1 has none"):
        advantages(rewards, weights=weights, answered=answered)
    with pytest.raises(ValueError, match=r"answered needs shape \(2, 3\), \(prompts, answers\); got \(2, 2\)"):
        advantages(rewards, weights=weights, answered=answered[:, :2])


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("compares", [True, False])
def test_an_estimator_returns_what_it_is_registered_for(compares: bool) -> None:
    def scores(groups: RewardGroups) -> Tensor:
        return groups.best_answer(groups.scalar_scores())

    def both(groups: RewardGroups) -> Advantages:
        return Advantages(standardise(scores(groups), groups.valid), scores(groups))

    wrong, right = (scores, both) if compares else (both, scores)
    register_estimator("wrong", answers="set", compares_rollouts=compares)(wrong)
    register_estimator("right", answers="set", compares_rollouts=compares)(right)
    rewards, _ = batch()
    wanted = "Advantages" if compares else "Tensor"
    with pytest.raises(TypeError, match=f"registered with compares_rollouts={compares}, so it must return {wanted}"):
        advantages(rewards, method="wrong")
    result = advantages(rewards, method="right")
    best = rewards.mean(-1).amax(-1)
    torch.testing.assert_close(result.scores, best)
    torch.testing.assert_close(result.advantages[0], torch.tensor(standardised_by_hand(best[0].tolist())).double())
