"""What can still come of the beginning of a route: the exact front of its completions.

The shortest walks that collect a set of items and end at the exit do not depend on where the route stands. So they are
computed once for each maze, by the dynamic programme of the front run backwards from the exit. What remains for a
beginning is the way to the first of the items, and the choice among the sets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vpo_envs.tasks.maze.front import FAR, Distances, best_by_facts, checked_items, shortest_collecting
from vpo_envs.tasks.maze.scoring import MazeOutcome, outcome_of
from vpo_envs.tasks.maze.task import Board, MazeTask, cells_of, rings


class Ways(NamedTuple):
    """Shortest walks to the exit of one maze, under each set of lava cells that may be entered."""

    items: list[int]
    lava_sets: list[int]
    """All sets of lava cells."""
    to_first: Distances
    """``to_first[a, cell, i]``: steps from a cell to item i, or for the last i to the exit."""
    onwards: Distances
    """``onwards[a, subset, i]``: steps from item i through the other items of ``subset`` to the exit."""


def completions(task: MazeTask, route: str) -> list[MazeOutcome]:
    """Return the outcomes of all routes that begin with ``route`` and that no other such route beats in every fact.

    The facts are those of :func:`~vpo_envs.tasks.maze.front.outcome_front`. If no such route reaches the exit within
    the budget, the outcome of ``route`` itself represents them.

    Raises:
        UnknownFront: The maze has too many items or lava cells for exact search.
    """
    board = task.board
    cell, visited = board.start, 0
    for steps, move in enumerate(route[: task.budget], start=1):
        cell = board.after[move][cell]
        visited |= board.marks[cell]
        if cell == board.exit:
            return [outcome_of(task, True, steps, visited)]
    return list(_completions(task, cell, visited, min(len(route), task.budget)))


@lru_cache(maxsize=1 << 14)
def _completions(task: MazeTask, cell: int, visited: int, steps: int) -> tuple[MazeOutcome, ...]:
    """Return the outcomes from a cell after ``steps`` steps over the marked cells ``visited``."""
    board, ways = task.board, _ways(task)
    collected = sum(1 << i for i, item in enumerate(ways.items) if visited >> item & 1)
    subsets = np.arange(1 << len(ways.items))
    subsets = subsets[subsets & collected == collected]
    entered = visited & board.lava
    allowed = [a for a, lava_set in enumerate(ways.lava_sets) if lava_set & entered == entered]
    to_first = ways.to_first[allowed, cell]
    lengths = (to_first[:, None, :-1] + ways.onwards[allowed][:, subsets ^ collected]).min(axis=2, initial=FAR)
    lengths[:, 0] = to_first[:, -1]
    totals = np.full((len(allowed), 1 << len(ways.items)), FAR, dtype=np.int16)
    totals[:, subsets] = lengths
    lava_sets = [ways.lava_sets[a] for a in allowed]
    found = best_by_facts(board, ways.items, lava_sets, totals, min(task.budget - steps, FAR - 1))
    if not found:
        return (outcome_of(task, False, steps, visited),)
    return tuple(
        outcome_of(task, True, steps + int(totals[a, subset]), lava_sets[a] | _cells(ways.items, subset))
        for a, subset in found
    )


@lru_cache(maxsize=16)
def _ways(task: MazeTask) -> Ways:
    board = task.board
    items = checked_items(board)
    lava = cells_of(board.lava)
    lava_sets = [_cells(lava, subset) for subset in range(1 << len(lava))]
    safe = board.passable & ~board.lava
    to_first = np.stack(
        [
            np.stack([_flood(goal, safe | allowed, board) for goal in (*items, board.exit)], axis=1)
            for allowed in lava_sets
        ]
    )
    # Walks can be turned round, so the exit may take the place of the start.
    return Ways(items, lava_sets, to_first, shortest_collecting(to_first[:, [*items, board.exit]]))


def _flood(goal: int, passable: int, board: Board) -> Distances:
    """Return the steps from every cell of the board to ``goal`` without passing through the exit, FAR if none."""
    steps = np.full(len(board.marks), FAR, dtype=np.int16)
    dead_end = 0 if goal == board.exit else 1 << board.exit
    for count, ring in enumerate(rings(goal, passable, board.width, dead_end)):
        steps[cells_of(ring)] = count
    return steps


def _cells(cells: list[int], subset: int) -> int:
    """Return as a set the cells whose indices are in ``subset``."""
    return sum(1 << cell for i, cell in enumerate(cells) if subset >> i & 1)
