"""The maze one move at a time: the same mazes, rules and returns as whole routes."""

from __future__ import annotations

from itertools import islice, product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maze_oracle import after, cells_with, every_outcome, front_of, linear_vector
from numpy.typing import NDArray

from vpo_envs import MazeEnv, MazeStepsEnv, MazeTask, Objective, UnknownFront
from vpo_envs.tasks.maze.routes import write_route
from vpo_envs.tasks.maze.steps import PLANES

ROUTES = st.text("UDLR", min_size=1, max_size=60)
Step = tuple[NDArray[np.float32], NDArray[np.float32], bool, bool, dict[str, Any]]


def take(env: MazeStepsEnv, route: str) -> list[Step]:
    """Follow a route until the episode ends."""
    steps: list[Step] = []
    for move in route:
        steps.append(env.step("UDLR".index(move)))
        if steps[-1][2]:
            break
    return steps


def expected_planes(task: MazeTask, route: str) -> dict[str, NDArray[np.float32]]:
    """An observation built from the rows alone."""
    size = task.size
    cell = cells_with(task.rows, "S")[0]
    visited = {cell}
    for move in route:
        cell = after(task.rows, cell, move)
        visited.add(cell)

    def plane(cells: Any) -> NDArray[np.float32]:
        grid = np.zeros((size, size), dtype=np.float32)
        for row, column in cells:
            grid[row, column] = 1
        return grid

    planes = {
        "agent": plane([cell]),
        "wall": plane(cells_with(task.rows, "#")),
        "exit": plane(cells_with(task.rows, "E")),
    }
    for name, symbol in {"gold": "G", "diamond": "D", "lava": "L", "bonus": "B"}.items():
        cells = set(cells_with(task.rows, symbol))
        planes[f"{name}_ahead"] = plane(cells - visited)
        planes[f"{name}_visited"] = plane(cells & visited)
    left = task.budget - len(route)
    planes["steps_left"] = np.full((size, size), min(1.0, left / size**2), dtype=np.float32)
    planes["share_left"] = np.full((size, size), left / task.budget, dtype=np.float32)
    return planes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 20), ROUTES)
def test_the_return_is_the_vector_of_the_same_route(index: int, seed: int, prefix: str) -> None:
    whole, steps = MazeEnv(preset="paper"), MazeStepsEnv(preset="paper")
    task = whole.task(index)
    # A random start of the route, then demonstrations, which often reach the exit.
    answer = whole.parse(whole.demonstrations(task, np.random.default_rng(seed), 1)[0])
    for route in (prefix, answer, prefix[:6] + answer):
        steps.reset(options={"index": index})
        rewards = [step[1] for step in take(steps, route)]
        expected = whole.score_batch([task], [f"<answer>{write_route(route)}</answer>"]).rewards[0, 0]
        np.testing.assert_array_equal(np.sum(rewards, axis=0), expected)
        assert not np.any(rewards[:-1])


def tiny(size: int) -> MazeTask:
    """A maze of nine open cells in a corner, with 4^6 sequences of moves; a shortest route has 4 steps."""
    rows = [row.ljust(size, "#") for row in ("SGL", "BD.", "L.E")]
    return MazeTask(rows=(*rows, *["#" * size] * (size - 3)), budget=6)


@pytest.mark.parametrize("preset", ["paper", "compact"])
def test_rewards_as_things_are_collected_have_the_same_return_on_every_trajectory(preset: str) -> None:
    env = MazeStepsEnv(preset=preset, reward_timing="collected")
    task = tiny(env.maze.config.size)
    whole = MazeEnv(preset=preset)
    returns = set()
    for moves in islice(product("UDLR", repeat=task.budget), 0, None, 5):
        env.reset(options={"task": task})
        steps = take(env, "".join(moves))
        assert all(step[1] in env.reward_space for step in steps)
        total = np.sum([step[1] for step in steps], axis=0, dtype=np.float64)
        vector = whole.reward_vector(whole.evaluate(task, "".join(moves)))
        np.testing.assert_allclose(total, vector, atol=1e-6)
        returns.add(vector)
    assert len(returns) > 2


