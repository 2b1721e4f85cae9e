"""Every registered environment behaves as Gymnasium and MO-Gymnasium expect."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from mo_gymnasium.wrappers import (  # type: ignore[attr-defined]  # it states no exports
    LinearReward,
    MORecordEpisodeStatistics,
)
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv  # type: ignore[attr-defined]  # it states no exports

from vpo_envs import MazeEnv, VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env, text_env_ids
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.maze.task import MOVES
from vpo_envs.text import format_answers

UNUSABLE = "vpo/RewardModels-v0"
"""Scores nothing until reward models are named; tests/envs/tasks/test_reward_models.py has some."""
ENV_IDS = [env_id for env_id in env_ids() if env_id != UNUSABLE]
MAZE_IDS = [env_id for env_id in ENV_IDS if "Maze" in env_id]

TASK_IDS = [env_id for env_id in ENV_IDS if issubclass(env_type(env_id), TaskEnv)]


def good_actions(env: gym.Env[Any, Any]) -> list[Any]:
    """The actions of an answer of the current task's front, which earns something: zeros are equal to any zeros."""
    base: Any = env.unwrapped
    if isinstance(base, VectorTextEnv):
        front = base.front(base.current_task)
        return [format_answers([front[i % len(front)].answer for i in range(base.num_answers)])]
    maze = MazeEnv()
    return [MOVES.index(move) for move in maze.parse(maze.front(base._current())[0].answer)]


def episode(env: gym.Env[Any, Any], **reset: Any) -> list[tuple[Any, ...]]:
    """Everything that an episode with a good answer returns; its return is positive."""
    returned: list[tuple[Any, ...]] = [env.reset(**reset)]
    for action in good_actions(env):
        returned.append(env.step(action))
    assert returned[-1][2]
    assert np.any(sum(step[1] for step in returned[1:]) > 0)
    return returned


def scribble(data: Any) -> None:
    """Write into everything that can be written to."""
    if isinstance(data, dict):
        for value in list(data.values()):
            scribble(value)
        data.clear()
    elif isinstance(data, (list, tuple)):
        for value in data:
            scribble(value)
        if isinstance(data, list):
            data.clear()
    elif isinstance(data, np.ndarray):
        data.fill(0)


