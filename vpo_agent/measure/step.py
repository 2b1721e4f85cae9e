"""The columns of a training log that describe the rollouts of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vpo_agent.estimators import Advantages
from vpo_agent.measure.metrics import diversity
from vpo_agent.rollouts.collect import Rollouts
from vpo_envs import Status
from vpo_envs.core import AnyEnv


def step_columns(
    rollouts: Rollouts, result: Advantages, active: NDArray[np.bool_], objective_columns: Sequence[str]
) -> dict[str, float]:
    """Return the columns that describe the rollouts of a step.

    Each is a mean over prompts or their rollouts, so that prompts count alike, however many answers they ask for. The
    mean of an objective is over the prompts where it is active; NaN if there are none. Where prompts ask for different
    numbers of answers, columns that end in ``_of_M`` describe those that ask for M.

    Args:
        rollouts: G rollouts of P prompts.
        result: Their scores and advantages, (P, G).
        active: The objectives that count for each prompt, (P, d).
        objective_columns: Name of the column of each objective, (d,).
    """
    counts = np.unique(rollouts.num_answers)[::-1].tolist()
    parts = {"": np.arange(len(rollouts.tasks))}
    if len(counts) > 1:
        parts |= {f"_of_{m}": np.flatnonzero(rollouts.num_answers == m) for m in counts}
    scores, advantages = result.scores.numpy(), result.advantages.numpy()
    answered = rollouts.answered[:, None, :, None]
    rewards = (rollouts.rewards * answered).sum(2, dtype=np.float64) / answered.sum(2)
    tokens = rollouts.samples.tokens.reshape(rollouts.valid.shape)
    truncated = rollouts.samples.truncated.cpu().numpy().reshape(rollouts.valid.shape)
    spreads = np.array(
        [
            diversity(matrices[valid][:, asked].reshape(-1, matrices.shape[-1]))
            for matrices, valid, asked in zip(rollouts.rewards, rollouts.valid, rollouts.answered, strict=True)
        ]
    )
    columns: dict[str, float] = {}
    for ending, prompts in parts.items():
        valid = rollouts.valid[prompts]
        columns[f"set_score{ending}"] = float(scores[prompts][valid].mean()) if valid.any() else math.nan
        for objective, name in enumerate(objective_columns):
            values = rewards[prompts, :, objective][valid & active[prompts, None, objective]]
            columns[f"{name}{ending}"] = float(values.mean()) if len(values) else math.nan
        columns[f"diversity{ending}"] = float(spreads[prompts].mean())
        columns[f"groups_without_signal{ending}"] = int((advantages[prompts] == 0).all(1).sum())
        columns[f"invalid_rollouts{ending}"] = int((~valid).sum())
        columns[f"response_tokens{ending}"] = float(tokens[prompts].mean())
        columns[f"truncated{ending}"] = float(truncated[prompts].mean())
    return columns


def rewards_outside(env: AnyEnv, rollouts: Rollouts) -> str:
    """Return the ranges of the objectives whose rewards leave [0, 1]; empty if there are none."""
    scored = rollouts.rewards[rollouts.status != Status.INVALID]
    lowest, highest = scored.min(axis=0, initial=0), scored.max(axis=0, initial=0)
    return ", ".join(
        f"{name} {low:.3g} to {high:.3g}"
        for name, low, high in zip(env.objective_names, lowest, highest, strict=True)
        if low < -1e-6 or high > 1 + 1e-6
    )
