"""Two hundred seeds of every generated task and mode: gold reaches what is declared, and conflict is real."""

from __future__ import annotations

from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest

import vpo_envs  # noqa: F401 - registers the environments

SEEDS = 200
GAIN = 0.05
"""What the best three answers must gain over the best one, in expected utility."""
SAMPLING = 0.01
"""Instances are certified with other weights than those drawn here; means over 2,000 of them differ by less."""


@pytest.mark.parametrize("mode", ["paper", "conflict"])
@pytest.mark.parametrize("env_id", ["vpo/MuSiQue-v0", "vpo/EUREQA-v0", "vpo/Tools-v0", "vpo/Personas-v0"])
def test_every_instance_is_certified(env_id: str, mode: str) -> None:
    env = gym.make(env_id, mode=mode).unwrapped
    source = np.random.default_rng(0)
    weights_of = {d: source.dirichlet(np.ones(d), 2000) for d in range(1, 6)}
    for seed in range(SEEDS):
        env.reset(seed=seed)
        task = env.current_task  # type: ignore[attr-defined]  # a VectorTextEnv
        front = env.front(task)  # type: ignore[attr-defined]
        responses = [f"<answer>{point.answer}</answer>" for point in front]
        scored = env.score_batch([task] * len(front), responses).rewards[:, 0]  # type: ignore[attr-defined]
        np.testing.assert_allclose(scored, [point.vector for point in front], atol=1e-6)
        points = scored[:, env.active(task)]  # type: ignore[attr-defined]
        if mode == "paper":
            assert points.tolist() == [[1.0] * points.shape[1]]
            continue
        assert len(points) >= 3
        assert not (points == 1).all(axis=1).any()
        utilities = weights_of[points.shape[1]] @ points.T
        sets = combinations(range(len(points)), 3)
        three = max(utilities[:, list(chosen)].max(axis=1).mean() for chosen in sets)
        assert three - utilities.mean(axis=0).max() >= GAIN - SAMPLING
