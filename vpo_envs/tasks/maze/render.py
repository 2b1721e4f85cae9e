"""Draws a maze and routes through it, as text for a terminal and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from gymnasium.utils.colorize import colorize
from numpy.typing import NDArray

from vpo_envs.tasks.maze.routes import cells_along, walk
from vpo_envs.tasks.maze.task import BONUS, DIAMOND, EXIT, GOLD, LAVA, OPEN, START, WALL, MazeTask, move_between

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

TEXT_WIDTH = 100
"""Panels of the text form are placed side by side up to this width."""

# Lines through a cell's middle, by the set of sides that they touch: up 1, down 2, left 4, right 8.
LINES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
SIDES = {"U": 1, "D": 2, "L": 4, "R": 8}
OPPOSITE = {"U": "D", "D": "U", "L": "R", "R": "L"}

Colour = tuple[int, int, int]
ROUTE_COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (60, 60, 60))
"""Colours from the palette of Okabe and Ito (2008), which colour-blind readers can tell apart."""
PAPER, FLOOR, GRID, STONE, INK = (255, 255, 255), (248, 247, 243), (226, 224, 216), (63, 68, 78), (40, 42, 48)
COIN, COIN_RIM, GEM, GEM_RIM = (247, 211, 60), (176, 132, 0), (196, 232, 250), (30, 96, 145)
MAGMA, MAGMA_LIGHT, STAR = (122, 32, 24), (255, 176, 59), (150, 110, 190)

TERMINAL_COLOURS = {GOLD: "yellow", DIAMOND: "cyan", LAVA: "red", BONUS: "magenta", START: "white", EXIT: "white"}

CELL = 48
"""Pixels per cell of the picture."""
SCALE = 3
"""The picture is drawn this many times larger and then shrunk, which smooths edges."""

# Lengths in cells: half a badge of start or exit, a line of the legend, its letters, and its sample of the colour.
BADGE, LINE, LETTER, SAMPLE = 0.27, 0.5, 0.3, 0.8


def outcome_line(task: MazeTask, route: str | None) -> str:
    """Return the result of a route in one line."""
    if route is None:
        return "no route"
    outcome = walk(task, route)
    steps = f"{outcome.steps} of {outcome.max_steps} steps"
    if not outcome.reached_exit:
        return f"no exit in {steps}: scores nothing"
    facts = [
        f"exit in {steps}",
        f"gold {outcome.gold}/{outcome.gold_total}",
        f"diamonds {outcome.diamonds}/{outcome.diamonds_total}",
        *([f"lava entered {outcome.lava}/{outcome.lava_total}"] if outcome.lava_total else []),
        *(["bonus"] if outcome.bonus else []),
    ]
    return ", ".join(facts)


def render_ansi(
    task: MazeTask, routes: Sequence[str | None], legend: Sequence[str] = (), *, colour: bool = False
) -> str:
    """Return the maze as text, once per route (``None``: no route) with a line along it, and the result of each."""
    panels = [_panel(task, route or "", colour) for route in routes or [""]]
    titles = [f" route {number}" for number in range(1, len(routes) + 1)] or [""]
    width = len(panels[0][0])
    per_line = max(1, TEXT_WIDTH // (width + 2))
    lines: list[str] = []
    for first in range(0, len(panels), per_line):
        beside = slice(first, first + per_line)
        if routes:
            lines.append("  ".join(title.ljust(width) for title in titles[beside]).rstrip())
        lines += ["  ".join(row) for row in zip(*panels[beside], strict=True)]
    board = task.board
    lines.append(
        f"S start, E exit, G gold, D diamond{', L lava' if board.lava else ''}{', B bonus' if board.bonus else ''}; "
        f"budget {task.budget} steps"
    )
    about = list(legend) or [outcome_line(task, route) for route in routes]
    lines += [f"route {number}: {line}" for number, line in enumerate(about[: len(routes)], start=1)]
    lines += about[len(routes) :]
    return "\n".join(lines)


def _panel(task: MazeTask, route: str, colour: bool) -> list[str]:
    """Return the framed maze, two characters per cell, the second one for a line to the next cell."""
    sides = dict.fromkeys(cells_along(task, route), 0)
    for cell, following in pairwise(cells_along(task, route)):
        if cell != following:
            move = move_between(cell, following, task.board.width)
            sides[cell] |= SIDES[move]
            sides[following] |= SIDES[OPPOSITE[move]]
    rows = []
    for row, symbols in enumerate(task.rows):
        text = ""
        for column, symbol in enumerate(symbols):
            line = sides.get(row * task.board.width + column, 0)
            if symbol == WALL:
                text += "██"
            else:
                middle = (LINES[line] if line else "·") if symbol == OPEN else symbol
                onwards = "─" if line & SIDES["R"] else " "
                text += _painted(middle, symbol) + _painted(onwards) if colour else middle + onwards
        rows.append(f"│ {text}│")
    edge = "─" * (2 * task.size + 1)
    return [f"┌{edge}┐", *rows, f"└{edge}┘"]


def _painted(text: str, symbol: str = OPEN) -> str:
    """Return a character of a panel in colour: by the item, or a line along a route, which is green."""
    if text in " ·":
        return text
    return colorize(text, TERMINAL_COLOURS.get(symbol, "green"), bold=symbol != OPEN)


class _Pen(NamedTuple):
    """Draws in units of a cell."""

    draw: ImageDraw
    unit: float

    def box(self, x: float, y: float, radius_x: float, radius_y: float) -> tuple[float, float, float, float]:
        unit = self.unit
        return (x - radius_x) * unit, (y - radius_y) * unit, (x + radius_x) * unit, (y + radius_y) * unit

    def disc(self, x: float, y: float, radius: float, fill: Colour, rim: Colour | None = None) -> None:
        self.draw.ellipse(self.box(x, y, radius, radius), fill=fill, outline=rim, width=round(self.unit * 0.04))

    def shape(self, points: Sequence[tuple[float, float]], fill: Colour, rim: Colour | None = None) -> None:
        self.draw.polygon([(x * self.unit, y * self.unit) for x, y in points], fill=fill)
        if rim is not None:
            self.line([*points, points[0]], rim, 0.04)

    def line(self, points: Sequence[tuple[float, float]], fill: Colour, width: float) -> None:
        scaled = [(x * self.unit, y * self.unit) for x, y in points]
        self.draw.line(scaled, fill=fill, width=max(1, round(width * self.unit)), joint="curve")

    def text(self, x: float, y: float, text: str, fill: Colour, size: float, anchor: str = "mm") -> None:
        self.draw.text((x * self.unit, y * self.unit), text, fill=fill, font=_font(size * self.unit), anchor=anchor)


def render_rgb(task: MazeTask, routes: Sequence[str | None], legend: Sequence[str] = ()) -> NDArray[np.uint8]:
    """Return a picture of the maze with every route as a coloured line, and below it the legend of `render_ansi`.

    Routes run beside each other where they share cells. An arrow ends a route at the exit, a cross one that does not
    get there. The array has shape (height, width, 3).
    """
    from PIL import Image, ImageDraw

    unit = CELL * SCALE
    size, margin = task.size, 0.35
    legend = list(legend) or [outcome_line(task, route) for route in routes]
    longest = max((_font(LETTER * unit).getlength(line) / unit for line in legend), default=0.0)
    width = max(size, longest + SAMPLE) + 2 * margin
    height = size + 2 * margin + LINE * len(legend)
    image = Image.new("RGB", (round(width * unit), round(height * unit)), PAPER)
    pen = _Pen(ImageDraw.Draw(image), unit)
    left = (width - size) / 2
    cells = [
        (left + column + 0.5, margin + row + 0.5, symbol)
        for row, symbols in enumerate(task.rows)
        for column, symbol in enumerate(symbols)
    ]
    for x, y, symbol in cells:
        ground = {WALL: STONE, LAVA: MAGMA}.get(symbol, FLOOR)
        pen.draw.rectangle(pen.box(x, y, 0.5, 0.5), fill=ground, outline=None if symbol == WALL else GRID, width=3)
        for height in (-0.22, 0.0, 0.22) if symbol == LAVA else ():
            steps = np.linspace(-0.36, 0.36, 25)
            wave = [(x + float(t), y + height + 0.07 * float(np.sin(t * 17))) for t in steps]
            pen.line(wave, MAGMA_LIGHT, 0.06)
    corners = [(left, margin), (left + size, margin), (left + size, margin + size), (left, margin + size)]
    pen.line([*corners, corners[0]], STONE, 0.08)
    for number, route in enumerate(routes):
        if route is not None:
            _draw_route(pen, task, route, number, len(routes), left, margin)
    for x, y, symbol in cells:
        _draw_thing(pen, x, y, symbol)
    for number, line in enumerate(legend):
        y = size + 2 * margin + LINE * (number + 0.3)
        if number < len(routes):
            pen.line([(margin, y), (margin + 0.75 * SAMPLE, y)], ROUTE_COLOURS[number % len(ROUTE_COLOURS)], 0.12)
        pen.text(margin + SAMPLE, y, line, INK, LETTER, anchor="lm")
    small = image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.LANCZOS)
    return np.array(small, dtype=np.uint8)


@lru_cache(maxsize=8)
def _font(pixels: float) -> FreeTypeFont:
    from PIL import ImageFont

    return cast("FreeTypeFont", ImageFont.load_default(size=round(pixels)))


def _draw_thing(pen: _Pen, x: float, y: float, symbol: str) -> None:
    """Draw what lies on a cell, above the routes, so that no line hides it."""
    if symbol == GOLD:
        pen.disc(x, y, 0.27, COIN, COIN_RIM)
        pen.disc(x, y, 0.17, COIN, COIN_RIM)
    elif symbol == DIAMOND:
        corners = [(x - 0.16, y - 0.24), (x + 0.16, y - 0.24), (x + 0.31, y - 0.05), (x, y + 0.3), (x - 0.31, y - 0.05)]
        pen.shape(corners, GEM, GEM_RIM)
        pen.line([corners[4], corners[2]], GEM_RIM, 0.03)
        pen.line([corners[0], (x - 0.1, y - 0.05), corners[3], (x + 0.1, y - 0.05), corners[1]], GEM_RIM, 0.03)
    elif symbol == BONUS:
        angles = np.arange(10) * np.pi / 5 - np.pi / 2
        radii = np.where(np.arange(10) % 2 == 0, 0.32, 0.14)
        star = zip(radii * np.cos(angles), radii * np.sin(angles), strict=True)
        pen.shape([(x + float(dx), y + float(dy)) for dx, dy in star], STAR, PAPER)
    elif symbol == START:
        pen.disc(x, y, BADGE, PAPER, INK)
        pen.text(x, y, symbol, INK, 0.36)
    elif symbol == EXIT:
        pen.draw.rounded_rectangle(pen.box(x, y, BADGE, BADGE), radius=0.07 * pen.unit, fill=INK)
        pen.text(x, y, symbol, PAPER, 0.36)


def _draw_route(pen: _Pen, task: MazeTask, route: str, number: int, count: int, left: float, top: float) -> None:
    """Draw a route, shifted along the diagonal by its number so that routes through the same cells do not overlap."""
    cells = cells_along(task, route)
    gap = min(0.16, 0.46 / max(1, count - 1))
    shift = (number - (count - 1) / 2) * gap
    thick = min(0.11, 0.7 * gap)
    colour = ROUTE_COLOURS[number % len(ROUTE_COLOURS)]
    centres = [(left + cell % task.board.width + 0.5, top + cell // task.board.width + 0.5) for cell in cells]
    points = [(x + shift, y + shift) for x, y in centres]
    arrow: list[tuple[float, float]] = []
    if cells[-1] == task.board.exit:
        (x, y), (before_x, before_y) = points[-1], points[-2]
        across, down = x - before_x, y - before_y
        # The tip touches the badge of the exit, whatever the shift.
        room = BADGE + shift * (across + down)
        x, y = x - room * across, y - room * down
        back_x, back_y = x - 0.24 * across, y - 0.24 * down
        side = max(0.08, 1.2 * thick)
        arrow = [(x, y), (back_x - side * down, back_y - side * across), (back_x + side * down, back_y + side * across)]
        points[-1] = (back_x + 0.05 * across, back_y + 0.05 * down)
    points = [centres[0], points[0], *(after for before, after in pairwise(points) if after != before)]
    for width, shade in ((thick + 0.05, PAPER), (thick, colour)):
        pen.line(points, shade, width)
    if arrow:
        pen.shape(arrow, colour, PAPER)
        return
    x, y = points[-1]
    for width, shade in ((thick + 0.06, PAPER), (thick, colour)):
        pen.line([(x - 0.13, y - 0.13), (x + 0.13, y + 0.13)], shade, width)
        pen.line([(x - 0.13, y + 0.13), (x + 0.13, y - 0.13)], shade, width)
