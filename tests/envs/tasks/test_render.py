"""Mazes as text and as pictures: what a reader has to see is there."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from vpo_envs import MazeEnv, MazeTask
from vpo_envs.tasks.maze.render import CELL, ROUTE_COLOURS, outcome_line, render_ansi, render_rgb

TASK = MazeTask(rows=("S.G.", ".#L.", "D.B.", "..#E"), budget=8)
GOLD_ROUTE, DIAMOND_ROUTE = "RRRDDD", "DDRRRD"


def pixels_of(picture: np.ndarray, number: int) -> int:
    """Pixels in the colour of a route, within the maze and clear of the legend."""
    size = round((TASK.size + 0.7) * CELL)
    difference = np.abs(picture[:size].astype(int) - ROUTE_COLOURS[number]).max(axis=2)
    return int((difference < 12).sum())


# --- text ---


def test_the_bare_maze_shows_every_symbol_in_its_place() -> None:
    assert render_ansi(TASK, []).splitlines() == [
        "┌─────────┐",
        "│ S · G · │",
        "│ · ██L · │",
        "│ D · B · │",
        "│ · · ██E │",
        "└─────────┘",
        "S start, E exit, G gold, D diamond, L lava, B bonus; budget 8 steps",
    ]


def test_each_route_is_a_line_through_its_own_maze() -> None:
    lines = render_ansi(TASK, [GOLD_ROUTE, DIAMOND_ROUTE]).splitlines()
    assert lines[:7] == [
        " route 1      route 2",
        "┌─────────┐  ┌─────────┐",
        "│ S───G─┐ │  │ S · G · │",
        "│ · ██L │ │  │ │ ██L · │",
        "│ D · B │ │  │ D───B─┐ │",
        "│ · · ██E │  │ · · ██E │",
        "└─────────┘  └─────────┘",
    ]
    assert lines[-2:] == [
        "route 1: exit in 6 of 8 steps, gold 1/1, diamonds 0/1, lava entered 0/1",
        "route 2: exit in 6 of 8 steps, gold 0/1, diamonds 1/1, lava entered 0/1, bonus",
    ]


def test_a_route_that_turns_back_forks() -> None:
    assert render_ansi(TASK, ["RLDDD"]).splitlines()[2:6] == [
        "│ S─╴ G · │",
        "│ │ ██L · │",
        "│ D · B · │",
        "│ ╵ · ██E │",
    ]


@pytest.mark.parametrize(
    ("route", "line"),
    [
        (None, "no route"),
        ("", "no exit in 0 of 8 steps: scores nothing"),
        ("UUUU", "no exit in 4 of 8 steps: scores nothing"),
        ("U" * 1000, "no exit in 8 of 8 steps: scores nothing"),
    ],
)
def test_a_route_without_success_says_so(route: str | None, line: str) -> None:
    assert outcome_line(TASK, route) == line
    assert render_ansi(TASK, [route]).splitlines()[-1] == f"route 1: {line}"


def test_many_routes_wrap_within_the_width_of_a_terminal() -> None:
    text = render_ansi(MazeEnv(preset="paper").task(0), ["R"] * 9)
    assert max(map(len, text.splitlines())) <= 100
    assert all(f" route {number}" in text for number in range(1, 10))


# --- picture ---


def test_a_picture_is_an_array_of_bytes_with_room_for_the_legend() -> None:
    bare, routed = render_rgb(TASK, []), render_rgb(TASK, [GOLD_ROUTE, None])
    for picture in (bare, routed):
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
    assert routed.shape[0] > bare.shape[0]
    assert bare.shape[0] >= TASK.size * CELL


def test_each_route_has_its_colour_and_none_without_it() -> None:
    bare = render_rgb(TASK, [])
    routed = render_rgb(TASK, [GOLD_ROUTE, None, DIAMOND_ROUTE])
    assert [pixels_of(bare, number) for number in range(3)] == [0, 0, 0]
    first, missing, third = (pixels_of(routed, number) for number in range(3))
    assert min(first, third) > 5 * CELL
    assert missing == 0


@pytest.mark.parametrize("count", [2, 3, 5])
def test_routes_through_the_same_cells_all_stay_visible(count: int) -> None:
    picture = render_rgb(TASK, [GOLD_ROUTE] * count)
    seen = [pixels_of(picture, number) for number in range(count)]
    # Smoothed edges and the items on the way take some, but no route hides another.
    assert min(seen) > 0.5 * max(seen)


def test_things_on_the_floor_look_different_from_each_other() -> None:
    def cell_with(symbol: str) -> np.ndarray:
        picture = render_rgb(MazeTask(rows=("S..", f".{symbol}.", "..E"), budget=4), [])
        middle, half = picture.shape[0] // 2, CELL // 2 - 3
        return picture[middle - half : middle + half, middle - half : middle + half].astype(int)

    cells = {symbol: cell_with(symbol) for symbol in ".#GDLB"}
    for one, other in combinations(cells, 2):
        assert np.abs(cells[one] - cells[other]).mean() > 4, f"{one} looks like {other}"


@pytest.mark.parametrize("routes", [[""], ["U" * 1000], ["UDLR" * 50], [None] * 3, [GOLD_ROUTE] * 12])
def test_any_routes_can_be_drawn(routes: list[str | None]) -> None:
    assert render_rgb(TASK, routes).shape[2] == 3
    assert "budget 8" in render_ansi(TASK, routes)


def test_the_environment_draws_what_the_response_says() -> None:
    env = MazeEnv(num_answers=3, render_mode="ansi")
    env.reset(options={"task": TASK})
    env.step("<answer_1>R R R D D D</answer_1><answer_3>sideways</answer_3>")
    drawn, legend = (env.render().split("budget 8 steps\n")[part] for part in (0, 1))
    assert render_ansi(TASK, [GOLD_ROUTE, None, None]).startswith(drawn)
    assert legend.splitlines()[1:] == ["route 2: no route", "route 3: no route", "best possible score: 0.75"]


@pytest.mark.parametrize("preset", ["paper", "compact"])
def test_the_legend_has_the_score_of_each_route_and_the_optimum(preset: str) -> None:
    env = MazeEnv(preset=preset, num_answers=2, render_mode="ansi")
    env.reset(options={"index": 0})
    front = env.front(env.current_task)
    scores = {point.answer: sum(point.vector) / env.reward_dim for point in front}
    poorest = min(scores, key=lambda answer: scores[answer])
    env.step(f"<answer_1>{poorest}</answer_1><answer_2>{'U' * 3}</answer_2>")
    first, second, best = env.render().splitlines()[-3:]
    assert first.endswith(f", score {scores[poorest]:.2f}")
    assert "score " not in second, "what scores nothing says so in words"
    assert best == f"best possible score: {max(scores.values()):.2f}"


def test_a_legend_of_other_objectives_has_their_score() -> None:
    class Greedy(MazeEnv):
        objectives = MazeEnv.objectives[1:2]

    env = Greedy(render_mode="ansi")
    env.reset(options={"task": TASK})
    env.step(f"<answer>{GOLD_ROUTE}</answer>")
    assert env.render().splitlines()[-2:] == [
        f"route 1: {outcome_line(TASK, GOLD_ROUTE)}, score 1.00",
        "best possible score: 1.00",
    ]
