"""Routes: the prompts, reading and walking a route, its outcome, the objectives, and random routes."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

from vpo_envs.core import Objective, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.generation import worded
from vpo_envs.tasks.maze.task import MAX_SIZE, MOVES, MazeTask, cells_of, geometry, move_between, rings
from vpo_envs.text import answer_tags, several_answers


def _completion(outcome: MazeOutcome) -> float:
    return 1.0 if outcome.reached_exit else 0.0


def _gold(outcome: MazeOutcome) -> float:
    return outcome.gold / outcome.gold_total if outcome.gold_total else 1.0


def _diamond(outcome: MazeOutcome) -> float:
    return outcome.diamonds / outcome.diamonds_total if outcome.diamonds_total else 1.0


def _avoid_lava(outcome: MazeOutcome) -> float:
    return 1.0 - outcome.lava / outcome.lava_total if outcome.lava_total else 1.0


COMPLETION = Objective("completion", "The exit is reached within the step budget", _completion)
GOLD_SHARE = Objective("gold", "Share of the gold collected", _gold)
DIAMOND_SHARE = Objective("diamond", "Share of the diamonds collected", _diamond)
AVOID_LAVA = Objective("avoid_lava", "Share of the lava cells not stepped on", _avoid_lava)
OBJECTIVES: tuple[Objective, ...] = (COMPLETION, GOLD_SHARE, DIAMOND_SHARE, AVOID_LAVA)


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

    A blocked move uses a step. The walk stays in place or ends there, as the maze states.
    """
    board = task.board
    cell, goal, after, marks = board.start, board.exit, board.after, board.marks
    visited = 0
    steps = 0
    for steps, move in enumerate(route[: task.budget], start=1):  # noqa: B007 (steps is used after the loop)
        before, cell = cell, after[move][cell]
        visited |= marks[cell]
        if cell == goal or (cell == before and task.blocked == "ends"):
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
        task.fewest_steps,
    )


def cells_along(task: MazeTask, route: str) -> list[int]:
    """Return the cells of the walk along ``route``, the start first, and a cell again after a move that is blocked."""
    board = task.board
    cells = [board.start]
    cell, goal, after = board.start, board.exit, board.after
    for move in route[: task.budget]:
        before, cell = cell, after[move][cell]
        cells.append(cell)
        if cell == goal or (cell == before and task.blocked == "ends"):
            break
    return cells


COLUMNS = "abcdefghijklmnopqrstuvwxyzABCDEF"
NAMES = {"U": "UP", "D": "DOWN", "L": "LEFT", "R": "RIGHT"}
MOVE_OF_WORD = {
    **{
        word: move for move in MOVES for name in (move, NAMES[move]) for word in (name, name.lower(), name.capitalize())
    },
    **{f"{move}{column}{row}": move for move in MOVES for column in COLUMNS for row in range(1, MAX_SIZE + 1)},
}
"""Every way to write a move: a word, its first letter, or the letter with the cell that it leads to."""


def read_route(text: str) -> str:
    """Read a route: moves as words or first letters, separated by blanks or commas; capital letters may run together.

    A letter may carry the cell that it leads to, as in ``Rb1``, which helps a small model to keep its place; only the
    letter counts. A full stop at the end is ignored.
    """
    words = text.rstrip().removesuffix(".").replace(",", " ").split()
    try:
        route = "".join([MOVE_OF_WORD[word] for word in words])
    except KeyError:
        route = "".join([MOVE_OF_WORD.get(word, word) for word in words])
        if route.strip(MOVES):
            wrong = next(word for word in words if word not in MOVE_OF_WORD and word.strip(MOVES))
            raise Unparsable(f"{wrong[:20]!r} is not one of UP, DOWN, LEFT, RIGHT") from None
    if not route:
        raise Unparsable("no moves")
    return route


def write_route(route: str) -> str:
    """Return a route over ``UDLR`` in the words that the full prompt asks for."""
    return ", ".join(NAMES[move] for move in route)


