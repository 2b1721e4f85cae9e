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

UNCERTIFIED = {"min_set_worth": 1.0, "min_vector_worth": 1.0}


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


def test_start_and_exit_stand_in_the_middle_of_opposite_edges() -> None:
    directions = Counter(ends(task) for task in lanes(200))
    assert set(directions) == {((3, 0), (3, 6)), ((3, 6), (3, 0)), ((0, 3), (6, 3)), ((6, 3), (0, 3))}
    assert min(directions.values()) > 25


def test_gold_and_diamonds_lie_on_opposite_sides_of_the_direct_lane() -> None:
    seen = set()
    for task in lanes(200):
        start, goal = ends(task)
        across = 0 if start[0] == goal[0] else 1
        sides = {symbol: {np.sign(cell[across] - 3) for cell in cells_with(task.rows, symbol)} for symbol in "GD"}
        assert len(sides["G"]) == len(sides["D"]) == 1
        assert sides["G"] != sides["D"]
        seen.add((start, *sides["G"]))
        assert 4 <= len(cells_with(task.rows, "G")) <= 5
        assert 4 <= len(cells_with(task.rows, "D")) <= 5
        assert not cells_with(task.rows, "LB")
    assert len(seen) == 8


def test_the_direct_lane_takes_six_steps_and_an_outer_lane_the_whole_budget() -> None:
    for task in lanes(200):
        start, goal = ends(task)
        assert distances(task.rows, start)[goal] == task.fewest_steps == 6
        assert task.budget == 12


# --- what it is worth ---


def test_a_specialist_has_all_of_one_goal_and_a_compromise_beats_it_under_the_mean() -> None:
    env = MazeEnv(preset="compact")
    for task in lanes(30):
        front = np.array([point.vector for point in env.front(task)])
        for specialist in np.eye(3):
            assert (front == specialist).all(axis=1).any()
        assert 1 / 3 + 0.02 < front.mean(axis=1).max() < 0.5


@pytest.mark.parametrize(
    ("near", "far", "least", "most"), [(1, 3, 1.0, 1.01), (2, 1, 1.1, 1.2), (2, 2, 1.3, 1.45), (2, 3, 1.5, 1.7)]
)
def test_the_number_of_items_near_and_far_sets_the_worth_of_the_vector(
    near: int, far: int, least: float, most: float
) -> None:
    knobs = {"near": (near, near), "far": (far, far), **UNCERTIFIED}
    env = MazeEnv(preset="compact", difficulty=knobs)
    fronts = [np.array([point.vector for point in env.front(env.task(index))]) for index in range(8)]
    assert least <= np.mean([by_hand(front)[1] for front in fronts]) <= most


@pytest.mark.parametrize(
    "harder",
    [{"size": 9, "opened": (4, 12)}, {"size": 9, "reach": 4, "far": (3, 4)}, {"size": 11, "reach": 4, "far": (3, 4)}],
)
def test_harder_mazes_are_certified_too(harder: dict[str, Any]) -> None:
    env = MazeEnv(preset="compact", difficulty=harder)
    for index in range(3):
        task = env.task(index)
        of_set, of_vector = by_hand(np.array([point.vector for point in env.front(task)]))
        assert of_set >= 1.29
        assert of_vector >= 1.14


def test_a_worth_out_of_reach_is_refused_in_the_end() -> None:
    impossible = {"size": 5, "reach": 2, "near": (5, 5), "far": (1, 1)}
    with pytest.raises(ValueError, match="found no task in 10000 tries"):
        MazeEnv(preset="compact", difficulty={**impossible, "min_vector_worth": 1.9}).task(0)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"size": 8}, "size must be odd, since the direct lane lies in the middle, got 8"),
        ({"reach": 4}, "reach must be at most 3 on a grid of size 7, got 4"),
        ({"near": (2, 4), "far": (1, 3)}, "near and far must allow at most 6 items together"),
        ({"zone_radius": 2}, "the knobs are min_set_worth, min_vector_worth, size, reach, near, far, opened, slack"),
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


def test_with_exit_rewards_the_direct_way_is_worth_half_of_the_best_and_two_routes_are_best() -> None:
    env = MazeEnv(preset="compact", reward_shape="exit")
    assert env.objective_names == ("completion", "gold", "diamond")
    for index in range(50):
        task = env.task(index)
        assert task == MazeEnv(preset="compact").task(index)
        vectors = {point.vector for point in env.front(task)}
        assert {(v[1] == 1, v[2] == 1) for v in vectors} >= {(True, False), (False, True)}
        assert env.optimum(task) == pytest.approx(2 / 3)
        moves = ("UP", "DOWN", "LEFT", "RIGHT")
        straight = [format_answers([", ".join([move] * task.fewest_steps)]) for move in moves]
        assert env.score_batch([task] * 4, straight, 1).rewards[:, 0].max(axis=0).tolist() == [1, 0, 0]


# --- what answers earn that do not read the maze ---


def test_straight_routes_earn_haste_alone_on_every_fourth_maze() -> None:
    env = MazeEnv(preset="compact")
    straight = [format_answers([", ".join([move] * 6)]) for move in ("UP", "DOWN", "LEFT", "RIGHT")]
    earned = np.array([env.score_batch([task] * 4, straight, 1).rewards[:, 0] for task in lanes(200)])
    np.testing.assert_array_equal(earned.max(axis=1), [[0, 0, 1]] * 200)
    assert earned.mean(axis=0)[:, 2].max() < 0.4


# --- text ---


def test_the_compact_prompt_lists_the_open_cells() -> None:
    env = MazeEnv(preset="compact")
    for task in lanes(50):
        words = env.prompt(task, 3).split()
        cells = [f"{'abcdefg'[c]}{r + 1}{symbol}" for r, row in enumerate(task.rows) for c, symbol in enumerate(row)]
        assert words == ["budget", "12", "answers", "3", *(cell for cell in cells if not cell.endswith("#"))]
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
    first, kinds = Counter[str](), Counter[str]()
    for task in lanes(200):
        answers = env.demonstrations(task, rng, 3)
        batch = env.score_batch([task], [format_answers(answers)], 3)
        assert (batch.status == Status.OK).all()
        best = max(sum(point.vector) for point in env.front(task))
        names = []
        for vector in batch.rewards[0]:
            specialist = [name for name, share in zip(env.objective_names, vector, strict=True) if share == 1]
            names.append(*specialist or ["compromise" if vector.sum() == pytest.approx(best) else "other"])
        assert len(set(names)) == 3
        first[names[0]] += 1
        kinds.update(names)
    assert set(kinds) == {"gold", "diamond", "haste", "compromise"}
    assert all(35 <= count <= 65 for count in first.values())
    assert all(125 <= count <= 175 for count in kinds.values())