class FreshWeights(LinearReward):
    """LinearReward, but for the one thing in it that Gymnasium's checker refuses: each info holds the same weights."""

    def step(self, action: Any) -> Any:
        *returned, info = super().step(action)
        return *returned, {**info, "reward_weights": self.w.copy()}


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_make_gives_an_environment_with_a_vector_reward(env_id: str) -> None:
    env: Any = gym.make(env_id)
    space = env.unwrapped.reward_space
    assert isinstance(space, gym.spaces.Box)
    assert space.dtype == np.float32
    assert space.shape == (env.unwrapped.reward_dim,)
    for observation, *rest in episode(env, seed=0):
        assert observation in env.observation_space
        if len(rest) > 1:
            assert rest[0] in space
            assert rest[0].dtype == np.float32


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_check_env_finds_nothing(env_id: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(FreshWeights(gym.make(env_id).unwrapped))
    messages = [str(warning.message) for warning in caught]
    # A vector reward cannot be checked without a wrapper, and the checker remarks upon any wrapper.
    assert [message for message in messages if "different from the unwrapped version" not in message] == []


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_linear_reward_weighs_the_vector(env_id: str) -> None:
    weight = np.linspace(0.1, 0.4, gym.make(env_id).unwrapped.reward_dim)
    vectors = [step[1] for step in episode(gym.make(env_id), seed=2)[1:]]
    scalars = [step[1] for step in episode(LinearReward(gym.make(env_id), weight=weight), seed=2)[1:]]
    np.testing.assert_allclose(scalars, np.array(vectors) @ weight)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_episode_statistics_sum_up_the_vectors(env_id: str) -> None:
    steps = episode(MORecordEpisodeStatistics(gym.make(env_id), gamma=0.9), seed=3)[1:]
    statistics = steps[-1][-1]["episode"]
    assert statistics["l"] == len(steps)
    np.testing.assert_allclose(statistics["r"], sum(step[1] for step in steps))
    discounted = sum(0.9**t * step[1] for t, step in enumerate(steps))
    np.testing.assert_allclose(statistics["dr"], discounted, rtol=1e-5)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_copies_run_side_by_side_in_a_vector_environment(env_id: str) -> None:
    single = gym.make(env_id)
    env = MOSyncVectorEnv([lambda: gym.make(env_id)] * 3)  # type: ignore[arg-type]  # its annotation says iterator
    env.reset(seed=[1, 1, 2])
    single.reset(seed=1)
    total = np.zeros((3, single.unwrapped.reward_dim))
    for action in good_actions(single):
        _, rewards, terminated, _, _ = env.step([action] * 3)
        _, reward, single_terminated, _, _ = single.step(action)
        np.testing.assert_array_equal(rewards[:2], [reward, reward])
        assert terminated[:2].tolist() == [single_terminated] * 2
        total += rewards
    assert total[:2].any()
    assert total.shape == (3, single.unwrapped.reward_dim)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_the_same_seed_gives_the_same_episode(env_id: str) -> None:
    first, second = gym.make(env_id), gym.make(env_id)
    assert data_equivalence(episode(first, seed=7), episode(second, seed=7), exact=True)
    # Without a seed the stream goes on, in both alike.
    assert data_equivalence(episode(first), episode(second), exact=True)
    assert not data_equivalence(episode(first, seed=7)[0], episode(first, seed=8)[0], exact=True)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_what_a_caller_does_to_returned_data_changes_nothing(env_id: str) -> None:
    reference = copy.deepcopy(episode(gym.make(env_id), options={"index": 0}))
    env = gym.make(env_id)
    scribble(env.reset(options={"index": 0}))
    for action, expected in zip(good_actions(env), reference[1:], strict=True):
        returned = env.step(action)
        assert data_equivalence(returned, expected, exact=True)
        scribble(returned)
    assert data_equivalence(episode(env, options={"index": 0}), reference, exact=True)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_stepping_needs_a_running_episode(env_id: str) -> None:
    env = gym.make(env_id).unwrapped
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(env.action_space.sample())
    episode(env, seed=0)
    with pytest.raises(gym.error.ResetNeeded, match="over"):
        env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        *((env_id, {"preset": "paper", "difficulty": {"size": 7}}) for env_id in MAZE_IDS),
        *((i, {"preset": preset, "num_answers": 2}) for i in TASK_IDS for preset in env_type(i).presets),
    ],
)
def test_the_spec_survives_json(env_id: str, arguments: dict[str, Any]) -> None:
    env = gym.make(env_id, split="test", data_seed=3, **arguments)
    assert env.spec is not None
    text = env.spec.to_json()
    again = gym.make(EnvSpec.from_json(text))
    assert json.loads(text)["kwargs"].items() >= arguments.items()
    assert data_equivalence(episode(env, seed=1), episode(again, seed=1), exact=True)


OF_TASKS = [
    ("preset", "papr", "choose one of .*paper"),
    ("split", "dev", "train, validation, test"),
    ("source", "no-such-file.jsonl", "no-such-file.jsonl"),
    ("on_bad_row", "hide", "error, skip"),
    ("num_answers", 0, "from 1 to 1000"),
]
OF_MAZES = [
    ("preset", "papr", "conflict, paper, compact"),
    ("split", "dev", "train, validation, test"),
    ("render_mode", "video", "ansi, rgb_array"),
    ("difficulty", {"sise": 7}, "size, opened"),
    ("difficulty", {"size": 2}, "greater than or equal to 5"),
    ("difficulty", {"gold": (4, 2)}, "two ascending numbers"),
    ("data_seed", -1, "from 0 to"),
]


@pytest.mark.parametrize(
    ("env_id", "argument", "value", "way_out"),
    [(env_id, *bad) for ids, some in ((TASK_IDS, OF_TASKS), (MAZE_IDS, OF_MAZES)) for env_id in ids for bad in some],
)
def test_a_bad_argument_is_named_with_the_way_out(env_id: str, argument: str, value: Any, way_out: str) -> None:
    with pytest.raises(ValueError, match=way_out) as error:
        type(gym.make(env_id).unwrapped)(**{argument: value})
    named = next(iter(value)) if isinstance(value, dict) else str(value)
    assert named in str(error.value)


