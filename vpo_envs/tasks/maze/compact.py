"""``vpo/Maze-v0`` with ``preset="compact"``: mazes with three lanes and a prompt of a few words, for a small model."""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from vpo_envs.core import Objective
from vpo_envs.tasks.maze.env import MazeEnv
from vpo_envs.tasks.maze.lanes import LANES_OBJECTIVES, LanesConfig, draw_lanes, routes_of_each_kind
from vpo_envs.tasks.maze.routes import COLUMNS, COMPLETION, DIAMOND_SHARE, GOLD_SHARE, cells_along
from vpo_envs.tasks.maze.task import WALL, MazeTask

RewardShape = Literal["linear", "exit"]
OBJECTIVES_BY_SHAPE = {"linear": LANES_OBJECTIVES, "exit": (COMPLETION, GOLD_SHARE, DIAMOND_SHARE)}


class MazeCompactEnv(MazeEnv):
    """Find routes along three lanes, one with gold, one with diamonds and a short one between them.

    ## Description

    S and E lie on opposite edges, and three lanes join them: one with gold, one with diamonds, and a short one between
    the two. All of them bend. Some gold and some diamonds lie beside the short lane, so that a route can also
    compromise. A move into a wall or over the edge ends the walk.
    There is no lava: a subclass with objectives of its own leaves out ``avoid_lava``, which would be the same as
    ``completion``. The prompt is one word per open cell. Each maze is certified to need three routes and a vector.

    ## Action space

    Text: ``num_answers`` routes, each in its tag, as in ``MazeEnv``. A move may carry the cell that it leads to, as in
    ``Rb1``.

    ## Rewards

    Three objectives, each in [0, 1], all zero unless E is reached within the budget:

    0. ``gold``: the share of the gold collected.
    1. ``diamond``: the share of the diamonds collected.
    2. ``haste``: (budget - steps) / (budget - steps of a shortest route), the share of the steps saved.

    With ``reward_shape="exit"`` they are ``completion``, ``gold`` and ``diamond``: by the scalar reward, the direct
    way to the exit scores half as much as the best route, and gold and diamonds lie far from it. ``pareto_front()`` is
    exact.

    Args:
        reward_shape: ``"linear"`` or ``"exit"``.
        difficulty: Knobs that replace the preset's, by name; see ``vpo_envs.tasks.maze.lanes.LanesConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`; ``render_mode`` may be ``"rgb_array"``.
    """

    namespace = MazeEnv.namespace
    presets = MappingProxyType({"compact": LanesConfig()})
    objectives = LANES_OBJECTIVES
    monotone_objectives = (*MazeEnv.monotone_objectives, *LANES_OBJECTIVES)
    names_tags = False

    def __init__(self, *, reward_shape: RewardShape = "linear", **options: Any) -> None:
        if reward_shape not in (shapes := get_args(RewardShape)):
            raise ValueError(f"unknown reward_shape {reward_shape!r}: choose one of {', '.join(shapes)}")
        if reward_shape != "linear" and type(self).objectives is not MazeCompactEnv.objectives:
            raise ValueError(f"{type(self).__name__} defines its own objectives: reward_shape must be 'linear'")
        self.reward_shape = reward_shape
        super().__init__(**options)

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return the objectives of the reward shape."""
        return OBJECTIVES_BY_SHAPE[self.reward_shape]

    def draw(self, source: random.Random) -> MazeTask | None:
        """Draw a maze, of this split if it is complete."""
        return draw_lanes(source, self.config, self.split)

    def prompt(self, task: MazeTask, num_answers: int) -> str:
        """Return a short prompt: one word per open cell, such as ``c2G``.

        A word is a column letter, a row number and a symbol; naming the cell spares a tiny model from counting.
        """
        rows = [
            " ".join(f"{COLUMNS[column]}{number}{symbol}" for column, symbol in enumerate(row) if symbol != WALL)
            for number, row in enumerate(task.rows, start=1)
        ]
        return "\n".join([f"budget {task.budget} answers {num_answers}", *rows])

    def demonstrations(self, task: MazeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return routes of the front, specialists and the best compromise first, then prefixes of these routes."""
        return self._different_routes(task, rng, iter(routes_of_each_kind(task, rng)), num_answers)

    def write_answer(self, task: MazeTask, route: str) -> str:
        """Return a route over ``UDLR`` with the cell that each move leads to, as the tiny model writes it."""
        cells = [divmod(cell, task.board.width) for cell in cells_along(task, route)[1:]]
        return " ".join(f"{move}{COLUMNS[column]}{row + 1}" for move, (row, column) in zip(route, cells, strict=False))
