"""Routes for supervised warm starts: through random waypoints, or the specialists and compromises of the front."""

from __future__ import annotations

import random

import numpy as np

from vpo_envs.tasks.maze.lanes import lane_vectors, solved_lanes
from vpo_envs.tasks.maze.task import MazeTask, cells_of, geometry, move_between, rings


def random_routes(task: MazeTask, rng: np.random.Generator, count: int, *, detours: float = 1.0) -> list[str]:
    """Return ``count`` routes over ``UDLR`` that reach the exit within the budget.

    Each is a shortest path to the exit, or one to a random waypoint and from there to the exit; ties are broken at
    random. ``detours`` is the probability of a waypoint.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    board = task.board
    before_exit = board.passable & ~(1 << board.exit)
    from_exit = _distances(board.exit, board.passable, board.width)
    from_start = _distances(board.start, before_exit, board.width)
    near = [
        cell
        for cell in cells_of(before_exit)
        if cell in from_start and cell in from_exit and from_start[cell] + from_exit[cell] <= task.budget
    ]
    _, neighbours = geometry(task.size)
    routes = []
    for _ in range(count):
        waypoint = source.choice(near) if source.random() < detours else board.start
        to_waypoint = _distances(waypoint, before_exit, board.width)
        first = _descend(source, board.start, to_waypoint, neighbours, board.width)
        routes.append(first + _descend(source, waypoint, from_exit, neighbours, board.width))
    return routes


def routes_of_each_kind(task: MazeTask, rng: np.random.Generator, count: int) -> list[str]:
    """Return ``count`` routes over ``UDLR`` from the front of a maze with three lanes, of different kinds.

    A kind is the best route for one of the objectives, or for their mean. All kinds are equally likely, in random
    order. After them come the other routes of the front, and then the same again.
    """
    outcomes = solved_lanes(task)
    vectors = lane_vectors(outcomes)
    means = vectors.mean(axis=1)
    kinds = dict.fromkeys(int(np.lexsort((means, column))[-1]) for column in (*vectors.T, means))
    chosen: list[int] = []
    while len(chosen) < count:
        others = [i for i in range(len(outcomes)) if i not in kinds]
        chosen += [*rng.permutation(list(kinds)).tolist(), *rng.permutation(others).tolist()]
    return [outcomes[i][1] for i in chosen[:count]]


def _distances(goal: int, passable: int, width: int) -> dict[int, int]:
    return {cell: steps for steps, ring in enumerate(rings(goal, passable, width)) for cell in cells_of(ring)}


def _descend(
    source: random.Random, cell: int, distances: dict[int, int], neighbours: tuple[tuple[int, ...], ...], width: int
) -> str:
    """Return the moves of a random shortest path from ``cell`` to the cell where ``distances`` is 0."""
    moves = []
    while distances[cell]:
        nearer = [c for c in neighbours[cell] if distances.get(c, -1) == distances[cell] - 1]
        following = source.choice(nearer)
        moves.append(move_between(cell, following, width))
        cell = following
    return "".join(moves)
