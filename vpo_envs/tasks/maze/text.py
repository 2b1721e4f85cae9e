"""How a maze is put to a model, and how a route is read back."""

from __future__ import annotations

from vpo_envs.core import Unparsable
from vpo_envs.tasks.maze.scoring import cells_along
from vpo_envs.tasks.maze.task import MAX_SIZE, MOVES, MazeTask
from vpo_envs.text import answer_tags

COLUMNS = "abcdefghijklmnopqrstuvwxyzABCDEF"
NAMES = {"U": "UP", "D": "DOWN", "L": "LEFT", "R": "RIGHT"}
MOVE_OF_WORD = {
    **{
        word: move for move in MOVES for name in (move, NAMES[move]) for word in (name, name.lower(), name.capitalize())
    },
    **{f"{move}{column}{row}": move for move in MOVES for column in COLUMNS for row in range(1, MAX_SIZE + 1)},
}
"""Every way to write a move: a word or its first letter, or the letter with the cell that it leads to."""


def read_route(text: str) -> str:
    """Read a route: moves as words or first letters, apart by blanks or commas.

    A letter may carry the cell that it leads to, as in ``Rb1``, which helps a small model to keep its place; only the
    letter counts.

    Returns:
        The route over ``UDLR``.

    Raises:
        Unparsable: Something else than moves, or nothing.
    """
    words = text.replace(",", " ").split()
    try:
        route = "".join([MOVE_OF_WORD[word] for word in words])
    except KeyError as error:
        raise Unparsable(f"{str(error.args[0])[:20]!r} is not one of UP, DOWN, LEFT, RIGHT") from None
    if not route:
        raise Unparsable("no moves")
    return route


def write_route(route: str) -> str:
    """A route over ``UDLR`` in the words that the full prompt asks for."""
    return ", ".join(NAMES[move] for move in route)


def write_compact_route(task: MazeTask, route: str) -> str:
    """A route over ``UDLR`` with the cell that each move leads to, as the tiny model writes it."""
    cells = cells_along(task, route)[1:]
    return " ".join(f"{move}{cell_name(cell, task.board.width)}" for move, cell in zip(route, cells, strict=False))


def cell_name(cell: int, width: int) -> str:
    """Column letter and row number of a board cell."""
    row, column = divmod(cell, width)
    return f"{COLUMNS[column]}{row + 1}"


def full_prompt(task: MazeTask, num_answers: int) -> str:
    """Instructions, rules and map for a model that follows instructions."""
    size = task.size
    board = task.board
    tags = answer_tags(num_answers)
    legend = [
        f"You are given a maze of {size} rows and {size} columns. Find routes from S to E.",
        "",
        "Legend: S start, E exit, # wall, . open, G gold, D diamond, L lava" + (", B bonus." if board.bonus else "."),
        "",
        *task.rows,
        "",
        "Rules:",
        "- A move is UP, DOWN, LEFT or RIGHT. Walls and the edge block a move: you stay, and the step still counts.",
        f"- You have at most {task.budget} steps. The walk ends at E. A route that does not reach E scores nothing.",
        "- Gold and diamonds are collected by stepping on them; each counts once. L can be entered, but costs points.",
        "",
        "A route is scored on four goals: reaching E, the share of the gold "
        f"({board.gold_count} in all), the share of the diamonds ({board.diamond_count} in all), and avoiding lava.",
    ]
    if num_answers == 1:
        wanted = ["Give one route, the moves apart by commas, between these tags:"]
    else:
        wanted = [
            f"Give {num_answers} different routes that make different trade-offs between the goals. "
            "They are judged together: under each weighting of the goals only the best of them counts.",
            "Write each one, the moves apart by commas, between its own tags:",
        ]
    example = [f"{opening}UP, RIGHT{closing}" for opening, closing in tags]
    return "\n".join([*legend, "", *wanted, *example])


def compact_prompt(task: MazeTask, num_answers: int) -> str:
    """The same instance in a few words for the bundled tiny model: one word per cell, its place and its symbol.

    A cell is a column letter, a row number and a symbol, such as ``c2#``. That the place is in the word spares a tiny
    model from counting.
    """
    rows = [
        " ".join(f"{COLUMNS[column]}{number}{symbol}" for column, symbol in enumerate(row))
        for number, row in enumerate(task.rows, start=1)
    ]
    return "\n".join([f"budget {task.budget} answers {num_answers}", *rows])
