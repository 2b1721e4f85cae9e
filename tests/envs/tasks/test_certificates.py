"""Many tasks of every generated task and preset: gold reaches what is declared, and conflict is real."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import qmc

import vpo_envs  # noqa: F401 - registers the environments

SEEDS = 60
GAIN = 0.05
"""What the best three answers must gain over the best one, in expected utility."""
SAMPLING = 0.01
"""Tasks are certified with other weights than those drawn here; means over 2,000 of them differ by less."""


@pytest.mark.parametrize(
    ("env_id", "preset"),
    [
        *((f"vpo/{task}-v0", preset) for task in ("MuSiQue", "EUREQA", "Tools") for preset in ("paper", "conflict")),
        ("vpo/Personas-v0", "paper"),
        ("vpo/Maze-v0", "conflict"),
    ],
)
def test_every_instance_is_certified(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    source = np.random.default_rng(0)
    weights_of = {d: source.dirichlet(np.ones(d), 2000) for d in range(1, 6)}
    for seed in range(SEEDS):
        env.reset(seed=seed)
        task = env.current_task
        front = env.front(task)
        responses = [f"<answer>{point.answer}</answer>" for point in front]
        scored = env.score_batch([task] * len(front), responses).rewards[:, 0]
        np.testing.assert_allclose(scored, [point.vector for point in front], atol=1e-6)
        points = scored[:, env.active(task)]
        if preset == "paper":
            assert points.tolist() == [[1.0] * points.shape[1]]
            continue
        assert len(points) >= 3
        assert not (points == 1).all(axis=1).any()
        utilities = weights_of[points.shape[1]] @ points.T
        sets = combinations(range(len(points)), 3)
        three = max(utilities[:, list(chosen)].max(axis=1).mean() for chosen in sets)
        assert three - utilities.mean(axis=0).max() >= GAIN - SAMPLING


@pytest.mark.parametrize(
    ("env_id", "preset", "count"),
    [
        *((env_id, "compact", 100) for env_id in ("vpo/EUREQA-v0", "vpo/MuSiQue-v0", "vpo/Tools-v0")),
        *(("vpo/Countdown-v0", preset, 20) for preset in ("conflict", "compact")),
        ("vpo/Maze-v0", "compact", 40),
        ("vpo/Personas-v0", "conflict", 20),
    ],
)
def test_a_set_and_the_vector_pay_on_every_instance(env_id: str, preset: str, count: int) -> None:
    """Every one but those of compact Code.

    There a program that the task was not built around may earn more: of 2,000 training tasks 8 have a gain from
    a set below 1.3. They are kept, since trying all programs takes more than ten times as long as drawing an task.
    """
    env: Any = gym.make(env_id, preset=preset, split="test").unwrapped
    exponentials = -np.log(qmc.Sobol(env.reward_dim, seed=0).random(1 << 11))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    for index in range(count):
        points = np.array([point.vector for point in env.front(env.task(index))])
        means = points.mean(axis=1)
        utilities = weights @ points.T

        def best_three(some: np.ndarray, utilities: np.ndarray = utilities) -> float:
            sets = combinations(some.tolist(), min(3, len(some)))
            return max(float(utilities[:, list(chosen)].max(axis=1).mean()) for chosen in sets)

        three = best_three(np.arange(len(points)))
        # Other weights than those of the certificate.
        assert three >= (1.3 - SAMPLING) * means.max()
        assert three >= (1.15 - SAMPLING) * best_three(np.flatnonzero(means >= means.max() - 0.02))
