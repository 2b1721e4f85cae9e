"""An estimator bound to an environment: weights and advantages of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vpo_agent.config import TrainConfig
from vpo_agent.estimators import Advantages, advantages, estimator
from vpo_agent.estimators.weights import WeightSampler, draw_weights, prompt_key
from vpo_envs import Task
from vpo_envs.common.wording import counted
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
        scalar_weights: Fixed weights of the scalar reward, (d,); ``None`` takes those of the environment.
        seed: Keys the weights.

    Raises:
        ValueError: An unknown estimator, or a number of fixed weights other than the number of objectives.
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
        estimator(self.name)
        if self.scalar_weights is not None and len(self.scalar_weights) != self.env.reward_dim:
            env = self.env.spec.id if self.env.spec else type(self.env).__name__
            raise ValueError(
                f"objective weights for {env} need {counted(self.env.reward_dim, 'value')}, one per objective "
                f"({', '.join(self.env.objective_names)}); got {len(self.scalar_weights)}"
            )

    @classmethod
    def from_config(cls, env: AnyEnv, config: TrainConfig) -> BoundEstimator:
        """Return the estimator that a run asks for."""
        settings = {name: getattr(config, name) for name in SETTINGS}
        return cls(env, config.method, config.method_options, **settings)

    def weights(self, tasks: Sequence[Task], step: int) -> NDArray[np.float32] | None:
        """Return the weights of each task at a step, (P, K, d); ``None`` if the method draws none."""
        if not estimator(self.name).needs_weights:
            return None
        keys = [prompt_key(task.content_hash()) for task in tasks]
        return self._draw(keys, step, np.stack([self.env.active(task) for task in tasks]))

    def estimate(
        self,
        rewards: NDArray[np.float32],
        valid: NDArray[np.bool_] | None,
        tasks: Sequence[Task] | None,
        weights: NDArray[np.float32] | None,
    ) -> Advantages:
        """Compute advantages and scores of reward matrices (P, G, m, d), on the CPU; ``valid`` is (P, G).

        Without tasks every objective counts, and without ``valid`` every rollout.
        """
        return advantages(
            torch.from_numpy(rewards),
            method=self.name,
            weights=None if weights is None else torch.from_numpy(weights),
            scalar_weights=self.scalar_weights or self.env.scalar_weights,
            active=None if tasks is None else torch.from_numpy(np.stack([self.env.active(task) for task in tasks])),
            valid=None if valid is None else torch.from_numpy(valid),
            **self.options,
        )

    def try_out(self, rollouts: int, num_answers: int) -> Advantages:
        """Return the advantages of random rewards, two groups of ``rollouts``; ValueError if settings do not fit."""
        shape = (2, rollouts, num_answers, self.env.reward_dim)
        weights = self._draw([0, 1], 0, None) if estimator(self.name).needs_weights else None
        return self.estimate(np.random.default_rng(0).random(shape, dtype=np.float32), None, None, weights)

    def _draw(self, keys: list[int], step: int, active: NDArray[np.bool_] | None) -> NDArray[np.float32]:
        return draw_weights(
            keys,
            num_objectives=self.env.reward_dim,
            num_weights=self.num_weights,
            alpha=self.alpha,
            sampler=self.weight_sampler,
            seed=self.seed,
            step=step,
            active=active,
        )
