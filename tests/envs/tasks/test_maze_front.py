"""The exact front of a maze, against an exhaustive search that shares no code with the solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maze_oracle import (
    Facts,
    Vector,
    after,
    brute_front,
    cells_with,
    every_outcome,
    front_of,
    lanes_vector,
    linear_vector,
)

from vpo_envs import MazeEnv, MazeOutcome, MazeTask, Objective, Status, UnknownFront
from vpo_envs.text import format_answers

Score = Callable[[tuple[str, ...], Facts], Vector]


def brevity(outcome: MazeOutcome) -> float:
    return 1 - outcome.steps / outcome.max_steps


class FrugalMaze(MazeEnv):
    """A decomposition of one's own: short routes are worth something too."""

    objectives = (*MazeEnv.objectives, Objective("brevity", "Reaching the exit in few steps", brevity))


class BothOrNothing(MazeEnv):
    """Two objectives that read several facts at once."""

    objectives = (
        Objective("balance", "The rarer of the two items", lambda o: min(o.gold, o.diamonds) / 4),
        Objective("thrift", "Few steps and little lava", lambda o: (1 - o.steps / o.max_steps) / (1 + o.lava)),
    )


class LongWalks(MazeEnv):
    objectives = (*MazeEnv.objectives, Objective("exercise", "Many steps", lambda o: o.steps / o.max_steps))


class HalfTheGold(MazeEnv):
    objectives = (Objective("modesty", "Some gold, but not all", lambda o: float(o.gold == 1)), *MazeEnv.objectives[2:])


class PartialCredit(MazeEnv):
    def feasible(self, outcome: MazeOutcome) -> bool:
        return True


def random_maze(draw: st.DrawFn) -> MazeTask:
    """A 5×5 maze of any symbols, so walls may enclose items, start or exit."""
    symbols = draw(st.lists(st.sampled_from("....###GGDDLLB"), min_size=25, max_size=25))
    start, goal = draw(st.lists(st.integers(0, 24), min_size=2, max_size=2, unique=True))
    kept = {"G": 3, "D": 3, "L": 4, "B": 1}
    for cell, symbol in enumerate(symbols):
        if symbol in kept:
            kept[symbol] -= 1
            symbols[cell] = symbol if kept[symbol] >= 0 else "."
    symbols[start], symbols[goal] = "S", "E"
    text = "".join(symbols)
    rows = tuple(text[i : i + 5] for i in range(0, 25, 5))
    return MazeTask(rows=rows, budget=draw(st.integers(1, 24)))


RANDOM_MAZES = st.composite(random_maze)()


def solved_front(env: MazeEnv, task: MazeTask) -> set[Vector]:
    """The front that the solver gives, after scoring every answer of it anew."""
    front = env.front(task)
    response = format_answers([point.answer for point in front])
    batch = env.score_batch([task], [response], num_answers=len(front))
    assert (batch.status == Status.OK).all()
    np.testing.assert_allclose(batch.rewards[0], [point.vector for point in front], atol=1e-6)
    vectors = {tuple(round(value, 5) for value in point.vector) for point in front}
    assert len(vectors) == len(front)
    return vectors


def frugal_vector(rows: tuple[str, ...], facts: Facts, budget: int) -> Vector:
    return (*linear_vector(rows, facts), 1 - facts.steps / budget)


@settings(max_examples=100, deadline=None)
@given(RANDOM_MAZES)
def test_the_front_is_that_of_an_exhaustive_search(task: MazeTask) -> None:
    assert solved_front(MazeEnv(preset="paper"), task) == brute_front(task.rows, task.budget, linear_vector)


@settings(max_examples=50, deadline=None)
@given(RANDOM_MAZES)
def test_the_front_of_an_own_decomposition_is_that_of_an_exhaustive_search(task: MazeTask) -> None:
    outcomes = every_outcome(task.rows, task.budget)
    frugal = front_of(frugal_vector(task.rows, facts, task.budget) for facts in outcomes) or {(0.0,) * 5}
    assert solved_front(FrugalMaze(), task) == frugal
    both = front_of(
        (min(facts.gold, facts.diamonds) / 4, (1 - facts.steps / task.budget) / (1 + facts.lava)) for facts in outcomes
    ) or {(0.0, 0.0)}
    assert solved_front(BothOrNothing(), task) == both


@settings(max_examples=60, deadline=None)
@given(RANDOM_MAZES)
def test_the_front_of_gold_diamonds_and_haste_is_that_of_an_exhaustive_search(task: MazeTask) -> None:
    def score(rows: tuple[str, ...], facts: Facts) -> Vector:
        return lanes_vector(rows, facts, task.budget)

    outcomes = every_outcome(task.rows, task.budget)
    expected = front_of(score(task.rows, facts) for facts in outcomes) or {(0.0, 0.0, 0.0)}
    assert solved_front(MazeEnv(preset="compact"), task) == expected


@pytest.mark.parametrize("difficulty", [{}, {"slack": 3}, {"size": 9}])
def test_the_front_of_drawn_lanes_is_exact(difficulty: dict[str, Any]) -> None:
    certain = {"min_set_gain": 1.0, "min_vector_gain": 1.0, **difficulty}
    env = MazeEnv(preset="compact", difficulty=certain)
    for index in range(4):
        task = env.task(index)
        plain = [lanes_vector(task.rows, facts, task.budget) for facts in every_outcome(task.rows, task.budget)]
        assert solved_front(env, task) == front_of(plain)


