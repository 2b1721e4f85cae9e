"""The policy loss: against a plain loop, in micro-batches, with dirty padding, and the theory of its KL estimator."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vpo_agent.estimators.losses import kl_per_token, policy_loss, truncated_importance


class Batch:
    """Random log-probs of a policy near the one that sampled, with one empty sequence."""

    def __init__(self, sequences: int = 6, length: int = 9, seed: int = 0) -> None:
        """Draw the tensors, float64."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.sampled = -normal(sequences, length).abs() - 0.1
        self.current = (self.sampled + 0.3 * normal(sequences, length)).requires_grad_()
        self.reference = self.sampled + 0.3 * normal(sequences, length)
        self.advantages = normal(sequences)
        lengths = torch.randint(1, length + 1, (sequences,), generator=generator)
        lengths[-1] = 0
        self.mask = torch.arange(length) < lengths[:, None]


def loss_by_hand(batch: Batch, kl_coef: float, clip_low: float, clip_high: float) -> float:
    tokens = []
    for i in range(len(batch.advantages)):
        for t in range(batch.mask.shape[1]):
            if not batch.mask[i, t]:
                continue
            advantage = batch.advantages[i].item()
            ratio = math.exp(batch.current[i, t].item() - batch.sampled[i, t].item())
            clipped = min(max(ratio, 1 - clip_low), 1 + clip_high)
            gap = batch.reference[i, t].item() - batch.current[i, t].item()
            kl = math.exp(gap) - 1 - gap
            tokens.append(-min(ratio * advantage, clipped * advantage) + kl_coef * kl)
    return sum(tokens) / len(tokens)


def test_the_loss_is_its_formula_token_by_token() -> None:
    batch = Batch()
    result = policy_loss(
        batch.current,
        batch.sampled,
        batch.advantages,
        batch.mask,
        clip_low=0.1,
        clip_high=0.3,
        reference_log_probs=batch.reference,
        kl_coef=0.2,
    )
    assert result.loss.item() == pytest.approx(loss_by_hand(batch, 0.2, 0.1, 0.3), abs=1e-12)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_padding_may_hold_anything(poison: float) -> None:
    batch = Batch()

    def run(current: Tensor, other: float | None) -> Any:
        def fill(values: Tensor) -> Tensor:
            return values if other is None else torch.where(batch.mask, values, other)

        per_token = batch.advantages[:, None].expand_as(batch.mask)
        return policy_loss(
            fill(current),
            fill(batch.sampled),
            fill(per_token),
            batch.mask,
            reference_log_probs=fill(batch.reference),
            kl_coef=0.1,
        )

    clean, dirty = run(batch.current, None), run(batch.current, poison)
    for field in clean._fields:
        assert getattr(dirty, field).item() == pytest.approx(getattr(clean, field).item(), abs=1e-12)
    leaf = torch.where(batch.mask, batch.current.detach(), poison).requires_grad_()
    (gradient,) = torch.autograd.grad(run(leaf, poison).loss, leaf)
    (expected,) = torch.autograd.grad(clean.loss, batch.current)
    assert gradient.isfinite().all()
    assert (gradient[~batch.mask] == 0).all()
    torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=0)


def test_a_batch_without_tokens_has_loss_zero_and_gradient_zero() -> None:
    batch = Batch()
    nothing = torch.zeros_like(batch.mask)
    result = policy_loss(batch.current, batch.sampled, batch.advantages, nothing)
    result.loss.backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
    assert result.loss.item() == 0
    assert result.tokens.item() == 0
    assert batch.current.grad is not None
    assert not batch.current.grad.any()


