"""Mazes with three lanes: their geometry, what a set and the vector are worth on them, and their demonstrations."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from maze_oracle import Cell, cells_with, distances

from vpo_envs import MazeCompactEnv, MazeEnv, MazeTask, Split, Status
from vpo_envs.text import format_answers

UNCERTIFIED = {"min_set_gain": 1.0, "min_vector_gain": 1.0}


@lru_cache
def lanes(count: int, split: Split = "train") -> list[MazeTask]:
    env = MazeEnv(preset="compact", split=split)
    return [env.task(index) for index in range(count)]


def ends(task: MazeTask) -> tuple[Cell, Cell]:
    (start,), (goal,) = cells_with(task.rows, "S"), cells_with(task.rows, "E")
    return start, goal


def by_hand(front: np.ndarray) -> tuple[float, float]:
    """What a set and the vector are worth, from 20,000 random weights."""
    exponentials = np.random.default_rng(0).exponential(size=(20_000, 3))
    utilities = (exponentials / exponentials.sum(axis=1, keepdims=True)) @ front.T

    def best(size: int, some: np.ndarray) -> float:
        sets = combinations(some.tolist(), min(size, len(some)))
        return float(max(utilities[:, list(chosen)].max(axis=1).mean() for chosen in sets))

    means = front.mean(axis=1)
    everything, alike = np.arange(len(front)), np.flatnonzero(means >= means.max() - 0.02)
    return best(3, everything) / best(1, everything), best(3, everything) / best(3, alike)


# --- geometry ---


def test_start_and_exit_stand_on_opposite_edges_and_not_across_from_each_other() -> None:
    starts = Counter(ends(task)[0] for task in lanes(200))
    for (row, column), (to_row, to_column) in map(ends, lanes(200)):
        assert sorted([abs(to_row - row), abs(to_column - column)]) == [2, 6]
    edges = {(row, column) for row in (2, 4) for column in (0, 6)}
    assert set(starts) == edges | {(column, row) for row, column in edges}
    assert max(starts.values()) < 50


def test_gold_and_diamonds_lie_in_turn_on_either_side() -> None:
    sides = Counter[str]()
    for task in lanes(200):
        (row, column), (to_row, to_column) = ends(task)
        gold, diamonds = (np.mean(cells_with(task.rows, symbol), axis=0) for symbol in "GD")
        turn = (to_row - row) * (gold - diamonds)[1] - (to_column - column) * (gold - diamonds)[0]
        sides["left" if turn > 0 else "right"] += 1
        assert 4 <= len(cells_with(task.rows, "G")) <= 5
        assert 4 <= len(cells_with(task.rows, "D")) <= 5
        assert not cells_with(task.rows, "LB")
    assert min(sides.values()) > 70


def test_the_direct_lane_is_a_shortest_route_and_an_outer_lane_takes_the_whole_budget() -> None:
    for task in lanes(200):
        start, goal = ends(task)
        assert distances(task.rows, start)[goal] == task.fewest_steps
        assert task.fewest_steps == 8
        assert task.budget == task.fewest_steps + 4


# --- what it is worth ---


def test_a_specialist_has_all_of_one_goal_and_a_compromise_beats_it_under_the_mean() -> None:
    env = MazeEnv(preset="compact")
    for task in lanes(30):
        front = np.array([point.vector for point in env.front(task)])
        assert front.max(axis=0).tolist() == [1, 1, 1]
        assert front.min() == 0
        assert 1 / 3 + 0.02 < front.mean(axis=1).max() < 0.7


@pytest.mark.parametrize(
    "harder",
    [{"size": 9, "opened": (4, 12)}, {"size": 9, "reach": 3, "far": (3, 4)}, {"size": 11, "reach": 4, "far": (3, 4)}],
)
def test_harder_mazes_are_certified_too(harder: dict[str, Any]) -> None:
    env = MazeEnv(preset="compact", difficulty=harder)
    for index in range(3):
        task = env.task(index)
        of_set, of_vector = by_hand(np.array([point.vector for point in env.front(task)]))
        assert of_set >= 1.29
        assert of_vector >= 1.14


def test_a_worth_out_of_reach_is_refused_in_the_end() -> None:
    impossible = {"size": 7, "reach": 2, "near": (5, 5), "far": (1, 1)}
    with pytest.raises(ValueError, match="found no task in 10000 tries"):
        MazeEnv(preset="compact", difficulty={**impossible, "min_vector_gain": 1.9}).task(0)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"size": 8}, "size must be odd, since the lanes lie about the middle, got 8"),
        ({"reach": 3}, "reach must be at most 2 on a grid of size 7, got 3"),
        ({"bends": 7}, "bends must be at most 6 on a grid of size 7, got 7"),
        ({"near": (2, 4), "far": (1, 3)}, "near and far must allow at most 6 items together"),
        ({"zone_radius": 2}, "min_vector_gain, size, reach, bends, near, far, opened, slack, blocked"),
    ],
)
def test_knobs_out_of_range_are_one_sentence(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MazeEnv(preset="compact", difficulty=knobs)


# --- rewards ---

MAZE = MazeTask(rows=("..G..", ".###.", "S...E", "##D##", "....."), budget=8)


@pytest.mark.parametrize(
    ("route", "vector"),
    [
        ("RRRR", (0, 0, 1)),
        ("RRDURR", (0, 1, 0.5)),
        ("UURRRRDD", (1, 0, 0)),
        ("LRRRR", (0, 0, 0.75)),  # a blocked move costs a step
        ("LLLLLRRRR", (0, 0, 0)),  # and too many the exit
        ("RRR", (0, 0, 0)),
    ],
)
def test_rewards_on_a_small_maze(route: str, vector: tuple[float, ...]) -> None:
    env = MazeEnv(preset="compact")
    assert env.objective_names == ("gold", "diamond", "haste")
    assert env.score_batch([MAZE], [f"<answer>{' '.join(route)}</answer>"]).rewards[0, 0].tolist() == list(vector)


def test_haste_is_full_where_the_budget_leaves_no_choice() -> None:
    env = MazeEnv(preset="compact")
    task = MAZE.model_copy(update={"budget": 4})
    assert env.score_batch([task], ["<answer>RRRR</answer>"]).rewards[0, 0].tolist() == [0, 0, 1]


def test_another_reward_shape_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown reward_shape 'concave': choose one of linear, exit"):
        MazeEnv(preset="compact", reward_shape="concave")


def test_objectives_of_ones_own_have_no_other_shape() -> None:
    class Tidy(MazeCompactEnv):
        objectives = MazeEnv.objectives[:3]

    assert Tidy().objective_names == ("completion", "gold", "diamond")
    with pytest.raises(ValueError, match="Tidy defines its own objectives: reward_shape must be 'linear'"):
        Tidy(reward_shape="exit")


def test_with_exit_rewards_the_direct_way_is_worth_at_most_half_of_the_best() -> None:
    env = MazeEnv(preset="compact", reward_shape="exit")
    assert env.objective_names == ("completion", "gold", "diamond")
    for index in range(50):
        task = env.task(index)
        assert task == MazeEnv(preset="compact").task(index)
        vectors = {point.vector for point in env.front(task)}
        assert {(v[1] == 1, v[2] == 1) for v in vectors} >= {(True, False), (False, True)}
        assert env.optimum(task) >= 2 / 3 - 1e-6


# --- what answers earn that do not read the maze ---


def test_a_move_into_a_wall_ends_the_walk() -> None:
    env = MazeEnv(preset="compact")
    ending = MAZE.model_copy(update={"blocked": "ends"})
    for route, there in (("RRRR", (0, 0, 1)), ("LRRRR", (0, 0, 0)), ("RRRDRR", (0, 0, 0)), ("RRDURRU", (0, 1, 0.5))):
        assert env.score_batch([ending], [f"<answer>{' '.join(route)}</answer>"]).rewards[0, 0].tolist() == list(there)
    assert {task.blocked for task in lanes(5)} == {"ends"}


# --- text ---


def test_the_compact_prompt_lists_the_open_cells() -> None:
    env = MazeEnv(preset="compact")
    for task in lanes(50):
        words = env.prompt(task, 3).split()
        cells = [f"{'abcdefg'[c]}{r + 1}{symbol}" for r, row in enumerate(task.rows) for c, symbol in enumerate(row)]
        assert words == ["budget", f"{task.budget}", "answers", "3", *(c for c in cells if not c.endswith("#"))]
        assert len(words) <= 50


def test_pictures_and_text_leave_out_the_lava() -> None:
    env = MazeEnv(preset="compact", render_mode="ansi")
    env.reset(options={"task": MAZE})
    env.step("<answer>RRDURR</answer>")
    text = env.render()
    assert "exit in 6 of 8 steps, gold 0/1, diamonds 1/1" in text
    assert "lava" not in text


# --- demonstrations ---


def test_demonstrations_are_of_different_kinds_and_each_kind_is_as_likely() -> None:
    env = MazeEnv(preset="compact")
    rng = np.random.default_rng(0)
    kinds = Counter[str]()
    for task in lanes(200):
        answers = env.demonstrations(task, rng, 3)
        assert len(set(answers)) == 3
        batch = env.score_batch([task], [format_answers(answers)], 3)
        assert (batch.status == Status.OK).all()
        front = np.array([point.vector for point in env.front(task)])
        for vector in batch.rewards[0]:
            kinds.update(name for name, share in zip(env.objective_names, vector, strict=True) if share == 1)
            kinds["compromise"] += vector.sum() == pytest.approx(front.sum(axis=1).max())
    assert all(kinds[name] >= 125 for name in (*env.objective_names, "compromise"))
