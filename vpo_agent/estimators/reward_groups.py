"""A batch of reward matrices as estimators receive it: checked and cleaned, with weights on the active objectives.

Axes: P prompts, G rollouts of each, M answers in a rollout, d objectives, K drawn weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vpo_envs.common.wording import counted

_SIMPLEX_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class RewardGroups:
    """A checked batch, in float64 where the device has it.

    Prompts may ask for different numbers of answers. M is the largest of them, and ``answered`` says which answers a
    prompt asks for. Rewards are 0 for other answers, for inactive objectives and in invalid rollouts.
    """

    rewards: Tensor
    """(P, G, M, d) reward matrices."""
    answered: Tensor
    """(P, M) boolean: True for the answers that a prompt asks for, whether or not the model gave them, and False for
    the padding behind them; at least one of each prompt."""
    scalar_weights: Tensor
    """(P, d) fixed weights: non-negative, 0 at inactive objectives, summing to 1 for each prompt."""
    active: Tensor
    """(P, d) boolean: the objectives that count."""
    valid: Tensor
    """(P, G) boolean: the rollouts whose scorer did not fail."""
    weights: Tensor | None
    """(P, K, d) drawn weights, shared by the rollouts of a prompt; never None for a method that needs them."""

    @classmethod
    def checked(
        cls,
        rewards: Tensor,
        *,
        weights: Tensor | None = None,
        scalar_weights: Tensor | Sequence[float] | None = None,
        active: Tensor | None = None,
        valid: Tensor | None = None,
        answered: Tensor | None = None,
    ) -> RewardGroups:
        """Check and clean the arguments of :func:`~vpo_agent.estimators.advantages`; they are not modified."""
        if rewards.dim() != 4 or 0 in rewards.shape:
            raise ValueError(
                "rewards need shape (prompts, rollouts, answers, objectives), none of them 0; "
                f"got {tuple(rewards.shape)}"
            )
        num_prompts, num_rollouts, num_answers, num_objectives = rewards.shape
        device = rewards.device
        work = torch.float32 if device.type == "mps" else torch.float64
        active = _boolean("active", active, (num_prompts, num_objectives), "(prompts, objectives)", device)
        valid = _boolean("valid", valid, (num_prompts, num_rollouts), "(prompts, rollouts)", device)
        answered = _boolean("answered", answered, (num_prompts, num_answers), "(prompts, answers)", device)
        for has_any, lacks in ((active.any(dim=1), "an active objective"), (answered.any(dim=1), "an answer")):
            if not has_any.all():
                raise ValueError(
                    f"every prompt needs {lacks}; prompt {_first(~has_any)} has none; leave it out of the batch"
                )
        counts = valid[:, :, None, None] & answered[:, None, :, None] & active[:, None, None, :]
        cleaned = torch.where(counts, rewards.detach().to(work), 0.0)
        if not cleaned.isfinite().all():
            raise ValueError(
                f"rewards must be finite; those of prompt {_first(~cleaned.isfinite().flatten(1).all(dim=1))} are not; "
                "mark rollouts whose scorer failed in valid"
            )
        if weights is not None:
            shape = tuple(weights.shape)
            if len(shape) != 3 or (shape[0], shape[2]) != (num_prompts, num_objectives) or not shape[1]:
                raise ValueError(
                    f"weights need shape ({num_prompts}, K, {num_objectives}), K draws for each prompt; got {shape}"
                )
            weights = weights.detach().to(device, work)
            off = (weights.sum(dim=-1) - 1).abs().amax()
            if off > _SIMPLEX_TOLERANCE:
                raise ValueError(
                    f"weights must sum to 1 over the objectives; one row is off by {off.item():.3g}; divide by the sum"
                )
            weights = _checked_on_active("weights", weights, active[:, None, :])
        if scalar_weights is None:
            fixed = active.to(work)
        else:
            fixed = torch.as_tensor(scalar_weights).detach().to(device, work)
            _check_scalar_shape(tuple(fixed.shape), num_prompts, num_objectives)
            fixed = fixed.expand(num_prompts, num_objectives)
        fixed = _checked_on_active("scalar_weights", fixed, active)
        return cls(cleaned, answered, fixed, active, valid, weights)

    def scalar_scores(self) -> Tensor:
        """Return the scalar reward of each answer under the fixed weights, (P, G, M)."""
        return torch.einsum("pgmd,pd->pgm", self.rewards, self.scalar_weights)

    def best_utilities(self) -> Tensor:
        """Return the utility of the best answer of each rollout under each drawn weighting, (P, G, K)."""
        if self.weights is None:
            raise ValueError("no weights were given; register the estimator with needs_weights=True")
        utilities = torch.bmm(self.rewards.flatten(1, 2), self.weights.mT)  # w . r of each answer, (P, G * M, K)
        return self.best_answer(utilities.view(*self.rewards.shape[:3], -1))

    def best_answer(self, values: Tensor) -> Tensor:
        """Return the largest value over the answers that a prompt asks for: (P, G, M, …) to (P, G, …)."""
        answered = self.answered.view(len(values), 1, -1, *[1] * (values.dim() - 3))
        return torch.where(answered, values, -torch.inf).amax(dim=2)

    def mean_answer(self, values: Tensor) -> Tensor:
        """Return the mean value over the answers that a prompt asks for: (P, G, M, …) to (P, G, …)."""
        answered = self.answered.view(len(values), 1, -1, *[1] * (values.dim() - 3))
        return torch.where(answered, values, 0.0).sum(dim=2) / answered.sum(dim=2)


def _check_scalar_shape(shape: tuple[int, ...], num_prompts: int, num_objectives: int) -> None:
    name = "scalar_weights"
    if len(shape) > 2:
        raise ValueError(f"{name} need shape (d,) or (P, d); got {shape}")
    if (got := shape[-1] if shape else 1) != num_objectives:
        raise ValueError(f"{name} need {counted(num_objectives, 'value')}, one per objective; got {got}")
    if len(shape) == 2 and shape[0] != num_prompts:
        raise ValueError(f"{name} need {counted(num_prompts, 'row')}, one per prompt; got {shape[0]}")


def _checked_on_active(name: str, weights: Tensor, active: Tensor) -> Tensor:
    """Check weights, set those of inactive objectives to 0 and scale the others to sum 1; prompts come first."""
    bad = weights[~(weights.isfinite() & (weights >= 0))]
    if bad.numel():
        raise ValueError(f"{name} must be finite and not negative; got {bad[0].item():.6g}")
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
