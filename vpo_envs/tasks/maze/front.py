"""The exact front of a maze: every outcome that no other route beats, each with a route that attains it.

Only the items that a route collects, the lava that it enters and its length matter. For each set of lava cells that a
route may enter, flooding finds the shortest walks between start, items and exit, and a dynamic programme over subsets
of items (Held and Karp, 1962) finds the shortest route that collects at least each subset. Collecting more on the way
never hurts, so the non-dominated ones among these are exactly the front.
"""

from __future__ import annotations

from itertools import pairwise, takewhile

import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import UnknownFront
from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.maze.routes import MazeOutcome, walk
from vpo_envs.tasks.maze.task import Board, MazeTask, cells_of, move_between, rings

MAX_ITEMS = 13
MAX_LAVA = 8
FAR = 10_000

Distances = NDArray[np.int16]


def outcome_front(task: MazeTask) -> list[tuple[MazeOutcome, str]]:
    """Return all outcomes at the exit that no other route beats in every fact, each with a route over ``UDLR``.

    The facts are gold and diamonds collected, the bonus tile (more is better), lava entered and steps (fewer is
    better). If no route reaches the exit within the budget, every route scores 0, and a single move represents them.
    """
    board = task.board
    items = cells_of(board.gold | board.diamond | board.bonus)
    if len(items) > MAX_ITEMS or board.lava_count > MAX_LAVA:
        raise UnknownFront(
            f"a maze with {len(items)} items and {board.lava_count} lava cells is too large for exact search: "
            f"at most {MAX_ITEMS} and {MAX_LAVA}"
        )
    lava_sets, distances = _useful_lava_sets(board, items)
    lengths = shortest_collecting(distances)
    to_exit = distances[:, None, :-1, -1]
    totals = (lengths + to_exit).min(axis=2, initial=FAR)
    totals[:, 0] = distances[:, -1, -1]
    best = best_by_facts(board, items, lava_sets, totals, min(task.budget, FAR - 1))
    if not best:
        return [(walk(task, "U"), "U")]
    routes = [_route(board, items, lava_sets[a], distances[a], lengths[a], subset) for a, subset in best]
    return [(walk(task, route), route) for route in routes]


def _useful_lava_sets(board: Board, items: list[int]) -> tuple[list[int], Distances]:
    """Return the sets of lava cells that shorten some route, and the distances between points of interest under
    each."""
    lava = cells_of(board.lava)
    safe = board.passable & ~board.lava
    sources, goals = [*items, board.start], [*items, board.exit]
    allowed = [0]
    tables = [np.stack([_flood(source, goals, safe, board) for source in sources])]
    useful = [0]
    for subset in range(1, 1 << len(lava)):
        newest = subset.bit_length() - 1
        without = subset ^ 1 << newest
        allowed.append(allowed[without] | 1 << lava[newest])
        # The newest cell adds only the walks through it.
        away = _flood(lava[newest], [*sources, board.exit], safe | allowed[subset], board)
        tables.append(np.minimum(tables[without], away[:-1, None] + np.delete(away, -2)))
        # A set that shortens nothing compared with one of its subsets only adds lava.
        if not any(
            subset >> i & 1 and np.array_equal(tables[subset], tables[subset ^ 1 << i]) for i in range(len(lava))
        ):
            useful.append(subset)
    return [allowed[subset] for subset in useful], np.stack([tables[subset] for subset in useful])


def _flood(source: int, goals: list[int], passable: int, board: Board) -> Distances:
    """Return the distances from ``source`` to each goal without passing through the exit."""
    wanted = sum(1 << goal for goal in goals)
    steps: dict[int, int] = {}
    for count, ring in enumerate(rings(source, passable, board.width, dead_end=1 << board.exit)):
        if reached := ring & wanted:
            steps |= dict.fromkeys(cells_of(reached), count)
            if len(steps) == len(goals):
                break
    return np.array([steps.get(goal, FAR) for goal in goals], dtype=np.int16)


