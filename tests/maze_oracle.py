"""Mazes solved and scored the plain way, from the rows and the budget alone, to hold the real code against."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

Cell = tuple[int, int]
Vector = tuple[float, ...]
STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


class Facts(NamedTuple):
    """What one walk to the exit comes to."""

    steps: int
    gold: int
    diamonds: int
    lava: int
    bonus: bool


def cells_with(rows: tuple[str, ...], symbols: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol in symbols]


def after(rows: tuple[str, ...], cell: Cell, move: str) -> Cell:
    """Where a move leads; blocked moves stay."""
    row, column = cell[0] + STEPS[move][0], cell[1] + STEPS[move][1]
    inside = 0 <= row < len(rows) and 0 <= column < len(rows)
    return (row, column) if inside and rows[row][column] != "#" else cell


def distances(rows: tuple[str, ...], source: Cell, closed: Iterable[Cell] = ()) -> dict[Cell, int]:
    """Steps from a cell to every other one that can be reached without entering the closed ones."""
    found = {source: 0}
    queue = deque([source])
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            beside = after(rows, cell, move)
            if beside not in found and beside not in closed:
                found[beside] = found[cell] + 1
                queue.append(beside)
    return found


def facts_of(rows: tuple[str, ...], visited: Iterable[Cell], steps: int) -> Facts:
    symbols = [rows[r][c] for r, c in visited]
    return Facts(steps, symbols.count("G"), symbols.count("D"), symbols.count("L"), "B" in symbols)


def walk_plainly(rows: tuple[str, ...], budget: int, route: str, blocked: str = "stays") -> Facts | None:
    """The facts of a route, or ``None`` where it does not reach the exit within the budget."""
    cell = cells_with(rows, "S")[0]
    visited = set()
    for steps, move in enumerate(route[:budget], start=1):
        if blocked == "ends" and after(rows, cell, move) == cell:
            return None
        cell = after(rows, cell, move)
        visited.add(cell)
        if rows[cell[0]][cell[1]] == "E":
            return facts_of(rows, visited, steps)
    return None


def every_outcome(rows: tuple[str, ...], budget: int) -> list[Facts]:
    """For every set of special cells that a walk to the exit can have visited, the facts of the shortest such walk."""
    return every_outcome_after(rows, budget, "")


def every_outcome_after(rows: tuple[str, ...], budget: int, route: str) -> list[Facts]:
    """The same for the walks that begin with a route.

    Breadth-first search over (cell, visited special cells), layer by layer.
    """
    special = {cell: 1 << i for i, cell in enumerate(cells_with(rows, "GDLB"))}
    goal = cells_with(rows, "E")[0]
    to_exit = distances(rows, goal)
    cell, mask = cells_with(rows, "S")[0], 0
    for steps, move in enumerate(route[:budget], start=1):
        cell = after(rows, cell, move)
        mask |= special.get(cell, 0)
        if cell == goal:
            return [facts_of(rows, [cell for cell, bit in special.items() if mask & bit], steps)]
    layer = {(cell, mask)}
    seen = set(layer)
    at_exit: dict[int, int] = {}
    for steps in range(len(route) + 1, budget + 1):
        following = set()
        for cell, visited in layer:
            for move in STEPS:
                beside = after(rows, cell, move)
                state = (beside, visited | special.get(beside, 0))
                if beside == goal:
                    at_exit.setdefault(state[1], steps)
                elif state not in seen and steps + to_exit.get(beside, budget) <= budget:
                    seen.add(state)
                    following.add(state)
        layer = following
    return [
        facts_of(rows, [cell for cell, bit in special.items() if visited & bit], steps)
        for visited, steps in at_exit.items()
    ]


def linear_vector(rows: tuple[str, ...], facts: Facts) -> Vector:
    """The objectives of the paper's text."""
    text = "".join(rows)
    gold, diamonds, lava = (text.count(symbol) for symbol in "GDL")
    return (
        1.0,
        facts.gold / gold if gold else 1.0,
        facts.diamonds / diamonds if diamonds else 1.0,
        1 - facts.lava / lava if lava else 1.0,
    )


def lanes_vector(rows: tuple[str, ...], facts: Facts, budget: int) -> Vector:
    """The objectives of a maze with three lanes."""
    (start,), (goal,) = cells_with(rows, "S"), cells_with(rows, "E")
    shortest = distances(rows, start).get(goal, budget)
    haste = (budget - facts.steps) / (budget - shortest) if shortest < budget else 1.0
    return (*linear_vector(rows, facts)[1:3], haste)


def front_of(vectors: Iterable[Vector], digits: int = 5) -> set[Vector]:
    """The vectors that no other one beats, rounded so that sets of them can be compared."""
    points = {tuple(round(value, digits) for value in vector) for vector in vectors}
    return {
        point
        for point in points
        if not any(other != point and all(a >= b for a, b in zip(other, point, strict=True)) for other in points)
    }


def brute_front(
    rows: tuple[str, ...], budget: int, score: Callable[[tuple[str, ...], Facts], Vector] = linear_vector
) -> set[Vector]:
    """The exact front of a maze; the zero vector alone where the exit cannot be reached."""
    outcomes = every_outcome(rows, budget)
    if not outcomes:
        return {(0.0,) * len(score(rows, Facts(1, 0, 0, 0, False)))}
    return front_of(score(rows, facts) for facts in outcomes)