@pytest.mark.parametrize(
    ("advantage", "shift", "moves"), [(1.0, 0.5, False), (1.0, -0.5, True), (-1.0, 0.5, True), (-1.0, -0.5, False)]
)
def test_the_clip_stops_only_moves_that_went_far_enough(advantage: float, shift: float, moves: bool) -> None:
    sampled = torch.full((1, 1), -1.0)
    current = (sampled + shift).requires_grad_()
    result = policy_loss(current, sampled, torch.tensor([advantage]), torch.ones(1, 1, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(result.loss, current)
    assert bool(gradient.any()) is moves
    assert result.clip_fraction.item() == (0.0 if moves else 1.0)


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("gap", [-500.0, 500.0])
def test_extreme_ratios_keep_loss_and_gradient_finite(advantage: float, gap: float) -> None:
    sampled = torch.full((1, 3), -1.0)
    current = (sampled + gap).requires_grad_()
    result = policy_loss(
        current,
        sampled,
        torch.tensor([advantage]),
        torch.ones(1, 3, dtype=torch.bool),
        reference_log_probs=sampled,
        kl_coef=0.1,
    )
    (gradient,) = torch.autograd.grad(result.loss, current)
    assert result.loss.isfinite()
    assert gradient.isfinite().all()


def test_diagnostics_are_what_their_names_say() -> None:
    sampled = torch.zeros(1, 4, dtype=torch.float64)
    ratios = torch.tensor([[1.5, 1.0, 0.5, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    current = ratios.log().requires_grad_()
    result = policy_loss(current, sampled, torch.tensor([1.0]), mask)
    assert result.clip_fraction.item() == pytest.approx(1 / 3)
    assert result.approx_kl.item() == pytest.approx(sum(r - 1 - math.log(r) for r in (1.5, 1.0, 0.5)) / 3)
    assert result.tokens.item() == 3
    for field in result._fields:
        assert getattr(result, field).requires_grad is (field == "loss")


def test_half_precision_is_computed_in_float32() -> None:
    batch = Batch()
    result = policy_loss(batch.current.bfloat16(), batch.sampled.bfloat16(), batch.advantages.bfloat16(), batch.mask)
    assert result.loss.dtype == torch.float32


def test_without_a_coefficient_the_kl_is_measured_and_not_followed() -> None:
    batch = Batch()
    plain = policy_loss(batch.current, batch.sampled, batch.advantages, batch.mask)
    measured = policy_loss(
        batch.current, batch.sampled, batch.advantages, batch.mask, reference_log_probs=batch.reference
    )
    assert plain.kl.item() == 0
    assert measured.kl.item() > 0
    torch.testing.assert_close(measured.loss, plain.loss, atol=0, rtol=0)


# --- the KL estimator, exactly: expectations are sums over a vocabulary of five ---------------------------------------


def test_the_kl_estimator_is_unbiased_and_its_gradient_that_of_the_forward_kl() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.randn(5, generator=generator, dtype=torch.float64).log_softmax(0)
    log_probs = logits.log_softmax(0)
    # Tokens are sampled, so their probabilities carry no gradient.
    expectation = (log_probs.detach().exp() * kl_per_token(log_probs, reference)).sum()
    torch.testing.assert_close(expectation, (log_probs.exp() * (log_probs - reference)).sum(), atol=1e-12, rtol=0)
    (gradient,) = torch.autograd.grad(expectation, logits, retain_graph=True)
    forward = (reference.exp() * (reference - log_probs)).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(forward, logits)[0], atol=1e-12, rtol=0)


def test_the_kl_estimator_is_never_negative() -> None:
    gaps = torch.linspace(-30, 30, 1_001, dtype=torch.float64)
    assert (kl_per_token(gaps, torch.zeros_like(gaps)) >= 0).all()
    assert kl_per_token(torch.zeros(1), torch.zeros(1)).item() == 0


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clip_low": -0.1}, r"clip_low must lie in \[0, 1\]; got -0.1"),
        ({"clip_low": 1.5}, r"clip_low must lie in \[0, 1\]; got 1.5"),
        ({"clip_high": -0.1}, "clip_high must be at least 0; got -0.1"),
        ({"kl_coef": -1.0}, "kl_coef must be at least 0; got -1.0"),
        ({"kl_coef": 0.1}, "kl_coef=0.1 needs reference_log_probs"),
        ({"normalizer": 0.0}, "normalizer must be above 0; got 0.0"),
        ({"log_probs": torch.zeros(6)}, r"log_probs need shape \(B, T\); got \(6,\)"),
        ({"sampled_log_probs": torch.zeros(6, 8)}, r"sampled_log_probs must have .* \(6, 9\).*got \(6, 8\)"),
        ({"reference_log_probs": torch.zeros(1, 9)}, r"reference_log_probs must have .* \(6, 9\).*got \(1, 9\)"),
        ({"advantages": torch.zeros(9)}, r"advantages need shape \(6,\) or \(6, 9\); got \(9,\)"),
        ({"mask": torch.ones(6, 9)}, r"mask needs dtype bool; got torch.float32; pass mask.bool\(\)"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    batch = Batch()
    arguments: dict[str, Any] = {
        "log_probs": batch.current,
        "sampled_log_probs": batch.sampled,
        "advantages": batch.advantages,
        "mask": batch.mask,
    } | changed
    with pytest.raises(ValueError, match=message):
        policy_loss(**arguments)


# --- importance of tokens that another program sampled ---


def test_importance_is_the_capped_ratio_by_hand() -> None:
    own = torch.tensor([[-1.0, -0.5, -2.0]], requires_grad=True)
    sampled = torch.tensor([[-1.5, -0.5, -1.0]])
    found = truncated_importance(own, sampled, torch.ones(1, 3, dtype=torch.bool), 1.2)
    assert found.tolist() == [[pytest.approx(1.2), 1.0, pytest.approx(math.exp(-1))]]
    assert not found.requires_grad


def test_importance_ignores_what_the_mask_hides() -> None:
    mask = torch.tensor([[True, False]])
    dirty = torch.tensor([[-1.0, math.nan]])
    assert truncated_importance(dirty, torch.tensor([[-1.0, math.inf]]), mask, 2.0).tolist() == [[1.0, 1.0]]


def test_importance_makes_the_gradient_that_of_the_trainers_policy() -> None:
    """Without a cap in reach the expectation over the sampler's tokens is that over the trainer's own: exactly, over
    a vocabulary of three."""
    sampler, trainer = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    values = torch.tensor([1.0, -2.0, 0.7])
    mask = torch.ones(3, 1, dtype=torch.bool)
    weights = truncated_importance(trainer.log()[:, None], sampler.log()[:, None], mask, 100.0)[:, 0]
    torch.testing.assert_close((sampler * weights * values).sum(), (trainer * values).sum())
