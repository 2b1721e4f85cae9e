"""Random mazes: presets, and the paper's geometry with its knobs.

The geometry (arXiv 2605.22817): cells of a square open one by one at random, each only if exactly one of its four
neighbours is open; then some further walls are opened. Start and exit lie on opposite corners of a random diagonal, the
other two corners are the gold and the diamond zone, and the step budget is the longer of the shortest routes through
those corners, plus some slack.
"""

from __future__ import annotations

import random
from typing import Literal

import numpy as np
from pydantic import Field

from vpo_envs.core import Frozen, Split
from vpo_envs.pareto import needs_a_set
from vpo_envs.tasks.generation import Range
from vpo_envs.tasks.maze.front import outcome_front
from vpo_envs.tasks.maze.routes import OBJECTIVES
from vpo_envs.tasks.maze.task import (
    BONUS,
    DIAMOND,
    EXIT,
    GOLD,
    LAVA,
    MAX_SIZE,
    OPEN,
    START,
    WALL,
    Blocked,
    MazeTask,
    distance,
    geometry,
    split_of_layout,
)


class MazeConfig(Frozen):
    """How mazes of the paper's geometry are drawn. Pairs are inclusive ranges, drawn uniformly."""

    size: int = Field(9, ge=5, le=MAX_SIZE, description="rows and columns of the grid")
    opened: Range = Field((18, 28), description="further walls opened after the growth: fewer is denser")
    zone_radius: int = Field(
        2, ge=1, description="Manhattan radius of the gold and the diamond zone around their corners"
    )
    gold: Range = Field((3, 5), description="gold items")
    diamonds: Range = Field((3, 5), description="diamonds")
    lava: Range = Field((3, 5), description="lava tiles")
    lava_placement: Literal["centre", "ring"] = Field(
        "centre", description="lava in the inner 5 by 5, or on the ring of cells around the two zones"
    )
    slack: int = Field(7, ge=0, description="steps of the budget beyond the longer route through a zone's corner")
    bonus: bool = Field(False, description="put a bonus tile in the centre, for objectives of your own")
    blocked: Blocked = Field(
        "stays",
        description="after a move into a wall you stay in place and a step is used, or the walk ends, so guesses earn "
        "little",
    )
    conflict: float = Field(
        0.0, ge=0.0, lt=1.0, description="least gap in utility between the best three routes and the best route"
    )


PRESETS = {
    "conflict": MazeConfig(
        size=7,
        opened=(2, 5),
        gold=(4, 4),
        diamonds=(4, 4),
        lava=(5, 5),
        lava_placement="ring",
        slack=2,
        blocked="ends",
        conflict=0.05,
    ),
    "paper": MazeConfig(),
}
"""``conflict``: three routes beat one. ``paper``: the paper's 9×9 maze."""


