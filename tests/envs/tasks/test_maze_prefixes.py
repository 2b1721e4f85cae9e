"""The values of unfinished routes, against a search over all routes that shares no code with the solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maze_oracle import every_outcome_after, front_of, lanes_vector, linear_vector, walk_plainly
from test_maze_front import RANDOM_MAZES, FrugalMaze, HalfTheGold, PartialCredit

from vpo_agent.search.values import completion_front
from vpo_envs import MazeEnv, MazeTask, UnknownFront
from vpo_envs.pareto import spread_weights
from vpo_envs.text import format_answers

ROUTES = st.text("UDLR", max_size=12)
LANES = MazeEnv(preset="compact", num_answers=3)
PAPER = MazeEnv(preset="paper")


def rounded(vectors: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(vector) for vector in vectors.round(5).tolist()}


def brute(task: MazeTask, route: str) -> set[tuple[float, ...]]:
    outcomes = every_outcome_after(task.rows, task.budget, route)
    return front_of(linear_vector(task.rows, facts) for facts in outcomes) or {(0.0,) * 4}


@given(RANDOM_MAZES, ROUTES)
@settings(max_examples=300, deadline=None)
def test_a_prefix_has_the_front_of_all_routes_that_begin_with_it(task: MazeTask, route: str) -> None:
    assert rounded(completion_front(PAPER, task, " ".join(route))) == brute(task, route)


@pytest.mark.parametrize("index", range(6))
def test_in_lanes_every_prefix_of_a_front_route_has_the_front_of_its_completions(index: int) -> None:
    task = LANES.task(index)
    for point in LANES.front(task)[:4]:
        moves = point.answer.split()
        for end in range(len(moves) + 1):
            route = "".join(move[0] for move in moves[:end])
            expected = front_of(
                lanes_vector(task.rows, facts, task.budget)
                for facts in every_outcome_after(task.rows, task.budget, route)
            )
            assert rounded(completion_front(LANES, task, " ".join(moves[:end]))) == expected


@given(RANDOM_MAZES)
@settings(max_examples=50, deadline=None)
def test_the_empty_text_has_the_whole_front(task: MazeTask) -> None:
    assert rounded(completion_front(PAPER, task, "")) == rounded(np.array([p.vector for p in PAPER.front(task)]))


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("", ""),
        ("R", "R"),
        ("RI", "R"),
        ("RIGHT, dow", "RD"),
        ("RRD", "RRD"),
        ("Rb", "R"),
        ("Rb1 Dc", "RD"),
        ("Rb1 ", "R"),
        # It can become the word UD5, a move upwards to the cell D5.
        ("UD", "U"),
        ("RRx", None),
        ("RIG ", None),
        ("<", None),
    ],
)
def test_a_text_counts_as_far_as_it_determines_moves(text: str, moves: str | None) -> None:
    task = LANES.task(0)
    expected = np.zeros((1, 3)) if moves is None else completion_front(LANES, task, " ".join(moves))
    assert np.array_equal(completion_front(LANES, task, text), expected)


@pytest.mark.parametrize("env", [LANES, PAPER, MazeEnv(preset="conflict", reward_shape="convex_bonus")])
def test_along_an_answer_the_value_falls_to_its_score_and_never_rises(env: MazeEnv) -> None:
    weights = spread_weights(env.reward_dim, 32)
    rng = np.random.default_rng(0)
    for index in range(4):
        task = env.task(index)
        best = {tuple(np.round(point.vector, 5)): point.answer for point in env.front(task)}
        for answer in [*best.values(), *env.demonstrations(task, rng, 3)]:
            values = np.array(
                [(weights @ completion_front(env, task, answer[:end]).T).max(axis=1) for end in range(len(answer) + 1)]
            )
            assert (np.diff(values, axis=0) <= 1e-9).all()
            reward = env.score_batch([task], [format_answers([answer])], 1).rewards[0, 0]
            assert np.allclose(completion_front(env, task, answer), reward)
            if answer in best.values():
                # Under the weights where this answer is the best one, no move gives anything away.
                own = weights @ reward
                assert np.allclose(values[:, own >= values[0] - 1e-6], own[own >= values[0] - 1e-6])


def test_other_objectives_are_applied_where_the_solver_covers_them() -> None:
    task = PAPER.task(0)
    assert rounded(completion_front(FrugalMaze(), task, "")) == rounded(
        np.array([point.vector for point in FrugalMaze().front(task)])
    )
    for env in (HalfTheGold(), PartialCredit()):
        with pytest.raises(UnknownFront, match="override completion_outcomes"):
            completion_front(env, task, "R")


def test_a_route_that_misses_the_exit_earns_nothing_once_the_budget_is_spent() -> None:
    task = LANES.task(0)
    blocked = next(m for m in "UDLR" if walk_plainly(task.rows, task.budget, m * task.budget) is None)
    assert np.array_equal(completion_front(LANES, task, " ".join(blocked * task.budget)), np.zeros((1, 3)))
