"""The maze as a task: its tasks, its rules, and the text that goes out and comes back."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maze_oracle import Cell, cells_with, distances, linear_vector, walk_plainly

from vpo_envs import MazeEnv, MazeTask, Split, Status, Unparsable
from vpo_envs.tasks.maze.generate import PRESETS
from vpo_envs.tasks.maze.routes import random_routes, read_route, write_route
from vpo_envs.tasks.maze.task import Blocked
from vpo_envs.text import format_answers

ROUTES = st.text("UDLR", min_size=1, max_size=40)
SPELLINGS = {"U": ["U", "UP", "up", "Up", "u"], "D": ["D", "DOWN", "d"], "L": ["L", "left"], "R": ["R", "Right"]}
BOTH = pytest.mark.parametrize(("preset", "count"), [("paper", 300), ("conflict", 20)])


@lru_cache
def mazes(preset: str, count: int, split: Split = "train", data_seed: int = 0) -> list[MazeTask]:
    env = MazeEnv(preset=preset, split=split, data_seed=data_seed)
    return [env.task(index) for index in range(count)]


def zone_corners(task: MazeTask) -> tuple[Cell, Cell]:
    """The corners of the gold and of the diamond zone, told by what lies nearer."""
    last = task.size - 1
    taken = cells_with(task.rows, "SE")
    first, second = (corner for corner in ((0, 0), (0, last), (last, 0), (last, last)) if corner not in taken)
    if total_distance(first, cells_with(task.rows, "G")) < total_distance(second, cells_with(task.rows, "G")):
        return first, second
    return second, first


def manhattan(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def total_distance(corner: Cell, cells: list[Cell]) -> int:
    return sum(manhattan(corner, cell) for cell in cells)


def legs(task: MazeTask) -> Iterator[tuple[int, int]]:
    """Steps from start to each zone's corner without crossing the exit, and from there to the exit."""
    (start,), (goal,) = cells_with(task.rows, "S"), cells_with(task.rows, "E")
    before_exit = distances(task.rows, start, closed=[goal])
    to_exit = distances(task.rows, goal)
    for corner in zone_corners(task):
        yield before_exit[corner], to_exit[corner]


# --- geometry ---


@BOTH
def test_start_and_exit_stand_on_opposite_corners(preset: str, count: int) -> None:
    directions = set()
    for task in mazes(preset, count):
        (start,), (goal,) = cells_with(task.rows, "S"), cells_with(task.rows, "E")
        last = task.size - 1
        assert {start[0], goal[0]} == {start[1], goal[1]} == {0, last}
        directions.add((start, goal))
    assert len(directions) == 4


@BOTH
def test_zones_hold_their_items_within_the_radius(preset: str, count: int) -> None:
    config = PRESETS[preset]
    counts = set()
    for task in mazes(preset, count):
        gold, diamonds = cells_with(task.rows, "G"), cells_with(task.rows, "D")
        gold_corner, diamond_corner = zone_corners(task)
        assert all(manhattan(gold_corner, cell) <= config.zone_radius for cell in gold)
        assert all(manhattan(diamond_corner, cell) <= config.zone_radius for cell in diamonds)
        assert config.gold[0] <= len(gold) <= config.gold[1]
        assert config.diamonds[0] <= len(diamonds) <= config.diamonds[1]
        assert config.lava[0] <= len(cells_with(task.rows, "L")) <= config.lava[1]
        counts.add((len(gold), len(diamonds)))
    assert len(counts) == (config.gold[1] - config.gold[0] + 1) * (config.diamonds[1] - config.diamonds[0] + 1)


def test_the_paper_preset_has_the_papers_numbers() -> None:
    tasks = mazes("paper", 300)
    for task in tasks:
        assert task.size == 9
        assert not cells_with(task.rows, "B")
        for symbol in "GDL":
            assert 3 <= len(cells_with(task.rows, symbol)) <= 5
        assert all(2 <= row <= 6 and 2 <= column <= 6 for row, column in cells_with(task.rows, "L"))
    # Measured on the authors' generator: about 5 of the 81 cells are walls.
    assert 4 <= statistics.mean(len(cells_with(task.rows, "#")) for task in tasks) <= 7


