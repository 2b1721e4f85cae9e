"""The outcome of a route, and the objectives: linear as in the paper, convex as in its code, and nearly collinear."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.maze.task import MAX_SIZE, Board, MazeTask


def completion(outcome: MazeOutcome) -> float:
    """Return 1 at the exit, else 0."""
    return 1.0 if outcome.reached_exit else 0.0


def gold(outcome: MazeOutcome) -> float:
    """Return the share of the gold collected; 1 if there is none."""
    return outcome.gold / outcome.gold_total if outcome.gold_total else 1.0


def diamond(outcome: MazeOutcome) -> float:
    """Return the share of the diamonds collected; 1 if there are none."""
    return outcome.diamonds / outcome.diamonds_total if outcome.diamonds_total else 1.0


def avoid_lava(outcome: MazeOutcome) -> float:
    """Return the share of the lava cells not stepped on; 1 if there are none."""
    return 1.0 - outcome.lava / outcome.lava_total if outcome.lava_total else 1.0


def _with_bonus(share_of: Callable[[MazeOutcome], float], outcome: MazeOutcome) -> float:
    share = share_of(outcome)
    return min(1.0, share * share * (1.5 if outcome.bonus else 1.0))


LINEAR: tuple[Objective, ...] = (
    Objective("completion", "The exit is reached within the step budget", completion),
    Objective("gold", "Share of the gold collected", gold),
    Objective("diamond", "Share of the diamonds collected", diamond),
    Objective("avoid_lava", "Share of the lava cells not stepped on", avoid_lava),
)

# A partial, unlike a lambda, can be pickled with its environment.
CONVEX_BONUS: tuple[Objective, ...] = (
    LINEAR[0],
    Objective("gold", "Squared share of the gold, times 1.5 with the bonus tile", partial(_with_bonus, gold)),
    Objective("diamond", "Squared share of the diamonds, times 1.5 with the bonus tile", partial(_with_bonus, diamond)),
    LINEAR[3],
)

ALIGNMENT = 0.9
"""Weight of the mean of the linear four in every aligned objective."""


def _aligned(objective: Objective, outcome: MazeOutcome) -> float:
    mean = sum(linear.score(outcome) for linear in LINEAR) / len(LINEAR)
    return ALIGNMENT * mean + (1 - ALIGNMENT) * objective.score(outcome)


ALIGNED: tuple[Objective, ...] = tuple(
    Objective(o.name, f"{o.description}: a tenth; the rest is the mean of all four", partial(_aligned, o))
    for o in LINEAR
)
"""The linear objectives pulled towards their mean, which stays the same."""


def reward_vector(outcome: MazeOutcome) -> tuple[float, ...]:
    """Return the linear objectives of an outcome, all zero unless the exit is reached."""
    if not outcome.reached_exit:
        return (0.0,) * len(LINEAR)
    return tuple([objective.score(outcome) for objective in LINEAR])


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


def fact_grid(board: Board, budget: int) -> FactGrid:
    """Return the outcomes at the exit, from worse to better: fewer steps, more items and the bonus, less lava."""
    gold, diamonds, lava = board.gold_count, board.diamond_count, board.lava_count
    axes = (
        (True,),
        tuple(range(min(budget, MAX_SIZE**2), 0, -1)),
        (budget,),
        tuple(range(gold + 1)),
        (gold,),
        tuple(range(diamonds + 1)),
        (diamonds,),
        tuple(range(lava, -1, -1)),
        (lava,),
        (False, True) if board.bonus else (False,),
    )
    return FactGrid(MazeOutcome, axes)


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
    return MazeOutcome(
        cell == goal,
        steps,
        task.budget,
        (visited & board.gold).bit_count(),
        board.gold_count,
        (visited & board.diamond).bit_count(),
        board.diamond_count,
        (visited & board.lava).bit_count(),
        board.lava_count,
        visited & board.bonus != 0,
    )


def cells_along(task: MazeTask, route: str) -> list[int]:
    """Return the cells of the walk along ``route``, the start first."""
    board = task.board
    cells = [board.start]
    for move in route[: task.budget]:
        cells.append(board.after[move][cells[-1]])
        if cells[-1] == board.exit:
            break
    return cells
