"""The two prompts of a maze, and the reader of routes."""

from __future__ import annotations

from vpo_envs.core import Unparsable
from vpo_envs.tasks.maze.scoring import cells_along
from vpo_envs.tasks.maze.task import MAX_SIZE, MOVES, WALL, MazeTask
from vpo_envs.text import answer_tags, several_answers

COLUMNS = "abcdefghijklmnopqrstuvwxyzABCDEF"
NAMES = {"U": "UP", "D": "DOWN", "L": "LEFT", "R": "RIGHT"}
MOVE_OF_WORD = {
    **{
        word: move for move in MOVES for name in (move, NAMES[move]) for word in (name, name.lower(), name.capitalize())
    },
    **{f"{move}{column}{row}": move for move in MOVES for column in COLUMNS for row in range(1, MAX_SIZE + 1)},
}
"""Every way to write a move: a word, its first letter, or the letter with the cell that it leads to."""

UNFINISHED = frozenset(word[:end] for word in MOVE_OF_WORD for end in range(1, len(word) + 1))
"""Every beginning of such a word. Its first letter is that of its move."""


def read_route(text: str) -> str:
    """Read a route: moves as words or first letters, separated by blanks or commas; capital letters may run together.

    A letter may carry the cell that it leads to, as in ``Rb1``, which helps a small model to keep its place; only the
    letter counts.

    Returns:
        The route over ``UDLR``.

    Raises:
        Unparsable: The text contains anything but moves, or nothing.
    """
    words = text.replace(",", " ").split()
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


def moves_so_far(text: str) -> str | None:
    """Return the moves that every route has in common whose text begins with ``text``; ``None`` if there is none.

    Any moves can follow them. A last word that is not finished counts as far as it determines a move: ``RI`` as R.
    """
    words = text.replace(",", " ").split()
    last = words.pop() if words and not text.endswith((" ", ",")) and not text[-1].isspace() else ""
    try:
        route = read_route(" ".join(words)) if words else ""
    except Unparsable:
        return None
    if last in UNFINISHED:
        return route + last[0].upper()
    return None if last.strip(MOVES) else route + last


def write_route(route: str) -> str:
    """Return a route over ``UDLR`` in the words that the full prompt asks for."""
    return ", ".join(NAMES[move] for move in route)


def write_compact_route(task: MazeTask, route: str) -> str:
    """Return a route over ``UDLR`` with the cell that each move leads to, as the tiny model writes it."""
    places = [divmod(cell, task.board.width) for cell in cells_along(task, route)[1:]]
    return " ".join(f"{move}{COLUMNS[column]}{row + 1}" for move, (row, column) in zip(route, places, strict=False))


def full_prompt(task: MazeTask, num_answers: int) -> str:
    """Return instructions, rules and map for a model that follows instructions."""
    board = task.board
    if num_answers == 1:
        wanted = "Give one route, its moves separated by commas, between these tags:"
    else:
        wanted = (
            f"{several_answers(num_answers, 'routes')}\n"
            "Write each route, its moves separated by commas, between its own tags:"
        )
    return "\n".join(
        [
            f"You are given a maze of {task.size} rows and {task.size} columns. Find routes from S to E.",
            "",
            f"Legend: S start, E exit, # wall, . open, G gold, D diamond, L lava{', B bonus' * (board.bonus != 0)}.",
            "",
            *task.rows,
            "",
            "Rules:",
            "- A move is UP, DOWN, LEFT or RIGHT. Walls and edges block a move: you stay, and the step counts.",
            f"- You have at most {task.budget} steps. The walk ends at E. A route that misses E scores nothing.",
            "- You collect gold and diamonds by stepping on them; each counts once. Stepping on L is allowed but "
            "costs points.",
            "",
            "A route is scored on four goals: reaching E, the share of gold collected "
            f"({board.gold_count} in all), the share of diamonds collected ({board.diamond_count} in all), and "
            "avoiding lava.",
            "",
            wanted,
            *[f"{opening}UP, RIGHT{closing}" for opening, closing in answer_tags(num_answers)],
        ]
    )


def compact_prompt(task: MazeTask, num_answers: int) -> str:
    """Return a short prompt for the bundled tiny model: one word per open cell, such as ``c2G``.

    A word is a column letter, a row number and a symbol; naming the place spares a tiny model from counting.
    """
    rows = [
        " ".join(f"{COLUMNS[column]}{number}{symbol}" for column, symbol in enumerate(row) if symbol != WALL)
        for number, row in enumerate(task.rows, start=1)
    ]
    return "\n".join([f"budget {task.budget} answers {num_answers}", *rows])
