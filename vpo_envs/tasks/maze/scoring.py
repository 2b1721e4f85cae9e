"""The outcome of a route, and the objectives: the paper's, those of the three lanes, and variants of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.maze.task import MAX_SIZE, MazeTask


def _completion(outcome: MazeOutcome) -> float:
    return 1.0 if outcome.reached_exit else 0.0


def _gold(outcome: MazeOutcome) -> float:
    return outcome.gold / outcome.gold_total if outcome.gold_total else 1.0


def _diamond(outcome: MazeOutcome) -> float:
    return outcome.diamonds / outcome.diamonds_total if outcome.diamonds_total else 1.0


def _avoid_lava(outcome: MazeOutcome) -> float:
    return 1.0 - outcome.lava / outcome.lava_total if outcome.lava_total else 1.0


def _haste(outcome: MazeOutcome) -> float:
    spare = outcome.max_steps - outcome.fewest_steps
    return (outcome.max_steps - outcome.steps) / spare if spare else 1.0


def _boosted(share_of: Callable[[MazeOutcome], float], outcome: MazeOutcome) -> float:
    share = share_of(outcome)
    return min(1.0, share * share * (1.5 if outcome.bonus else 1.0))


LINEAR: tuple[Objective, ...] = (
    Objective("completion", "The exit is reached within the step budget", _completion),
    Objective("gold", "Share of the gold collected", _gold),
    Objective("diamond", "Share of the diamonds collected", _diamond),
    Objective("avoid_lava", "Share of the lava cells not stepped on", _avoid_lava),
)

LANES: tuple[Objective, ...] = (
    LINEAR[1],
    LINEAR[2],
    Objective("haste", "Share of the steps saved: 1 on a shortest route, 0 if the whole budget is used", _haste),
)

# A partial, unlike a lambda, can be pickled with its environment.
CONVEX_BONUS: tuple[Objective, ...] = (
    LINEAR[0],
    Objective("gold", "Squared share of the gold, times 1.5 with the bonus tile", partial(_boosted, _gold)),
    Objective("diamond", "Squared share of the diamonds, times 1.5 with the bonus tile", partial(_boosted, _diamond)),
    LINEAR[3],
)

ALIGNMENT = 0.9
"""Weight of the mean of the linear four in every aligned objective."""


def _aligned(linear: tuple[Objective, ...], objective: Objective, outcome: MazeOutcome) -> float:
    mean = sum(each.score(outcome) for each in linear) / len(linear)
    return ALIGNMENT * mean + (1 - ALIGNMENT) * objective.score(outcome)


def _pulled_together(linear: tuple[Objective, ...], count: str) -> tuple[Objective, ...]:
    return tuple(
        Objective(
            o.name, f"{o.description}: a tenth; the rest is the mean of all {count}", partial(_aligned, linear, o)
        )
        for o in linear
    )


ALIGNED = _pulled_together(LINEAR, "four")
"""The linear objectives pulled towards their mean, which stays the same."""

ALIGNED_LANES = _pulled_together(LANES, "three")

SHAPES = {"linear": LINEAR, "convex_bonus": CONVEX_BONUS, "aligned": ALIGNED}
LANE_SHAPES = {"linear": LANES, "aligned": ALIGNED_LANES}
"""The objectives by reward shape."""


class MazeOutcome(NamedTuple):
    """The facts about one route that the objectives look at."""

    reached_exit: bool
    steps: int
    """Steps taken, blocked ones included."""
    max_steps: int
    """The step budget."""
    gold: int
    """Gold items collected; each counts once."""
    gold_total: int
    diamonds: int
    diamonds_total: int
    lava: int
    """Lava cells stepped on; each counts once."""
    lava_total: int
    bonus: bool
    """Whether the bonus tile was stepped on."""
    fewest_steps: int
    """Steps of a shortest route; the step budget if none fits into it."""


def fact_grid(task: MazeTask) -> FactGrid:
    """Return the outcomes at the exit, from worse to better: fewer steps, more items and the bonus, less lava."""
    board, budget, fewest = task.board, task.budget, task.fewest_steps
    steps, lava = range(max(fewest, min(budget, MAX_SIZE**2)), fewest - 1, -1), range(board.lava_count, -1, -1)
    items = [axis for count in (board.gold_count, board.diamond_count) for axis in (range(count + 1), (count,))]
    bonus = (False, True) if board.bonus else (False,)
    axes = ((True,), steps, (budget,), *items, lava, (board.lava_count,), bonus, (fewest,))
    return FactGrid(MazeOutcome, tuple(map(tuple, axes)))


def walk(task: MazeTask, route: str) -> MazeOutcome:
    """Follow ``route``, a string over ``UDLR``, until the exit, the end of the route or the end of the budget.

    A blocked move stays put and costs a step.
    """
    board = task.board
    cell, goal, after, marks = board.start, board.exit, board.after, board.marks
    visited = 0
    steps = 0
    for steps, move in enumerate(route[: task.budget], start=1):  # noqa: B007 (steps is used after the loop)
        cell = after[move][cell]
        visited |= marks[cell]
        if cell == goal:
            break
    return outcome_of(task, cell == goal, steps, visited)


def outcome_of(task: MazeTask, reached_exit: bool, steps: int, visited: int) -> MazeOutcome:
    """Return the outcome of a route of ``steps`` steps that stepped on the cells of the set ``visited``."""
    board = task.board
    return MazeOutcome(
        reached_exit,
        steps,
        task.budget,
        (visited & board.gold).bit_count(),
        board.gold_count,
        (visited & board.diamond).bit_count(),
        board.diamond_count,
        (visited & board.lava).bit_count(),
        board.lava_count,
        visited & board.bonus != 0,
        task.fewest_steps,
    )


def cells_along(task: MazeTask, route: str) -> list[int]:
    """Return the cells of the walk along ``route``, the start first."""
    board = task.board
    cells = [board.start]
    cell, goal, after = board.start, board.exit, board.after
    for move in route[: task.budget]:
        cell = after[move][cell]
        cells.append(cell)
        if cell == goal:
            break
    return cells