def draw_maze(source: random.Random, config: MazeConfig, split: Split) -> MazeTask | None:
    """Draw a maze; ``None`` if it is not of this split, not certified or has too little room."""
    size = config.size
    width = size + 1
    cells, _ = geometry(size)
    last = size - 1
    corners = [0, last, last * width, last * width + last]
    passable = _grow(source, size, config.opened)
    for corner in corners:
        passable |= 1 << corner
    centre = (size // 2) * width + size // 2
    passable |= 1 << centre
    # One layout falls into one split, so the one without walls would be a fifth of it.
    if passable.bit_count() == size * size or split_of_layout(passable) != split:
        return None

    diagonal = [0, 3] if source.random() < 0.5 else [1, 2]
    if source.random() < 0.5:
        diagonal.reverse()
    start, goal = corners[diagonal[0]], corners[diagonal[1]]
    zones = [corner for i, corner in enumerate(corners) if i not in diagonal]
    if source.random() < 0.5:
        zones.reverse()

    without_exit = passable & ~(1 << goal)
    legs = [(distance(start, zone, without_exit, width), distance(zone, goal, passable, width)) for zone in zones]
    (to_gold, from_gold), (to_diamond, from_diamond) = legs
    if to_gold is None or from_gold is None or to_diamond is None or from_diamond is None:
        return None
    budget = max(to_gold + from_gold, to_diamond + from_diamond) + config.slack
    # One route cannot visit both zones' corners.
    between = distance(zones[0], zones[1], without_exit, width)
    if between is not None and between + min(to_gold + from_diamond, to_diamond + from_gold) <= budget:
        return None

    symbols = {start: START, goal: EXIT}
    if config.bonus:
        symbols[centre] = BONUS
    for symbol, zone, (low, high) in ((GOLD, zones[0], config.gold), (DIAMOND, zones[1], config.diamonds)):
        room = [c for c in _within(size, zone, 0, config.zone_radius) if passable >> c & 1 and c not in symbols]
        count = source.randint(low, high)
        if len(room) < low:
            return None
        for cell in source.sample(room, min(count, len(room))):
            symbols[cell] = symbol
    if config.lava_placement == "centre":
        edge = (size - 5) // 2
        near = [c for c in cells if edge <= c // width < size - edge and edge <= c % width < size - edge]
    else:
        ring = config.zone_radius + 1
        near = [c for zone in zones for c in _within(size, zone, ring, ring)]
    room = [c for c in near if passable >> c & 1 and c not in symbols]
    count = source.randint(*config.lava)
    if len(room) < config.lava[0]:
        return None
    lava = 0
    for cell in source.sample(room, min(count, len(room))):
        symbols[cell] = LAVA
        lava |= 1 << cell
    safe = distance(start, goal, passable & ~lava, width)
    if safe is None or safe > budget:
        return None
    text = [symbols.get(c) or (OPEN if passable >> c & 1 else WALL) for c in cells]
    rows = tuple(["".join(text[i : i + size]) for i in range(0, size * size, size)])
    task = MazeTask(rows=rows, budget=budget, blocked=config.blocked)
    if config.conflict:
        vectors = [[objective.score(outcome) for objective in OBJECTIVES] for outcome, _ in outcome_front(task)]
        return task if needs_a_set(np.array(vectors), config.conflict) else None
    return task


def _grow(source: random.Random, size: int, opened: tuple[int, int]) -> int:
    """Return the set of open cells after the growth and the further openings."""
    cells, neighbours = geometry(size)
    uniform = source.random
    first = cells[int(uniform() * len(cells))]
    passable = 1 << first
    frontier = list(neighbours[first])
    listed = passable
    for cell in frontier:
        listed |= 1 << cell
    open_beside = [0] * len(neighbours)
    for cell in neighbours[first]:
        open_beside[cell] = 1
    while frontier:
        # Swap-remove keeps each draw O(1). A cell with two open neighbours never has one again.
        i = int(uniform() * len(frontier))
        cell = frontier[i]
        frontier[i] = frontier[-1]
        frontier.pop()
        if open_beside[cell] != 1:
            continue
        passable |= 1 << cell
        for beside in neighbours[cell]:
            open_beside[beside] += 1
            if not listed >> beside & 1:
                listed |= 1 << beside
                frontier.append(beside)
    candidates = [c for c in cells if not passable >> c & 1 and open_beside[c] >= 2]
    count = min(source.randint(*opened), len(candidates))
    for cell in source.sample(candidates, count):
        passable |= 1 << cell
    return passable


def _within(size: int, corner: int, low: int, high: int) -> list[int]:
    """Return the cells whose Manhattan distance from ``corner`` lies in [low, high]."""
    width = size + 1
    row, column = divmod(corner, width)
    return [
        r * width + c
        for r in range(max(0, row - high), min(size, row + high + 1))
        for c in range(max(0, column - high), min(size, column + high + 1))
        if low <= abs(r - row) + abs(c - column) <= high
    ]