def test_a_bonus_tile_is_drawn_and_named_only_where_it_is_asked_for() -> None:
    env = MazeEnv(preset="paper", difficulty={"bonus": True})
    for task in map(env.task, range(5)):
        assert cells_with(task.rows, "B") == [(4, 4)]
        assert re.search("B (is a |holds a |)bonus", env.prompt(task, 1))
    assert "bonus" not in MazeEnv(preset="paper").prompt(mazes("paper", 1)[0], 1)


def test_ring_lava_lies_just_outside_the_zones() -> None:
    ring = PRESETS["conflict"].zone_radius + 1
    for task in mazes("conflict", 20):
        corners = zone_corners(task)
        assert all(ring in (manhattan(corner, cell) for corner in corners) for cell in cells_with(task.rows, "L"))


@BOTH
def test_the_budget_is_the_longer_route_through_a_zone_and_the_slack(preset: str, count: int) -> None:
    for task in mazes(preset, count):
        assert task.budget == max(first + second for first, second in legs(task)) + PRESETS[preset].slack


@BOTH
def test_a_route_without_lava_fits_the_budget(preset: str, count: int) -> None:
    for task in mazes(preset, count):
        (start,), (goal,) = cells_with(task.rows, "S"), cells_with(task.rows, "E")
        assert distances(task.rows, start, closed=cells_with(task.rows, "L"))[goal] <= task.budget


@BOTH
def test_no_route_visits_both_corners(preset: str, count: int) -> None:
    for task in mazes(preset, count):
        gold, diamond = zone_corners(task)
        (to_gold, from_gold), (to_diamond, from_diamond) = legs(task)
        between = distances(task.rows, gold, closed=cells_with(task.rows, "E"))[diamond]
        assert between + min(to_gold + from_diamond, to_diamond + from_gold) > task.budget


# --- tasks and splits ---


@pytest.mark.parametrize(
    ("preset", "split", "data_seed", "index", "content_hash"),
    [
        ("paper", "train", 0, 0, "c587cd5c04727ffc5c71c746d9b29514"),
        ("paper", "validation", 0, 7, "4756cc471a5587f663bd913a17339ea2"),
        ("paper", "test", 1, 123456, "fbe964e8026889bfb6da4de2fc377752"),
        ("conflict", "train", 0, 0, "0c8de98fd4970d24009d76a31ce082e0"),
        ("conflict", "test", 5, 3, "8dee0c45532039871c5a86bb1f3cd86c"),
        ("compact", "train", 0, 0, "686f41c752128055eb64a14d1744998a"),
        ("compact", "validation", 0, 7, "912cd20d900b7ca53f2808785b3da7d3"),
        ("compact", "test", 3, 5, "429b9d2ca8f3f24bba02027f7e01294a"),
    ],
)
def test_an_instance_is_a_function_of_split_seed_and_index(
    preset: str, split: Split, data_seed: int, index: int, content_hash: str
) -> None:
    env = MazeEnv(preset=preset, split=split, data_seed=data_seed)
    env.task(index + 1)
    assert env.task(index).content_hash() == content_hash


def test_no_configuration_that_cannot_be_drawn_runs_for_ever() -> None:
    env = MazeEnv(difficulty={"size": 5, "gold": (30, 30), "lava": (0, 0)})
    with pytest.raises(ValueError, match=r"found no task in 10000 tries.*allow more slack"):
        env.task(0)


