"""The native vector environment: equal to single environments, same-step autoreset, answers scored together."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import toy_mazes
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from mo_gymnasium.wrappers import LinearReward

import vpo_envs
from vpo_envs import MazeEnv, VectorTextEnv
from vpo_envs.registration import text_env_ids
from vpo_envs.text import format_answers
from vpo_envs.vector import TextVectorEnv


@pytest.mark.parametrize("mode", [None, "vector_entry_point"])
def test_single_moves_are_copied_as_mo_gymnasium_does(mode: str | None) -> None:
    envs = gym.make_vec("vpo/MazeSteps-v0", num_envs=3, vectorization_mode=mode, preset="paper")
    observations, _ = envs.reset(seed=5)
    assert observations.shape == (3, 13, 9, 9)
    rewards = envs.step(np.zeros(3, dtype=np.int64))[1]
    assert rewards.shape == (3, 4)


# Reward models have to be named before anything is scored; test_reward_models.py makes copies with some.
TEXT_ENVS = [env_id for env_id in text_env_ids() if env_id != "vpo/RewardModels-v0"]
RESPONSES = ["<answer>UP</answer><answer_1>R R</answer_1>", "<answer_2>DOWN</answer_2>", "", "\ud800<answer>?</answer>"]


def good_response(env: Any) -> str:
    """Answers of the current task's front, which earn something: zeros are equal to any zeros."""
    front = env.front(env.current_task)
    return format_answers([front[i % len(front)].answer for i in range(env.num_answers)])


def follow_singles(envs: Any, singles: list[Any], steps: int, seed: int) -> None:
    """Step both with the same actions, and compare everything."""
    source = np.random.default_rng(0)
    observations, infos = envs.reset(seed=seed)
    expected = [single.reset(seed=seed + i) for i, single in enumerate(singles)]
    for step in range(steps):
        for i, (observation, info) in enumerate(expected):
            assert observations[i] == observation
            assert data_equivalence({key: infos[key][i] for key in info}, info)
            assert all(infos[f"_{key}"][i] for key in info)
        actions = [
            RESPONSES[source.integers(len(RESPONSES))] if step % 2 else good_response(single.unwrapped)
            for single in singles
        ]
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        assert rewards.dtype == np.float32
        assert step % 2 or rewards.any()
        expected = []
        for i, (single, action) in enumerate(zip(singles, actions, strict=True)):
            observation, reward, over, cut, info = single.step(action)
            np.testing.assert_array_equal(rewards[i], reward)
            assert (terminated[i], truncated[i]) == (over, cut)
            if over:
                assert infos["final_obs"][i] == observation
                assert data_equivalence({key: infos["final_info"][key][i] for key in info}, info)
                observation, info = single.reset()
            expected.append((observation, info))


STEPWISE = {"num_answers": 2, "answers_as_steps": True}


@pytest.mark.parametrize(
    ("env_id", "kwargs", "n"),
    # The copies of every environment go the same way.
    [
        *((env_id, STEPWISE, 2) for env_id in TEXT_ENVS),
        *(("vpo/Maze-v0", {}, n) for n in (1, 3, 64)),
        ("vpo/Maze-v0", {"num_answers": 2}, 3),
    ],
)
def test_copies_do_what_single_environments_do(env_id: str, kwargs: dict[str, Any], n: int) -> None:
    kwargs = {"preset": "paper", **kwargs}  # which takes the least time to draw
    envs = gym.make_vec(env_id, num_envs=n, vectorization_mode="vector_entry_point", **kwargs)
    follow_singles(envs, [gym.make(env_id, **kwargs) for _ in range(n)], steps=5, seed=11)


def test_a_large_number_of_copies_shares_one_environment() -> None:
    envs = TextVectorEnv(MazeEnv, num_envs=500, preset="paper")
    observations, _ = envs.reset(seed=0)
    assert len(set(observations)) > 490
    assert envs.step(["<answer>UP</answer>"] * 500)[1].shape == (500, 4)
    assert observations in envs.observation_space
    assert envs.action_space.sample() in envs.action_space
    assert len({id(env.config) for env in envs.envs}) == 1  # type: ignore[attr-defined]  # a maze has it


def test_make_vec_takes_it_by_itself_and_its_spec_survives_json() -> None:
    envs = gym.make_vec("vpo/Maze-v0", num_envs=2, preset="paper")
    assert isinstance(envs, TextVectorEnv)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.spec is not None
    again = gym.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert again.num_envs == 2
    assert again.reset(seed=1)[0] == envs.reset(seed=1)[0]