def shortest_collecting(distances: Distances) -> Distances:
    """Return ``lengths[a, subset, last]``: fewest steps from the start through ``subset`` to its item ``last``.

    The distances have a row for each item and one for the start, and a column for each item and one for the exit.
    """
    sets, count = distances.shape[0], distances.shape[1] - 1
    lengths = np.full((sets, 1 << count, count), FAR, dtype=np.int16)
    between, from_start = distances[:, :count, :count], distances[:, count, :count]
    for item in range(count):
        lengths[:, 1 << item, item] = from_start[:, item]
    subsets = np.arange(1 << count)
    sizes = np.bitwise_count(subsets)
    for size in range(1, count):
        layer = subsets[sizes == size]
        for item in range(count):
            before = layer[layer >> item & 1 == 0]
            best = (lengths[:, before, :] + between[:, None, :, item]).min(axis=2)
            lengths[:, before | 1 << item, item] = np.minimum(best, FAR)
    return lengths


def best_by_facts(
    board: Board, items: list[int], lava_sets: list[int], totals: Distances, budget: int
) -> list[tuple[int, int]]:
    """Return indices (lava set, subset of items) of the front, one per non-dominated combination of facts.

    ``totals`` holds the steps of a shortest route for each lava set and subset, shape (sets, subsets).
    """
    subsets = np.arange(totals.shape[1])

    def count_in(cell_set: int) -> NDArray[np.int64]:
        mask = sum(1 << i for i, cell in enumerate(items) if cell_set >> cell & 1)
        return np.asarray(np.bitwise_count(subsets & mask), dtype=np.int64)

    gold, diamonds, bonus = count_in(board.gold), count_in(board.diamond), count_in(board.bonus)
    lava = np.array([allowed.bit_count() for allowed in lava_sets])
    # A stable sort by length puts the shortest route of each combination of facts first, where np.unique finds it.
    combination = ((gold * 16 + diamonds) * 16 + bonus)[None, :] * 16 + lava[:, None]
    by_length = np.argsort(totals, axis=None, kind="stable")
    by_length = by_length[totals.ravel()[by_length] <= budget]
    _, first = np.unique(combination.ravel()[by_length], return_index=True)
    chosen = by_length[first]
    sets, which = np.unravel_index(chosen, totals.shape)
    facts = np.stack([gold[which], diamonds[which], bonus[which], -lava[sets], -totals[sets, which]], axis=1)
    keep = non_dominated(facts)
    return [(int(a), int(s)) for a, s in zip(sets[keep], which[keep], strict=True)]


def _route(board: Board, items: list[int], allowed: int, distances: Distances, lengths: Distances, subset: int) -> str:
    """Return a route of the length that the programme found, traced back from the exit."""
    stops = [board.exit]
    if subset:
        last = int(np.argmin(lengths[subset] + distances[:-1, -1]))
        while True:
            stops.append(items[last])
            length = lengths[subset, last]
            subset ^= 1 << last
            if not subset:
                break
            last = int(np.flatnonzero(lengths[subset] + distances[:-1, last] == length)[0])
    stops.append(board.start)
    stops.reverse()
    passable = (board.passable & ~board.lava) | allowed
    return "".join(_leg(a, b, passable, board) for a, b in pairwise(stops))


def _leg(source: int, goal: int, passable: int, board: Board) -> str:
    """Return a shortest walk between two cells that visits the exit only at its end."""
    width = board.width
    inner = passable & ~(1 << board.exit)
    layers = list(takewhile(lambda ring: not ring >> goal & 1, rings(source, inner | 1 << goal, width)))
    moves = []
    cell = goal
    for layer in reversed(layers):
        near = (cell - width, cell + width, cell - 1, cell + 1)
        before = next(c for c in near if c >= 0 and (layer & inner) >> c & 1)
        moves.append(move_between(before, cell, width))
        cell = before
    return "".join(reversed(moves))
