"""A batch of reward matrices as estimators receive it: checked and cleaned, with weights on the active objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vpo_envs.common.wording import counted

_SIMPLEX_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class RewardGroups:
    """A checked batch; float64 where the device has it. Rewards of inactive objectives and invalid rollouts are 0."""

    rewards: Tensor
    """(P, G, m, d) reward matrices."""
    scalar_weights: Tensor
    """(P, d) fixed weights: non-negative, 0 at inactive objectives, summing to 1 for each prompt."""
    active: Tensor
    """(P, d) boolean: the objectives that count."""
    valid: Tensor
    """(P, G) boolean: the rollouts whose scorer did not fail."""
    weights: Tensor | None
    """(P, K, d) drawn weights, shared by the rollouts of a prompt; never None for a method that needs them."""

    def scalar_scores(self) -> Tensor:
        """Return the scalar reward of each answer under the fixed weights, (P, G, m)."""
        return torch.einsum("pgmd,pd->pgm", self.rewards, self.scalar_weights)

    def utilities(self, weights: Tensor) -> Tensor:
        """Return the utility w . r of each answer under each of (P, K, d) weights, (P, G, m, K)."""
        return torch.bmm(self.rewards.flatten(1, 2), weights.mT).view(*self.rewards.shape[:3], -1)

    def drawn_weights(self) -> Tensor:
        """Return the drawn weights, (P, K, d)."""
        if self.weights is None:
            raise ValueError("no weights were given; register the estimator with needs_weights=True")
        return self.weights


def checked_groups(
    rewards: Tensor,
    weights: Tensor | None,
    scalar_weights: Tensor | Sequence[float] | None,
    active: Tensor | None,
    valid: Tensor | None,
) -> RewardGroups:
    """Check the arguments of `advantages` and return them cleaned; they are not modified."""
    if rewards.dim() != 4 or 0 in rewards.shape:
        raise ValueError(
            f"rewards need shape (prompts, rollouts, answers, objectives), none of them 0; got {tuple(rewards.shape)}"
        )
    num_prompts, num_rollouts, _, num_objectives = rewards.shape
    device = rewards.device
    work = torch.float32 if device.type == "mps" else torch.float64
    on = _boolean("active", active, (num_prompts, num_objectives), "(prompts, objectives)", device)
    kept = _boolean("valid", valid, (num_prompts, num_rollouts), "(prompts, rollouts)", device)
    if not on.any(dim=1).all():
        raise ValueError(
            f"every prompt needs an active objective; prompt {_first(~on.any(dim=1))} has none; "
            "leave it out of the batch"
        )
    counted = kept[:, :, None, None] & on[:, None, None, :]
    cleaned = torch.where(counted, rewards.detach().to(work), 0.0)
    if not cleaned.isfinite().all():
        raise ValueError(
            f"rewards must be finite; those of prompt {_first(~cleaned.isfinite().flatten(1).all(dim=1))} are not; "
            "mark rollouts whose scorer failed in valid"
        )
    drawn = None if weights is None else _checked_weights(weights, on, work)
    if drawn is not None and active is not None:
        drawn = _on_active_face("weights", drawn, on[:, None, :])
    fixed = _checked_scalar_weights(scalar_weights, on, work)
    return RewardGroups(cleaned, fixed, on, kept, drawn)


def _checked_scalar_weights(values: Tensor | Sequence[float] | None, active: Tensor, work: torch.dtype) -> Tensor:
    """Return fixed weights (P, d) on the active face, equal ones by default."""
    name = "objective weights"
    if values is None:
        return _on_active_face(name, torch.ones_like(active, dtype=work), active)
    num_prompts, num_objectives = active.shape
    fixed = torch.as_tensor(values).detach().to(active.device, work)
    if fixed.dim() > 2:
        raise ValueError(f"{name} need shape (d,) or (P, d); got {tuple(fixed.shape)}")
    if (got := fixed.shape[-1] if fixed.dim() else 1) != num_objectives:
        raise ValueError(f"{name} need {counted(num_objectives, 'value')}, one per objective; got {got}")
    if fixed.dim() == 2 and fixed.shape[0] != num_prompts:
        raise ValueError(f"{name} need {counted(num_prompts, 'row')}, one per prompt; got {fixed.shape[0]}")
    _check_non_negative(name, fixed)
    return _on_active_face(name, fixed.expand(num_prompts, num_objectives), active)


def _checked_weights(weights: Tensor, active: Tensor, work: torch.dtype) -> Tensor:
    """Return drawn weights (P, K, d) after checking that they lie on the simplex."""
    num_prompts, num_objectives = active.shape
    shape = tuple(weights.shape)
    if len(shape) != 3 or (shape[0], shape[2]) != (num_prompts, num_objectives) or not shape[1]:
        raise ValueError(
            f"weights need shape ({num_prompts}, K, {num_objectives}), K draws for each prompt; got {shape}"
        )
    drawn = weights.detach().to(active.device, work)
    _check_non_negative("weights", drawn)
    off = (drawn.sum(dim=-1) - 1).abs().amax()
    if off > _SIMPLEX_TOLERANCE:
        raise ValueError(
            f"weights must sum to 1 over the objectives; one row is off by {off.item():.3g}; divide by the sum"
        )
    return drawn


def _check_non_negative(name: str, values: Tensor) -> None:
    bad = values[~(values.isfinite() & (values >= 0))]
    if bad.numel():
        raise ValueError(f"{name} must be finite and not negative; got {bad[0].item():.6g}")


def _on_active_face(name: str, weights: Tensor, active: Tensor) -> Tensor:
    """Set weights of inactive objectives to 0 and scale the others to sum 1; prompts are the first dimension."""
    kept = torch.where(active, weights, 0.0)
    total = kept.sum(dim=-1, keepdim=True)
    if not (total > 0).all():
        raise ValueError(
            f"{name} need a positive value on an active objective; those of prompt "
            f"{_first((total <= 0).flatten(1).any(dim=1))} are all zero there; "
            "choose or draw them for the same active objectives"
        )
    return kept / total


def _boolean(name: str, values: Tensor | None, shape: tuple[int, int], axes: str, device: torch.device) -> Tensor:
    """Return a boolean mask of the shape, all True by default."""
    if values is None:
        return torch.ones(shape, dtype=torch.bool, device=device)
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} needs shape {shape}, {axes}; got {tuple(values.shape)}")
    return values.to(device, torch.bool)


def _first(flags: Tensor) -> int:
    return int(flags.nonzero()[0, 0])