@pytest.mark.parametrize("env_id", [env_id for env_id in text_env_ids() if env_id != UNUSABLE])
def test_an_unknown_argument_is_one_sentence_with_those_that_are_accepted(env_id: str) -> None:
    name = env_type(env_id).__name__
    accepted = r"it takes .*\bsplit, num_answers, answers_as_steps, data_seed, render_mode$"
    with pytest.raises(ValueError, match=rf"^{name} takes no argument 'moed': {accepted}"):
        gym.make(env_id, moed="conflict")


@pytest.mark.parametrize("argument", ["moed", "num_answers"])
def test_the_maze_in_steps_names_the_arguments_that_it_takes(argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^MazeStepsEnv takes no argument '{argument}': it takes preset, .*index"):
        gym.make("vpo/MazeSteps-v0", **{argument: 3})


COMPACT_IDS = [env_id for env_id in TASK_IDS if "compact" in env_type(env_id).presets]


@pytest.mark.parametrize("env_id", COMPACT_IDS)
def test_a_preset_makes_the_same_environment_by_its_class_by_its_id_and_in_vectors(env_id: str) -> None:
    env: Any = make_text_env(env_id, preset="compact")
    assert (env.preset, env.names_tags, env.spec.id) == ("compact", False, env_id)
    task = env.task(3)
    paper = make_text_env(env_id, preset="paper")
    assert len(env.prompt(task, 1)) < 0.5 * len(paper.prompt(paper.task(3), 1))
    for other in (env_type(env_id)(preset="compact"), type(env)(preset="compact"), copy.copy(env)):
        assert type(other) is type(env)
        assert other.task(3) == task
    envs = gym.make_vec(env_id, num_envs=2, preset="compact")
    assert envs.reset(options={"index": [3, 4]})[0] == (env.prompt(task, 1), env.prompt(env.task(4), 1))


@pytest.mark.parametrize("env_id", COMPACT_IDS)
def test_a_subclass_of_another_preset_is_told_which_class_to_extend(env_id: str) -> None:
    own = type("Own", (env_type(env_id),), {"__module__": __name__})
    compact = type(make_text_env(env_id, preset="compact"))
    place = f"{compact.__module__}.{compact.__name__}"
    with pytest.raises(ValueError, match=f"Own has no preset 'compact': subclass {place} for it"):
        own(preset="compact")
    assert isinstance(type("OwnCompact", (compact,), {"__module__": __name__})(), compact)


@pytest.mark.parametrize("env_id", MAZE_IDS)
@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_rendering_works_before_and_after_a_step(env_id: str, mode: str) -> None:
    env = gym.make(env_id, render_mode=mode)
    env.reset(seed=0)
    before = env.render()
    env.step(env.action_space.sample())
    assert type(before) is type(env.render()) is (str if mode == "ansi" else np.ndarray)


@pytest.mark.parametrize("env_id", MAZE_IDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idx": 3}, "unknown reset option 'idx'.*'index' and 'task'"),
        ({"index": -1}, "got -1"),
        ({"index": 2**32}, "got 4294967296"),
        ({"index": "first"}, "got 'first'"),
        ({"index": 0, "task": {}}, "not both"),
        ({"task": 5}, "must be a MazeTask, got int"),
        ({"task": {"rows": ["S.E", "...", "..."]}}, "budget: Field required"),
        ({"task": {"rows": ["S.E", "..", "..."], "budget": 4}}, "row 1 has 2 cells"),
        ({"task": {"rows": ["S.X", "...", "..E"], "budget": 4}}, "unknown symbol 'X'"),
        ({"task": {"rows": ["S.S", "...", "..E"], "budget": 4}}, "exactly one S, got 2"),
        ({"task": {"rows": ["S..", "...", "..E"], "budget": 0}}, "at least 1, got 0"),
    ],
)
def test_bad_reset_options_are_named(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gym.make(env_id).reset(options=options)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_environments_can_be_copied_and_pickled(env_id: str) -> None:
    env = gym.make(env_id, data_seed=2).unwrapped
    env.reset(seed=0)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert data_equivalence(episode(twin, seed=1), episode(env, seed=1), exact=True)
