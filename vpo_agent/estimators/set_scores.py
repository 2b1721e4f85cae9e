"""Set scores: pure functions from reward matrices to one score for each rollout.

Axes: P prompts, G rollouts of each, m answers in a rollout, d objectives, K weights of a prompt.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

Scalarization = Literal["linear", "tchebycheff"]
SCALARIZATIONS = ("linear", "tchebycheff")

MAX_HYPERVOLUME_ANSWERS = 12
"""Limit on the answers of a set, because the inclusion-exclusion has 2**m terms."""


def utilities(
    rewards: Tensor, weights: Tensor, scalarization: Scalarization = "linear", augmentation: float = 0.05
) -> Tensor:
    """Return the utility of each answer under each weight.

    - "linear": w . r. Its maximisers lie on the convex hull of the front, whatever the weights.
    - "tchebycheff": 1 - (max_i w_i (1 - r_i) + augmentation * sum_i w_i (1 - r_i)), one minus the augmented weighted
      Tchebycheff distance to the ideal point 1 (Steuer and Choo 1983). Every non-dominated point, on the hull or not,
      is the best one under some weight; the augmentation excludes weakly dominated points.

    Args:
        rewards: (P, G, m, d) in [0, 1].
        weights: (P, K, d) of the same dtype, on the simplex.
        scalarization: "linear" or "tchebycheff".
        augmentation: of "tchebycheff", above 0.

    Returns:
        (P, G, m, K).

    Raises:
        ValueError: an unknown scalarization, or an augmentation that is not finite and above 0.
    """
    num_prompts, num_rollouts, num_answers, num_objectives = rewards.shape
    flat = rewards.reshape(num_prompts, num_rollouts * num_answers, num_objectives)
    if scalarization == "linear":
        values = torch.bmm(flat, weights.mT)
    elif scalarization == "tchebycheff":
        if not 0 < augmentation < float("inf"):
            raise ValueError(f"augmentation of tchebycheff must be finite and above 0; got {augmentation}")
        # One objective at a time, to avoid a tensor of shape (P, G*m, K, d).
        shortfall = 1 - flat
        worst = torch.zeros(num_prompts, flat.shape[1], weights.shape[1], dtype=flat.dtype, device=flat.device)
        for i in range(num_objectives):
            worst = torch.maximum(worst, shortfall[:, :, i, None] * weights[:, None, :, i])
        values = 1 - worst - augmentation * torch.bmm(shortfall, weights.mT)
    else:
        raise ValueError(f"scalarization must be one of {', '.join(SCALARIZATIONS)}; got {scalarization!r}")
    return values.view(num_prompts, num_rollouts, num_answers, -1)


def soft_scores(values: Tensor, beta: float) -> Tensor:
    """Return the mean over weights of a smooth maximum of the `utilities`, (1/beta) log mean_s exp(beta u_k(s)).

    It is the mean of the answers for beta to 0, and the best of them for beta to infinity.

    Raises:
        ValueError: beta is not above 0 and finite.
    """
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta must be finite and above 0; got {beta}")
    smooth = (values * beta).logsumexp(dim=2) - torch.log(torch.tensor(float(values.shape[2]), dtype=values.dtype))
    return (smooth / beta).mean(dim=-1)


def mixed_scores(values: Tensor, mean_weight: float = 0.0, of: int | None = None) -> Tensor:
    """Return the mean over weights of best and mean answer, mixed with a share `mean_weight` of the mean.

    Without that share it is the paper's R(S) = 1/K sum_k max_s u_k(s) over the `utilities` (arXiv 2605.22817). `of`
    makes `values` those of some of that many answers; the others, perhaps all, are worth 0.

    Raises:
        ValueError: the share lies outside [0, 1].
    """
    if not 0 <= mean_weight <= 1:
        raise ValueError(f"mean_weight must lie in [0, 1]; got {mean_weight}")
    if not values.shape[2]:
        return values.sum(dim=(2, 3))
    mixed = values.amax(dim=2)
    if mean_weight:
        mixed = (1 - mean_weight) * mixed + mean_weight * values.sum(dim=2) / (of or values.shape[2])
    return mixed.mean(dim=-1)


def hypervolume_scores(rewards: Tensor, active: Tensor, reference: float) -> Tensor:
    """Return the hypervolume of each set: the volume that its answers dominate above a reference point.

    Exact, by inclusion and exclusion over the subsets of a set, and normalised: an answer of all ones gives 1.

    Args:
        rewards: (P, G, m, d) in [0, 1].
        active: (P, d) boolean, the objectives that count.
        reference: coordinate of the reference point, below 0: at 0, an answer with a zero in one objective would have
            no volume.

    Returns:
        (P, G).

    Raises:
        ValueError: the reference is not finite and below 0, or a set has too many answers.
    """
    num_answers = rewards.shape[2]
    if not -float("inf") < reference < 0:
        raise ValueError(f"reference of the hypervolume must be finite and below 0; got {reference}")
    if num_answers > MAX_HYPERVOLUME_ANSWERS:
        raise ValueError(
            f"the hypervolume of a set is computed for at most {MAX_HYPERVOLUME_ANSWERS} answers; got {num_answers}"
        )
    sides = torch.where(active[:, None, None, :], (rewards - reference) / (1 - reference), 1.0)
    total = torch.zeros(rewards.shape[:2], dtype=rewards.dtype, device=rewards.device)
    for size in range(1, num_answers + 1):
        sign = 1.0 if size % 2 else -1.0
        for subset in combinations(range(num_answers), size):
            total = total + sign * sides[:, :, list(subset)].amin(dim=2).prod(dim=-1)
    return total
