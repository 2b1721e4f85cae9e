"""Mazes with three lanes: gold along one, diamonds along another, and a direct one between them.

The direct lane leads from the start, on one edge, to the exit opposite. On either side an outer lane leaves it, runs
further out and comes back. One of its ends runs beside the direct lane, where a route picks up a part of the items for
two more steps; the other items lie at the far side. All three bend together to one side and the other, so no route
leads through two mazes. The step budget is the length of an outer lane, so a route can have all the gold, all the
diamonds or the fewest steps, or a part of all three.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vpo_envs.core import Objective, Split
from vpo_envs.pareto import gains
from vpo_envs.tasks.base import of_each_kind
from vpo_envs.tasks.generation import CertifiedConfig, Range
from vpo_envs.tasks.maze.front import MAX_ITEMS, outcome_front
from vpo_envs.tasks.maze.routes import DIAMOND_SHARE, GOLD_SHARE, MazeOutcome
from vpo_envs.tasks.maze.task import (
    DIAMOND,
    EXIT,
    GOLD,
    MAX_SIZE,
    OPEN,
    START,
    WALL,
    Blocked,
    MazeTask,
    geometry,
    split_of_layout,
)

Point = tuple[int, int]
"""Height above the direct lane (negative below it), and column from the start."""


def _haste(outcome: MazeOutcome) -> float:
    spare = outcome.max_steps - outcome.fewest_steps
    return (outcome.max_steps - outcome.steps) / spare if spare else 1.0


LANES_OBJECTIVES: tuple[Objective, ...] = (
    GOLD_SHARE,
    DIAMOND_SHARE,
    Objective("haste", "Share of the steps saved: 1 on a shortest route, 0 if the whole budget is used", _haste),
)


class LanesConfig(CertifiedConfig):
    """How mazes with three lanes are drawn. Pairs are inclusive ranges, drawn uniformly for gold and diamonds."""

    size: int = Field(7, ge=7, le=MAX_SIZE, description="rows and columns of the grid, an odd number")
    reach: int = Field(2, ge=2, description="rows between the direct lane and the far side of an outer lane")
    bends: int = Field(2, ge=1, description="fewest bends of the lanes")
    near: Range = Field((2, 2), description="items of each kind beside the direct lane: more are better compromises")
    far: Range = Field((2, 3), description="items of each kind on the far side: more are worse compromises")
    opened: Range = Field((0, 2), description="further walls opened: dead ends and shortcuts")
    slack: int = Field(0, ge=0, description="steps of the budget beyond the length of an outer lane")
    blocked: Blocked = Field(
        "ends", description="after a move into a wall you stay in place and a step is used, or the walk ends"
    )

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.size % 2 == 0:
            raise ValueError(f"size must be odd, since the lanes lie about the middle, got {self.size}")
        if self.reach > self.room:
            raise ValueError(f"reach must be at most {self.room} on a grid of size {self.size}, got {self.reach}")
        if self.bends >= self.size:
            raise ValueError(f"bends must be at most {self.size - 1} on a grid of size {self.size}, got {self.bends}")
        if 2 * (self.near[1] + self.far[1]) > MAX_ITEMS:
            raise ValueError(
                f"near and far must allow at most {MAX_ITEMS // 2} items together, for the exact front's sake, got "
                f"{self.near[1]} and {self.far[1]}"
            )
        return self

    @property
    def room(self) -> int:
        """The most rows that an outer lane may reach, so that a row remains for bends."""
        return self.size // 2 - 1


def draw_lanes(source: random.Random, config: LanesConfig, split: Split) -> MazeTask | None:
    """Draw a maze; ``None`` if it is not of this split, not certified or has too little room for its items."""
    size, reach = config.size, config.reach
    lanes = [sorted(source.choices(range(size), k=2 * reach)) for _ in range(2)]
    counts = [(source.randint(*config.near), source.randint(*config.far)) for _ in lanes]
    # The lower lane is turned by half a circle. A route that takes the near items of both never has to turn back.
    if lanes[0][1] + lanes[1][1] >= size or any(
        turns[1] - turns[0] < near - 1 or turns[reach] - turns[reach - 1] < far - 1
        for turns, (near, far) in zip(lanes, counts, strict=True)
    ):
        return None
    bends = _draw_bends(source, size, size // 2 - reach)
    longer = sum(abs(one - other) for one, other in pairwise(bends))
    if longer < config.bends:
        return None

    lines: list[list[Point]] = [[(0, column) for column in range(size)]]
    items: dict[Point, str] = {}
    kinds = source.sample([GOLD, DIAMOND], 2)
    for upper, turns, kind, (near, far) in zip((True, False), lanes, kinds, counts, strict=True):
        side = [(1, column) for column in range(turns[0], turns[1] + 1)]
        top = [(reach, column) for column in range(turns[reach - 1], turns[reach] + 1)]
        sign, first = (1, 0) if upper else (-1, size - 1)
        lines.append([(sign * height, first + sign * column) for height, column in _lane(turns, size)])
        chosen = source.sample(side, near) + source.sample(top, far)
        items |= {(sign * height, first + sign * column): kind for height, column in chosen}
    items |= {(0, 0): START, (0, size - 1): EXIT}
    joins_first = [source.random() < 0.5 for _ in bends]
    symbols = dict.fromkeys((cell for line in lines for cell in _bent(line, bends, joins_first)), OPEN)
    symbols |= {(height + bends[column], column): symbol for (height, column), symbol in items.items()}

    turned, mirrored, swapped = (source.random() < 0.5 for _ in range(3))
    grid = [WALL] * (size * size)
    for (height, column), symbol in symbols.items():
        row = size // 2 + (height if turned else -height)
        column = size - 1 - column if mirrored else column
        grid[column * size + row if swapped else row * size + column] = symbol
    _open_walls(source, grid, size, source.randint(*config.opened))
    rows = tuple(["".join(grid[i : i + size]) for i in range(0, size * size, size)])
    fewest = size - 1 + longer
    task = MazeTask(rows=rows, budget=fewest + 2 * reach + config.slack, blocked=config.blocked)
    # A shorter way would lead past the bends.
    if split_of_layout(task.board.passable) != split or task.fewest_steps < fewest:
        return None
    return task if config.certifies(lambda: gains(lane_vectors(solved_lanes(task)))) else None


@lru_cache(maxsize=64)
def solved_lanes(task: MazeTask) -> list[tuple[MazeOutcome, str]]:
    """Return the outcomes of :func:`outcome_front`, kept for the demonstrations of a maze that was just certified."""
    return outcome_front(task)


def lane_vectors(outcomes: Sequence[tuple[MazeOutcome, str]]) -> NDArray[np.float64]:
    """Return the reward vectors of outcomes under :data:`LANES_OBJECTIVES`, shape (n, 3)."""
    return np.array([[objective.score(outcome) for objective in LANES_OBJECTIVES] for outcome, _ in outcomes])


def routes_of_each_kind(task: MazeTask, rng: np.random.Generator) -> list[str]:
    """Return the routes over ``UDLR`` of the front of a maze with three lanes, one of each kind first."""
    outcomes = solved_lanes(task)
    return [outcomes[i][1] for i in of_each_kind(rng, lane_vectors(outcomes))]


def _lane(turns: list[int], size: int) -> Iterator[Point]:
    """Walk along an outer lane: one row up at each column in the first half of ``turns``, one down in the second."""
    height = 0
    for column in range(size):
        yield height, column
        for number, turn in enumerate(turns):
            if turn == column:
                height += 1 if number < len(turns) // 2 else -1
                yield height, column


def _draw_bends(source: random.Random, size: int, most: int) -> list[int]:
    """Return how far each column is moved up, from ``-most`` to ``most``: never further back than the one before."""
    moved = [source.randint(-most, most)]
    way = source.choice((-1, 1))
    for _ in range(size - 1):
        moved.append(moved[-1] + way * (source.random() < 0.3 and abs(moved[-1] + way) <= most))
    return moved


def _bent(line: Sequence[Point], bends: Sequence[int], joins_first: Sequence[bool]) -> set[Point]:
    """Return the cells of a lane after the columns have moved, and the cells that join them again."""
    cells = {(height + bends[column], column) for height, column in line}
    for (height, column), (_, following) in pairwise(line):
        left, right = sorted((column, following))
        joins, level = (left, right) if joins_first[left] else (right, left)
        cells.add((height + bends[level], joins))
    return cells


def _open_walls(source: random.Random, grid: list[str], size: int, count: int) -> None:
    """Open ``count`` random walls beside open cells."""
    cells, neighbours = geometry(size)
    index = {cell: i for i, cell in enumerate(cells)}
    walls = [
        i
        for i, cell in enumerate(cells)
        if grid[i] == WALL and any(grid[index[beside]] != WALL for beside in neighbours[cell])
    ]
    for i in source.sample(walls, min(count, len(walls))):
        grid[i] = OPEN
