"""An estimator bound to an environment: weights and advantages of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vpo_agent.estimators.catalogue import Advantages, Estimator, RewardGroups, advantages, estimator
from vpo_agent.estimators.weights import WeightSampler, draw_weights, prompt_key
from vpo_envs.common.wording import counted

if TYPE_CHECKING:
    from vpo_envs import Task
    from vpo_envs.core import AnyEnv

SETTINGS = ("num_weights", "alpha", "weight_sampler", "scalar_weights", "seed")
"""Fields of a `BoundEstimator` that are settings of a run by the same name."""


@dataclass(frozen=True)
class BoundEstimator:
    """An estimator with its settings, for the tasks of one environment.

    Args:
        env: The environment.
        name: A registered estimator.
        options: Options of the estimator.
        num_weights: K, for methods that draw weights.
        alpha: Dirichlet concentration of the weights.
        weight_sampler: "sobol" or "iid".
        scalar_weights: Fixed weights of the scalar reward, (d,); ``None`` takes the environment's.
        seed: Keys the weights.

    Raises:
        ValueError: An unknown method, or a number of fixed weights other than the number of objectives.
    """

    env: AnyEnv
    name: str = "vpo"
    options: Mapping[str, Any] = field(default_factory=dict)
    num_weights: int = 128
    alpha: float = 1.0
    weight_sampler: WeightSampler = "sobol"
    scalar_weights: Sequence[float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.estimator.check_options(self.options)
        if self.scalar_weights is not None and len(self.scalar_weights) != self.env.reward_dim:
            env = self.env.spec.id if self.env.spec else type(self.env).__name__
            raise ValueError(
                f"scalar_weights for {env} need {counted(self.env.reward_dim, 'value')}, one per objective "
                f"({', '.join(self.env.objective_names)}); got {len(self.scalar_weights)}"
            )

    @cached_property
    def estimator(self) -> Estimator:
        """The registered estimator."""
        return estimator(self.name)

    def estimate(
        self,
        tasks: Sequence[Task],
        rewards: NDArray[np.float32],
        *,
        step: int,
        active: NDArray[np.bool_] | None = None,
        valid: NDArray[np.bool_] | None = None,
        answered: NDArray[np.bool_] | None = None,
    ) -> Advantages:
        """Compute the advantages and scores of P tasks at a training step, on the CPU, float32.

        Args:
            tasks: P tasks, whose content says which weights are drawn.
            rewards: Reward matrices, (P, G, M, d).
            step: Training step; each step has its own weights.
            active: (P, d), the objectives that count for each task; by default as the environment states.
            valid: (P, G), the rollouts whose scorer did not fail; all by default.
            answered: (P, M), the answers that each prompt asks for; all by default.
        """
        if active is None:
            active = np.stack([self.env.active(task) for task in tasks])
        weights = None
        if self.estimator.needs_weights:
            keys = [prompt_key(task.content_hash()) for task in tasks]
            weights = torch.from_numpy(draw_weights(keys, step=step, active=active, **self._draw_settings))
        groups = RewardGroups.checked(
            torch.from_numpy(rewards),
            weights=weights,
            scalar_weights=self.scalar_weights or self.env.scalar_weights,
            active=torch.from_numpy(active),
            valid=None if valid is None else torch.from_numpy(valid),
            answered=None if answered is None else torch.from_numpy(answered),
        )
        result = self.estimator.compute(groups, self.options)
        return Advantages(result.advantages.float(), result.scores.float())

    def try_out(self, rollouts: int, num_answers: int) -> Advantages:
        """Return the advantages of random rewards, two groups of ``rollouts``; ValueError if settings do not fit."""
        rewards = np.random.default_rng(0).random((2, rollouts, num_answers, self.env.reward_dim), dtype=np.float32)
        return advantages(
            torch.from_numpy(rewards),
            method=self.name,
            weights=torch.from_numpy(draw_weights([0, 1], **self._draw_settings))
            if self.estimator.needs_weights
            else None,
            scalar_weights=self.scalar_weights or self.env.scalar_weights,
            **self.options,
        )

    @cached_property
    def _draw_settings(self) -> dict[str, Any]:
        """Arguments of :func:`draw_weights` that are the same for all tasks and steps."""
        return {
            "num_objectives": self.env.reward_dim,
            "num_weights": self.num_weights,
            "alpha": self.alpha,
            "sampler": self.weight_sampler,
            "seed": self.seed,
        }