class Wording(NamedTuple):
    """One way to put a maze into words.

    ``{size}`` is its number of rows, ``{budget}`` the most steps, and ``{gold}``, ``{diamonds}`` and ``{lava}`` how
    many there are.
    """

    opening: str
    legend: str
    bonus: str
    """What the legend ends with if the maze has a bonus."""
    move: str
    stays: str
    """What a blocked move does where the walk goes on."""
    ends: str
    """What a blocked move does where it ends the walk."""
    rules: tuple[str, ...]
    objectives: str


WORDINGS = (
    Wording(
        "You are given a maze of {size} rows and {size} columns. Find routes from S to E.",
        "Legend: S start, E exit, # wall, . open, G gold, D diamond, L lava",
        ", B bonus",
        "A move is UP, DOWN, LEFT or RIGHT.",
        "Walls and edges block a move: you stay in place, but it still uses a step.",
        "A move into a wall or over the edge ends the walk there.",
        (
            "You have at most {budget} steps. The walk ends at E. A route that misses E scores nothing.",
            "You collect gold and diamonds by stepping on them; each counts once. Stepping on L is allowed.",
        ),
        "A route is scored on four objectives: reaching E, the share of the gold collected ({gold} in all), the share "
        "of the diamonds collected ({diamonds} in all), and the share of the lava cells that you do not step on "
        "({lava} in all).",
    ),
    Wording(
        "Here is a map with {size} rows of {size} cells. Plan a walk from the cell S to the cell E.",
        "On the map, # is a wall and . is a free cell. G is gold, D is a diamond and L is lava",
        ". B is a bonus",
        "Each step is one of UP, DOWN, LEFT and RIGHT.",
        "A step against a wall or the border moves you nowhere and is counted.",
        "The walk is over at the first step against a wall or the border.",
        (
            "The walk is also over at E, and after {budget} steps. Every score is 0 unless it reaches E.",
            "Gold and diamonds are picked up where you walk, each of them once. You may walk through lava.",
        ),
        "There are four objectives. The first is to reach E. The others are fractions: how much of the gold you pick "
        "up (of {gold}), how many of the diamonds (of {diamonds}), and how many cells of lava you never enter (of "
        "{lava}).",
    ),
    Wording(
        "Find ways through the grid below, which is {size} cells wide and {size} cells high. Each way leads from S "
        "to E.",
        "Cells: . can be entered and # cannot; G holds gold, D holds a diamond, L is lava; S is the start and E the "
        "exit",
        "; B holds a bonus",
        "Write UP, DOWN, LEFT or RIGHT for each move to the next cell.",
        "If # or the edge of the grid is in the way, you remain where you are and lose a move.",
        "If # or the edge of the grid is in the way, the route stops at that move.",
        (
            "There are {budget} moves at most, and none after E. Not reaching E earns 0 on every objective.",
            "Entering G or D collects what is there, the first time only. L can be entered like any free cell.",
        ),
        "Four objectives are scored: whether E is reached; the collected part of the gold, which lies on {gold} cells; "
        "the collected part of the diamonds, which lie on {diamonds} cells; and the part of the {lava} lava cells that "
        "the route keeps off.",
    ),
)


def full_prompt(task: MazeTask, num_answers: int) -> str:
    """Return instructions, rules and map for a model that follows instructions."""
    board, wording = task.board, worded(task, WORDINGS)
    if num_answers == 1:
        wanted = "Give one route, its moves separated by commas, between these tags:"
    else:
        wanted = (
            f"{several_answers(num_answers, 'routes')}\n"
            "Write each route, its moves separated by commas, between its own tags:"
        )
    blocked = wording.stays if task.blocked == "stays" else wording.ends
    legend = f"{wording.legend}{wording.bonus if board.bonus else ''}."
    rules = [f"{wording.move} {blocked}", *wording.rules]
    numbers = {"gold": board.gold_count, "diamonds": board.diamond_count, "lava": board.lava.bit_count()}
    lines = [wording.opening, "", legend, "", *task.rows, ""]
    lines += ["Rules:", *[f"- {rule}" for rule in rules], "", wording.objectives, "", wanted]
    lines += [f"{opening}moves{closing}" for opening, closing in answer_tags(num_answers)]
    return "\n".join(lines).format(size=task.size, budget=task.budget, **numbers)


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
