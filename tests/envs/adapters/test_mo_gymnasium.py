"""Episode statistics of vector environments against sums of the rewards by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv

from vpo_envs.adapters.mo_gymnasium import RecordEpisodeStatistics
from vpo_envs.text import format_answers

GAMMA = 0.5


def native(**kwargs: Any) -> Any:
    return gym.make_vec("vpo/Maze-v0", num_envs=3, vectorization_mode="vector_entry_point", **kwargs)


def stepwise(**kwargs: Any) -> Any:
    """Copies that are reset in the step after the end of an episode."""
    return MOSyncVectorEnv([partial(gym.make, "vpo/Maze-v0", **kwargs)] * 3)  # type: ignore[arg-type]  # says iterator


@pytest.mark.parametrize("make", [native, stepwise])
@pytest.mark.parametrize(("kwargs", "length"), [({}, 1), ({"num_answers": 3, "answers_as_steps": True}, 3)])
def test_returns_and_lengths_are_those_of_each_episode(make: Any, kwargs: dict[str, Any], length: int) -> None:
    envs = RecordEpisodeStatistics(make(**kwargs), gamma=GAMMA)
    envs.reset(seed=[0, 1, 2])
    episodes, pending = 0, [list[Any]() for _ in range(3)]
    source = np.random.default_rng(0)
    was_done = np.zeros(3, dtype=bool)
    for _ in range(20):
        copies = [copy.unwrapped for copy in envs.unwrapped.envs]
        answers = [str(source.choice([point.answer for point in env.front(env.current_task)])) for env in copies]
        _, rewards, terminated, _, info = envs.step([format_answers([answer] * length) for answer in answers])
        for i in range(3):
            if make is native or not was_done[i]:
                pending[i].append(rewards[i])
            if terminated[i]:
                told = info["episode"]
                np.testing.assert_allclose(told["r"][i], sum(pending[i]), rtol=1e-6)
                discounted = sum(GAMMA**t * reward for t, reward in enumerate(pending[i]))
                np.testing.assert_allclose(told["dr"][i], discounted, rtol=1e-6)
                assert told["l"][i] == len(pending[i]) == length
                assert 0 <= told["t"][i] < 5
                episodes += 1
                pending[i] = []
        was_done = terminated
    assert episodes >= 3 * 20 // (length + 1)
    assert any(np.any(episode) for episode in envs.return_queue)
    assert set(envs.length_queue) == {length}