def test_a_registered_environment_of_ones_own_is_vectorised_too() -> None:
    vpo_envs.register_env("own/Maze-v0", f"{__name__}:BatchedMaze", preset="paper")
    try:
        envs = gym.make_vec("own/Maze-v0", num_envs=2)
        assert isinstance(envs.envs[1], BatchedMaze)  # type: ignore[attr-defined]  # a TextVectorEnv has it
    finally:
        del gym.registry["own/Maze-v0"]


# --- reset ---


def test_options_may_differ_from_copy_to_copy() -> None:
    envs = TextVectorEnv(MazeEnv, num_envs=3, preset="paper")
    maze = MazeEnv(preset="paper")
    _, infos = envs.reset(options={"index": [5, 6, 7]})
    assert infos["index"].tolist() == [5, 6, 7]
    assert [env.current_task for env in envs.envs] == [maze.task(i) for i in (5, 6, 7)]
    envs.reset(options={"task": [maze.task(1), maze.task(2), maze.task(3)]})
    assert [env.current_task for env in envs.envs] == [maze.task(i) for i in (1, 2, 3)]
    assert len(set(envs.reset(options={"index": 4})[0])) == 1
    assert envs.reset(seed=[3, None, 3])[0][0] == MazeEnv(preset="paper").reset(seed=3)[0]


# --- scorers ---


class BatchedMaze(MazeEnv):
    """A maze that evaluates answers in batches."""

    sizes: ClassVar[list[int]] = []

    def evaluate_many(self, pairs: Any) -> Any:
        self.sizes.append(len(pairs))
        return super().evaluate_many(pairs)


def test_the_answers_of_all_copies_are_evaluated_in_one_batch() -> None:
    envs = TextVectorEnv(BatchedMaze, num_envs=3, num_answers=2, preset="paper")
    envs.reset(seed=0)
    envs.step([format_answers(["UP", "DOWN"])] * 3)
    assert BatchedMaze.sizes == [6]


def test_a_mistake_in_a_scorer_comes_through_and_the_next_step_works() -> None:
    envs = TextVectorEnv(toy_mazes.BrokenMaze, num_envs=1)
    envs.reset(seed=0)
    with pytest.raises(ZeroDivisionError):
        envs.step(["<answer>UP</answer>"])
    assert envs.step([""])[2].all()
    envs.close()
    envs.close()


# --- bad input ---


def test_bad_arguments_are_named() -> None:
    class Stepper(MazeEnv):
        def step(self, action: str) -> Any:
            return super().step(action)

    assert issubclass(Stepper, VectorTextEnv)
    with pytest.raises(TypeError, match="Stepper overrides step"):
        TextVectorEnv(Stepper)
    for arguments, message in (
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"scorer_threads": 2}, "scorer_threads"),
        ({"preset": "papr"}, "papr"),
    ):
        with pytest.raises(ValueError, match=message):
            TextVectorEnv(MazeEnv, **arguments)  # type: ignore[arg-type]  # the mistakes under test


def test_bad_calls_are_named() -> None:
    envs = TextVectorEnv(MazeEnv, num_envs=2, preset="paper")
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        envs.step(["", ""])
    for seed, options, message in (
        ([1], None, "one seed for each of 2 environments, got 1"),
        (None, {"index": [1, 2, 3]}, "one value for each of 2 environments, got 3"),
        (None, {"idx": 1}, "unknown reset option 'idx'"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.reset(seed=seed, options=options)
    envs.reset(seed=0)
    for actions, message in ((["a"], "one action for each of 2 environments, got 1"), ("ab", "got one string")):
        with pytest.raises(ValueError, match=message):
            envs.step(actions)
    with pytest.raises(TypeError, match="got int"):
        envs.step(["", 5])  # type: ignore[list-item]  # the mistake under test
    assert envs.step(["", ""])[2].all()


@pytest.mark.parametrize("env_id", ["vpo/Maze-v0", "vpo/MazeSteps-v0"])
def test_copies_that_hold_one_number_per_reward_work_with_scalar_rewards(env_id: str) -> None:
    scalar = partial(LinearReward, weight=np.full(4, 0.25))
    envs = gym.make_vec(env_id, num_envs=2, vectorization_mode="sync", wrappers=[scalar])
    envs.reset(seed=0)
    assert envs.step(envs.action_space.sample())[1].shape == (2,)