# --- walking ---


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["paper", "conflict"]), st.integers(0, 49), ROUTES)
def test_a_walk_comes_to_what_a_plain_walk_comes_to(preset: str, index: int, route: str) -> None:
    task = mazes(preset, 50)[index]
    env = MazeEnv(preset=preset)
    facts = walk_plainly(task.rows, task.budget, route, {"paper": "stays", "conflict": "ends"}[preset])
    outcome = env.evaluate(task, route)
    assert outcome.reached_exit == (facts is not None)
    batch = env.score_batch([task], [f"<answer>{' '.join(route)}</answer>"])
    expected = (0.0,) * 4 if facts is None else linear_vector(task.rows, facts)
    np.testing.assert_allclose(batch.rewards[0, 0], expected, rtol=1e-6)
    if facts is not None:
        assert (outcome.steps, outcome.gold, outcome.diamonds, outcome.lava, outcome.bonus) == facts


MAZE = MazeTask(rows=("SG.", "#LD", "..E"), budget=6)


@pytest.mark.parametrize(
    ("route", "vector"),
    [
        ("RRDD", (1, 1, 1, 1)),
        ("RDDR", (1, 1, 0, 0)),
        ("RDRD", (1, 1, 1, 0)),
        ("RRDDUUUUUU", (1, 1, 1, 1)),  # the walk ends at the exit
        ("DDDRRDD", (0, 0, 0, 0)),  # blocked moves cost steps: the budget ends before the exit
        ("UURRDD", (1, 1, 1, 1)),  # and two of them fit
        ("RLRRDD", (1, 1, 1, 1)),  # an item counts once
        ("RDUDDR", (1, 1, 0, 0)),  # and so does lava
        ("RRD", (0, 0, 0, 0)),  # short of the exit
    ],
)
def test_rules_on_a_small_maze(route: str, vector: tuple[int, ...]) -> None:
    env = MazeEnv(preset="paper")
    batch = env.score_batch([MAZE], [f"<answer>{write_route(route)}</answer>"])
    assert batch.status[0, 0] == Status.OK
    assert batch.rewards[0, 0].tolist() == list(vector)


@pytest.mark.parametrize("blocked", ["stays", "ends"])
def test_a_blocked_move_does_what_the_prompt_says(blocked: Blocked) -> None:
    env, task = MazeEnv(preset="paper"), MAZE.model_copy(update={"blocked": blocked})
    vector = env.score_batch([task], [f"<answer>{write_route('UURRDD')}</answer>"]).rewards[0, 0]
    assert vector.tolist() == [blocked == "stays"] * 4
    said = {
        "stays": (
            "but it still uses a step",
            "moves you nowhere and is counted",
            "remain where you are and lose a move",
        ),
        "ends": ("ends the walk there", "The walk is over at the first step against", "the route stops at that move"),
    }
    assert any(words in env.prompt(task, 3) for words in said[blocked])


@BOTH
def test_the_example_of_an_answer_is_no_route(preset: str, count: int) -> None:
    env, task = MazeEnv(preset=preset), mazes(preset, 1)[0]
    assert (env.score_batch([task], [env.prompt(task, 3)], 3).status == Status.UNPARSABLE).all()


@pytest.mark.parametrize("answers_as_steps", [False, True])
def test_moves_after_the_exit_do_not_make_another_answer(answers_as_steps: bool) -> None:
    env = MazeEnv(num_answers=4, answers_as_steps=answers_as_steps, preset="paper")
    env.reset(options={"task": MAZE})
    response = format_answers([write_route(route) for route in ("RRDDU", "RRDD", "RRDDLLLLLLLL", "RDDR")])
    steps = [env.step(response) for _ in range(4 if answers_as_steps else 1)]
    assert [status for step in steps for status in step[4]["status"]] == ["ok", "duplicate", "duplicate", "ok"]
    assert np.sum([step[1] for step in steps], axis=0).tolist() == [2, 2, 1, 1]


# --- text ---