def test_each_thing_is_paid_when_it_is_collected() -> None:
    env = MazeStepsEnv(reward_timing="collected", difficulty={"size": 5}, preset="paper")
    env.reset(options={"task": tiny(5)})
    paid = [step[1].tolist() for step in take(env, "RRDD")]
    assert paid == [[0, 1, 0, 0], [0, 0, 0, -0.5], [0, 0, 0, 0], [1, 0, 0, 1]], "gold, lava, nothing, the exit"
    env.reset(options={"task": tiny(5)})
    paid = [step[1].tolist() for step in take(env, "RULLLL")]
    assert paid == [[0, 1, 0, 0], *[[0, 0, 0, 0]] * 4, [0, -1, 0, 0]], "what never reaches the exit is taken back"


def test_the_front_in_discounted_returns_is_not_known_for_rewards_on_the_way() -> None:
    env = MazeStepsEnv(preset="paper", index=0, reward_timing="collected")
    env.reset()
    at_exit = MazeStepsEnv(preset="paper", index=0)
    at_exit.reset()
    np.testing.assert_array_equal(env.pareto_front(), at_exit.pareto_front())
    with pytest.raises(UnknownFront, match='reward_timing="exit" only'):
        env.pareto_front(0.9)


def test_an_index_fixes_the_maze_of_every_episode() -> None:
    env = MazeStepsEnv(index=7, preset="paper")
    shown = [env.reset()[1]["index"] for _ in range(3)]
    assert shown == [7, 7, 7]
    assert env.maze.current_task == MazeEnv(preset="paper").task(7)
    assert env.reset(options={"index": 2})[1]["index"] == 2
    assert env.reset(seed=1)[1]["index"] == 7
    assert (
        MazeStepsEnv(preset="paper").reset(seed=1)[1]["index"] != MazeStepsEnv(preset="paper").reset(seed=2)[1]["index"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": -1}, "index must be an integer from 0 to 4294967295, got -1"),
        ({"reward_timing": "early"}, "unknown reward_timing 'early': choose one of exit, collected"),
    ],
)
def test_an_argument_out_of_range_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MazeStepsEnv(**arguments)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["paper", "paper"]), st.integers(0, 20), ROUTES)
def test_an_observation_shows_the_maze_as_it_now_is(preset: str, index: int, route: str) -> None:
    env = MazeStepsEnv(preset=preset)
    observation, _ = env.reset(options={"index": index})
    task = env.maze.task(index)
    taken = [observation, *(step[0] for step in take(env, route))]
    for count, observation in enumerate(taken):
        assert observation in env.observation_space
        expected = expected_planes(task, route[:count])
        assert tuple(expected) == PLANES
        for name, plane in zip(PLANES, observation, strict=True):
            np.testing.assert_allclose(plane, expected[name], rtol=1e-6, err_msg=name)


def test_the_mazes_are_those_of_the_whole_routes() -> None:
    arguments: dict[str, Any] = {"preset": "paper", "split": "test", "data_seed": 2, "difficulty": {"size": 8}}
    _, whole = MazeEnv(**arguments).reset(seed=5)
    observation, info = MazeStepsEnv(**arguments).reset(seed=5)
    assert info == {**whole, "active_objectives": info["active_objectives"]}
    assert observation.shape == (13, 8, 8)


def test_an_episode_ends_at_the_exit() -> None:
    env = MazeStepsEnv(difficulty={"size": 5}, preset="paper")
    task = MazeTask(rows=("SG...", ".....", ".....", ".....", "....E"), budget=12)
    env.reset(options={"task": task})
    steps = take(env, "RRRRDDDDU")
    assert len(steps) == 8
    assert [step[2] for step in steps] == [False] * 7 + [True]
    assert steps[-1][1].tolist() == [1, 1, 1, 1]
    assert steps[-1][4]["outcome"]["steps"] == 8


@pytest.mark.parametrize("timing", ["exit", "collected"])
def test_an_episode_ends_at_a_wall_where_the_maze_has_it_so(timing: str) -> None:
    env = MazeStepsEnv(difficulty={"size": 5}, preset="paper", reward_timing=timing)
    env.reset(options={"task": tiny(5).model_copy(update={"blocked": "ends"})})
    steps = take(env, "RUDD")
    assert [step[2] for step in steps] == [False, True]
    assert np.sum([step[1] for step in steps], axis=0).tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(steps[1][0][0], steps[0][0][0])


