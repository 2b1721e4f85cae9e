"""A maze as a task, and grid arithmetic for simulation and search.

Cells are numbered row by row on a board that is one column wider than the maze. The extra column is always wall, so a
step off the right edge cannot wrap around to the left. A set of cells is an integer with one bit per cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from pydantic import field_validator, model_validator

from vpo_envs.core import Split, Task

OPEN, START, EXIT, GOLD, DIAMOND, LAVA, WALL, BONUS = SYMBOLS = ".SEGDL#B"
MARKED = GOLD + DIAMOND + LAVA + BONUS
MOVES = "UDLR"
MAX_SIZE = 32
Blocked = Literal["stays", "ends"]
"""After a move into a wall or over the edge, you stay in place and a step is used, or the walk ends."""


class MazeTask(Task):
    """A square maze and its step budget."""

    rows: tuple[str, ...]
    """The square grid, one string per row.

    The symbols are ``. S E G D L # B`` for open, start, exit, gold, diamond, lava, wall and bonus.
    """
    budget: int
    """Maximum number of steps of a route."""
    blocked: Blocked = "stays"
    """What a move into a wall or over the edge does."""

    @field_validator("rows")
    @classmethod
    def _is_a_square_of_symbols(cls, rows: tuple[str, ...]) -> tuple[str, ...]:
        size = len(rows)
        if not 3 <= size <= MAX_SIZE:
            raise ValueError(f"a maze has 3 to {MAX_SIZE} rows, got {size}")
        for number, row in enumerate(rows):
            if len(row) != size:
                raise ValueError(f"row {number} has {len(row)} cells, but the maze has {size} rows: it must be square")
        text = "".join(rows)
        unknown = set(text) - set(SYMBOLS)
        if unknown:
            raise ValueError(f"unknown symbol {min(unknown)!r}: a maze is written with {' '.join(SYMBOLS)}")
        for symbol in (START, EXIT):
            if text.count(symbol) != 1:
                raise ValueError(f"a maze has exactly one {symbol}, got {text.count(symbol)}")
        return rows

    @model_validator(mode="after")
    def _has_a_budget(self) -> MazeTask:
        if self.budget < 1:
            raise ValueError(f"the step budget must be at least 1, got {self.budget}")
        return self

    @property
    def split(self) -> Split:
        """The split of the layout of open cells: two mazes with the same walls are too much alike to be held out."""
        return split_of_layout(self.board.passable)

    @property
    def size(self) -> int:
        """Number of rows, and of columns."""
        return len(self.rows)

    @cached_property
    def board(self) -> Board:
        """The grid compiled for simulation and search."""
        return compile_board(self.rows)

    @cached_property
    def fewest_steps(self) -> int:
        """Steps of a shortest route to the exit; the budget if none fits into it."""
        board = self.board
        fewest = distance(board.start, board.exit, board.passable, board.width)
        return self.budget if fewest is None else min(fewest, self.budget)


class Board(NamedTuple):
    """A maze compiled to cell sets and a table of moves."""

    width: int
    """Cells per row of the board: size + 1."""
    start: int
    exit: int
    passable: int
    """Set of cells that can be entered."""
    gold: int
    diamond: int
    lava: int
    bonus: int
    gold_count: int
    diamond_count: int
    lava_count: int
    marks: list[int]
    """``marks[cell]``: the set of that cell alone if it has an item, lava or the bonus, else the empty set."""
    after: dict[str, list[int]]
    """``after[move][cell]``: the cell that ``move`` leads to from ``cell``; if the move is blocked, ``cell`` itself."""


@lru_cache(maxsize=MAX_SIZE)
def geometry(size: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the cells of a maze, and for each cell of its board the neighbours in the maze."""
    width = size + 1
    cells = tuple(row * width + column for row in range(size) for column in range(size))
    on_maze = set(cells)
    neighbours = tuple(
        tuple(cell + step for step in (-width, width, -1, 1) if cell + step in on_maze) if cell in on_maze else ()
        for cell in range(size * width)
    )
    return cells, neighbours


def compile_board(rows: tuple[str, ...]) -> Board:
    """Compile the rows of a maze."""
    width = len(rows) + 1
    text = WALL.join(rows) + WALL
    sets = dict.fromkeys(SYMBOLS, 0)
    marks = [0] * len(text)
    for cell, symbol in enumerate(text):
        sets[symbol] |= 1 << cell
        if symbol in MARKED:
            marks[cell] = 1 << cell
    framed = WALL * width + text + WALL * width
    after = {}
    for move, step in zip(MOVES, (-width, width, -1, 1), strict=True):
        beside = framed[width + step : width + step + len(text)]
        after[move] = [cell if symbol == WALL else cell + step for cell, symbol in enumerate(beside)]
    start, goal = text.index(START), text.index(EXIT)
    passable = (1 << len(text)) - 1 ^ sets[WALL]
    gold, diamond, lava, bonus = [sets[symbol] for symbol in MARKED]
    counts = gold.bit_count(), diamond.bit_count(), lava.bit_count()
    return Board(width, start, goal, passable, gold, diamond, lava, bonus, *counts, marks, after)


def split_of_layout(passable: int) -> Split:
    """Return the split of a layout of open cells: half go to train, a quarter each to validation and test.

    It is a function of the layout, so no two splits share a maze whatever the seeds.
    """
    mixed = (passable * 0x9E3779B97F4A7C15F39CC0605CEDC835) >> 7
    bits = (mixed ^ (mixed >> 64)) % 1_000_003 & 3
    return ("train", "train", "validation", "test")[bits]


def cells_of(cell_set: int) -> list[int]:
    """Return the cells of a set in ascending order."""
    cells = []
    while cell_set:
        lowest = cell_set & -cell_set
        cells.append(lowest.bit_length() - 1)
        cell_set ^= lowest
    return cells


def rings(start: int, passable: int, width: int, dead_end: int = 0) -> Iterator[int]:
    """Search breadth first: yield the sets of cells at distance 0, 1, 2, … from ``start`` within ``passable``.

    The search reaches the cells of the set ``dead_end``, but does not go on from them.
    """
    reached = frontier = 1 << start
    while frontier:
        yield frontier
        frontier &= ~dead_end
        frontier = ((frontier << 1) | (frontier >> 1) | (frontier << width) | (frontier >> width)) & passable & ~reached
        reached |= frontier


def distance(start: int, goal: int, passable: int, width: int) -> int | None:
    """Return the length of a shortest path from ``start`` to ``goal`` within ``passable``; ``None`` without any."""
    return next((steps for steps, ring in enumerate(rings(start, passable, width)) if ring >> goal & 1), None)


def move_between(cell: int, following: int, width: int) -> str:
    """Return the move that leads from a cell to its neighbour."""
    return {-width: "U", width: "D", -1: "L", 1: "R"}[following - cell]