@given(st.lists(st.sampled_from("UDLR"), min_size=1, max_size=30), st.data())
def test_every_spelling_of_a_route_is_read(moves: list[str], data: st.DataObject) -> None:
    words = [data.draw(st.sampled_from(SPELLINGS[move])) for move in moves]
    blanks = data.draw(
        st.lists(st.sampled_from([" ", ", ", ",", "\n", " , "]), min_size=len(moves), max_size=len(moves))
    )
    text = "".join(word + blank for word, blank in zip(words, blanks, strict=True))
    assert read_route(text) == "".join(moves)


def test_capital_letters_may_run_together() -> None:
    assert read_route("DDRR, UP L") == "DDRRUL"


@pytest.mark.parametrize("preset", ["paper", "compact"])
def test_written_routes_are_read_back(preset: str) -> None:
    env = MazeEnv(preset=preset)
    task = env.task(0)
    for route in random_routes(task, np.random.default_rng(0), 20):
        assert env.parse(env.write_answer(task, route)) == route


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "NORTH",
        "UPRIGHT",
        "UUP",
        "dd",
        "RRb1",
        "UP; DOWN",
        "UP -> UP",
        "1. UP",
        "UP. DOWN",
        "UP..",
        ".",
        "<answer>UP</answer>",
        "U\u0420",
    ],
)
def test_what_is_not_a_list_of_moves_is_unparsable(text: str) -> None:
    with pytest.raises(Unparsable):
        read_route(text)


def test_a_full_stop_after_a_route_is_ignored() -> None:
    assert read_route("UP, down, Rb1.\n") == read_route("UP, down, Rb1") == "UDR"


def test_the_prompt_tells_the_budget_and_every_row() -> None:
    env = MazeEnv(preset="paper")
    task = env.task(0)
    prompt = env.prompt(task, 3)
    assert str(task.budget) in prompt
    assert set(task.rows) <= set(prompt.splitlines())


# --- demonstrations ---


def test_demonstrations_reach_the_exit() -> None:
    env = MazeEnv(preset="paper")
    for index, task in enumerate(mazes("paper", 20)):
        answers = env.demonstrations(task, np.random.default_rng(index), 10)
        assert len(answers) == 10
        assert all(walk_plainly(task.rows, task.budget, env.parse(answer)) is not None for answer in answers)
        assert len(set(answers)) > 1
        assert answers == env.demonstrations(task, np.random.default_rng(index), 10)


# --- answers that try to earn without solving ---


def test_echoes_stuffed_tags_and_walks_in_all_directions_earn_what_an_empty_answer_earns() -> None:
    """Over 100 mazes of each preset: all are worth 0.00; a blind walk along two edges, a real guess, at most 0.1."""
    for preset in ("paper", "compact", "conflict"):
        env = MazeEnv(preset=preset)
        tasks = [env.task(index) for index in range(100)]

        def scalar(responses: list[str], env: MazeEnv = env, tasks: list[MazeTask] = tasks) -> float:
            rewards = env.score_batch(tasks, responses).rewards[:, 0]
            return float((rewards * np.stack([env.fixed_weights(task) for task in tasks])).sum(1).mean())

        prompts = [env.prompt(task, 1) for task in tasks]
        empty = scalar([""] * 100)
        assert empty == 0
        assert scalar(prompts) == empty
        assert scalar([f"<answer>{prompt}</answer>" for prompt in prompts]) == empty
        assert scalar(["<answer>" * 50 + "UP" + "</answer>" * 50] * 100) == empty
        assert scalar(["".join(f"<answer>{move}</answer>" for move in "UDLR")] * 100) == empty
        assert scalar(["<answer>" + "\n".join(task.rows) + "</answer>" for task in tasks]) == empty
        assert scalar(["<answer>" + "UP, DOWN, LEFT, RIGHT, " * 50 + "UP</answer>"] * 100) == empty
        assert scalar(["<answer>" + ("RIGHT, " * 9 + "DOWN, " * 9) + "UP</answer>"] * 100) <= 0.1