def test_an_episode_ends_with_the_budget_as_terminated_not_truncated() -> None:
    env = MazeStepsEnv(preset="paper")
    env.reset(seed=0)
    steps = take(env, "UD" * 100)
    assert len(steps) == env.maze.current_task.budget
    assert steps[-1][2:4] == (True, False)
    assert not np.any([step[1] for step in steps])
    assert steps[-1][0][PLANES.index("steps_left")].max() == 0


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.5])
def test_the_front_is_that_of_an_exhaustive_search_in_discounted_returns(gamma: float) -> None:
    env = MazeStepsEnv(preset="conflict")
    for index in range(4):
        env.reset(options={"index": index})
        task = env.maze.task(index)
        returns = (
            tuple(gamma ** (facts.steps - 1) * value for value in linear_vector(task.rows, facts))
            for facts in every_outcome(task.rows, task.budget)
        )
        # Long routes over both corners return a millionth, and nothing beats them.
        brute = front_of(returns, digits=15)
        np.testing.assert_allclose(sorted(v.tolist() for v in env.pareto_front(gamma)), sorted(brute), rtol=1e-6)


def test_the_discounted_front_is_what_episodes_return() -> None:
    env = MazeStepsEnv(preset="paper")
    env.reset(options={"index": 0})
    task = env.maze.task(0)
    front = [vector.tolist() for vector in env.pareto_front(0.9)]
    found = []
    for _, answer in env.maze.outcome_front(task):
        env.reset(options={"task": task})
        rewards = [step[1] for step in take(env, env.maze.parse(answer))]
        found.append(sum(0.9**t * reward for t, reward in enumerate(rewards)))
    for vector in front:
        assert any(np.allclose(vector, other, atol=1e-5) for other in found)


def test_a_subclass_takes_the_objectives_of_another_maze() -> None:
    class Frugal(MazeEnv):
        objectives = (*MazeEnv.objectives, Objective("brevity", "Few steps", lambda o: 1 - o.steps / o.max_steps))

    class FrugalSteps(MazeStepsEnv):
        maze_type = Frugal

    env = FrugalSteps(preset="paper")
    env.reset(seed=0)
    assert env.reward_dim == 5
    assert take(env, "U")[0][1] in env.reward_space
    assert all(vector.shape == (5,) for vector in env.pareto_front())


def test_its_front_is_unknown_where_an_objective_falls() -> None:
    class Tired(MazeEnv):
        objectives = (*MazeEnv.objectives, Objective("length", "Many steps", lambda o: o.steps / o.max_steps))

    class TiredSteps(MazeStepsEnv):
        maze_type = Tired

    env = TiredSteps(preset="paper")
    env.reset(seed=0)
    with pytest.raises(UnknownFront, match="objective 'length' of Tired falls"):
        env.pareto_front()


def test_a_maze_of_another_size_is_refused() -> None:
    env = MazeStepsEnv(preset="paper")
    task = MazeEnv(preset="paper", difficulty={"size": 7}).task(0)
    with pytest.raises(ValueError, match=r"of size 9, got one of size 7: make it with difficulty=\{'size': 7\}"):
        env.reset(options={"task": task})


@pytest.mark.parametrize("action", [4, -1, 0.5, "UP", None])
def test_a_move_that_is_none_is_named(action: Any) -> None:
    env = MazeStepsEnv(preset="paper")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="0 up, 1 down, 2 left or 3 right, got"):
        env.step(action)


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_a_discount_out_of_range_is_named(gamma: float) -> None:
    env = MazeStepsEnv(preset="paper")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"gamma must lie in .0, 1., got {gamma}"):
        env.pareto_front(gamma)


def test_nothing_is_known_before_the_first_reset() -> None:
    env = MazeStepsEnv(render_mode="ansi")
    for call in (env.pareto_front, env.render):
        with pytest.raises(gym.error.ResetNeeded):
            call()