def unblocked_routes(task: MazeTask) -> list[str]:
    """All routes of the budget's length that no wall ends, up to the exit."""
    ends = [("", cells_with(task.rows, "S")[0])]
    for _ in range(task.budget):
        further = []
        for route, cell in ends:
            there = {move: after(task.rows, cell, move) for move in "UDLR"}
            at_exit = task.rows[cell[0]][cell[1]] == "E"
            further += [(route, cell)] if at_exit else [(route + m, to) for m, to in there.items() if to != cell]
        ends = further
    return [route for route, _ in ends]


def test_no_route_at_all_beats_the_front_of_a_small_maze() -> None:
    env = MazeEnv(preset="compact", difficulty={"opened": (0, 0)})
    for index in range(2):
        task = env.task(index)
        vectors = {env.reward_vector(env.evaluate(task, route)) for route in unblocked_routes(task)}
        assert solved_front(env, task) == front_of(vectors)


@pytest.mark.parametrize(("preset", "count"), [("paper", 6), ("conflict", 3)])
def test_the_front_of_drawn_mazes_is_exact(preset: str, count: int) -> None:
    env = MazeEnv(preset=preset, split="test")
    for index in range(count):
        task = env.task(index)
        assert solved_front(env, task) == brute_front(task.rows, task.budget, linear_vector)


@pytest.mark.parametrize(
    ("rows", "budget", "front"),
    [
        pytest.param(("S..", "...", "..E"), 4, {(1, 1, 1, 1)}, id="no items"),
        pytest.param(("S#G", "###", "D.E"), 20, {(0, 0, 0, 0)}, id="exit out of reach"),
        pytest.param(("S.G", "...", "D.E"), 3, {(0, 0, 0, 0)}, id="budget too short"),
        pytest.param(("S#G", ".##", "..E"), 9, {(1, 0, 1, 1)}, id="walled-in gold"),
        pytest.param(("S.G", "...", "D.E"), 4, {(1, 1, 0, 1), (1, 0, 1, 1)}, id="gold or diamond"),
        pytest.param(("S.G", "...", "D.E"), 8, {(1, 1, 1, 1)}, id="time for both"),
        pytest.param(("SLG", ".##", "..E"), 8, {(1, 1, 1, 0), (1, 0, 1, 1)}, id="gold behind lava"),
        pytest.param(
            ("S.E", "LLL", "G.D"),
            8,
            {(1, 0, 0, 1), (1, 1, 0, 2 / 3), (1, 0, 1, 2 / 3), (1, 1, 1, 1 / 3)},
            id="lava for each",
        ),
        pytest.param(("SE.", "...", "..G"), 1, {(1, 0, 1, 1)}, id="exit beside the start"),
        pytest.param(("SEG", "##.", "..D"), 30, {(1, 0, 0, 1)}, id="items behind the exit"),
    ],
)
def test_fronts_that_can_be_seen_at_a_glance(rows: tuple[str, ...], budget: int, front: set[Vector]) -> None:
    task = MazeTask(rows=rows, budget=budget)
    expected = {tuple(round(value, 5) for value in vector) for vector in front}
    assert solved_front(MazeEnv(preset="paper"), task) == expected == brute_front(rows, budget)


def test_a_budget_without_end_does_not_reach_what_walls_enclose() -> None:
    task = MazeTask(rows=("S#G", ".##", "..E"), budget=10**9)
    assert solved_front(MazeEnv(preset="paper"), task) == {(1.0, 0.0, 1.0, 1.0)}


def test_pareto_front_is_that_of_the_current_task() -> None:
    env = MazeEnv(preset="paper")
    env.reset(seed=0)
    expected = [np.array(point.vector, dtype=np.float32) for point in env.front(env.current_task)]
    np.testing.assert_array_equal(env.pareto_front(), expected)
    np.testing.assert_array_equal(env.pareto_front(gamma=0.9), expected)
    assert all(vector.dtype == np.float32 for vector in env.pareto_front())


def test_the_optimum_is_the_best_scalar_on_the_front() -> None:
    env = MazeEnv(preset="paper")
    for index in range(5):
        task = env.task(index)
        best = max(sum(vector) / 4 for vector in brute_front(task.rows, task.budget))
        assert env.optimum(task) == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize(("env_type", "culprit"), [(LongWalks, "exercise"), (HalfTheGold, "modesty")])
def test_an_objective_that_falls_as_a_route_improves_has_no_front(env_type: type[MazeEnv], culprit: str) -> None:
    env = env_type(preset="paper")
    with pytest.raises(UnknownFront, match=f"objective '{culprit}' of {env_type.__name__} falls where"):
        env.front(env.task(0))


def test_a_subclass_that_changes_what_counts_inherits_no_front() -> None:
    env = PartialCredit()
    with pytest.raises(UnknownFront, match=r"PartialCredit overrides (evaluate|feasible), so"):
        env.pareto_front(task=env.task(0))


def test_a_maze_too_large_for_exact_search_says_so() -> None:
    rows = ("SGGGG", "GGGGG", "GGGGG", "G....", "....E")
    with pytest.raises(UnknownFront, match="15 items and 0 lava cells is too large for exact search: at most 13 and 8"):
        MazeEnv(preset="paper").front(MazeTask(rows=rows, budget=20))
