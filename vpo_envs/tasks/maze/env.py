"""``vpo/Maze-v0``: routes through a maze."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from vpo_envs.core import Objective, UnknownFront
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.maze.front import outcome_front
from vpo_envs.tasks.maze.generate import PRESETS, draw_maze
from vpo_envs.tasks.maze.lanes import routes_of_each_kind
from vpo_envs.tasks.maze.routes import (
    LANE_SHAPES,
    LANES,
    LINEAR,
    SHAPES,
    MazeOutcome,
    cells_along,
    compact_prompt,
    fact_grid,
    full_prompt,
    random_routes,
    read_route,
    walk,
    write_compact_route,
    write_route,
)
from vpo_envs.tasks.maze.task import MazeTask

RewardShape = Literal["linear", "convex_bonus", "exit"]


class MazeEnv(TaskEnv[MazeTask, str, MazeOutcome]):
    """Find routes through a maze that make different trade-offs between gold, diamonds and lava.

    ## Description

    A square grid has a start S and an exit E on opposite corners, gold G around one of the other corners, diamonds D
    around the last one, and lava L. The step budget is too short to visit both corners, so a route must choose, and the
    best set of answers contains routes that choose differently. The geometry is that of Vector Policy Optimization
    (arXiv 2605.22817).

    With ``preset="compact"`` S and E are the middles of opposite edges, and three lanes join them: one with gold, one
    with diamonds, and a short one between the two. Some gold and some diamonds lie beside the short lane, so that a
    route can also compromise. There is no lava: a subclass with objectives of its own leaves out ``avoid_lava``, which
    would be the same as ``completion``. The prompt is one word per open cell.

    ## Action space

    Text: ``num_answers`` routes, each in its tag (``<answer_1>UP, RIGHT</answer_1>`` and so on; ``<answer>`` where one
    answer is wanted). Moves are UP, DOWN, LEFT, RIGHT or their first letters, separated by blanks or commas. A
    blocked move stays put and costs a step. Moves after the exit are not part of a route: routes that differ only there
    are duplicates.

    ## Rewards

    Four objectives, each in [0, 1], all zero unless E is reached within the budget:

    0. ``completion``: 1 at the exit.
    1. ``gold``: the share of the gold collected.
    2. ``diamond``: the share of the diamonds collected.
    3. ``avoid_lava``: the share of the lava cells not stepped on.

    With ``preset="compact"`` they are ``gold``, ``diamond`` and ``haste``: (budget - steps) / (budget - steps of a
    shortest route), the share of the steps saved.

    With ``preset="compact"`` and ``reward_shape="exit"`` they are ``completion``, ``gold`` and ``diamond``: under the
    mean the direct way to the exit is worth half of the best route, and gold and diamonds lie far from it.

    With ``reward_shape="convex_bonus"`` the shares of gold and diamonds are squared, and multiplied by 1.5 (up to 1)
    for a route over the bonus tile B. ``pareto_front()`` is exact, and also for a subclass whose objectives never fall
    when a route collects more, enters less lava or is shorter.

    Args:
        preset: ``"conflict"`` (default: 7×7, certified to need three routes), ``"paper"`` (9×9, as in the paper) or
            ``"compact"`` (7×7 with three lanes, certified to need three routes and a vector, for a tiny model).
        reward_shape: ``"linear"``, ``"convex_bonus"`` (not with ``"compact"``) or ``"exit"`` (only with ``"compact"``).
        difficulty: Knobs that replace the preset's, by name; see ``vpo_envs.tasks.maze.generate.MazeConfig``, or
            ``vpo_envs.tasks.maze.lanes.LanesConfig`` for three lanes.
        **options: Those of :class:`vpo_envs.VectorTextEnv`; ``render_mode`` may be ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's form
    task_type = MazeTask
    namespace = 1
    presets = PRESETS
    objectives = LINEAR
    monotone_objectives = tuple(objective for shape in (*SHAPES.values(), LANES) for objective in shape)

    def __init__(self, *, reward_shape: RewardShape = "linear", **options: Any) -> None:
        if reward_shape not in (shapes := get_args(RewardShape)):
            raise ValueError(f"unknown reward_shape {reward_shape!r}: choose one of {', '.join(shapes)}")
        self.reward_shape = reward_shape
        super().__init__(**options)
        if reward_shape != "linear" and type(self).objectives is not MazeEnv.objectives:
            raise ValueError(f"{type(self).__name__} defines its own objectives: reward_shape must be 'linear'")

    @property
    def has_lanes(self) -> bool:
        """Whether the mazes have three lanes and a prompt of a few words."""
        return self.preset == "compact"

    def _objectives(self) -> tuple[Objective, ...]:
        shapes = LANE_SHAPES if self.has_lanes else SHAPES
        if self.reward_shape not in shapes:
            raise ValueError(
                f"preset={self.preset!r} of {type(self).__name__} has no {self.reward_shape!r} rewards: reward_shape "
                f"must be {' or '.join(map(repr, shapes))}"
            )
        return shapes[self.reward_shape]

    def generate(self, rng: np.random.Generator) -> MazeTask:
        """Draw a maze of this split."""
        return draw_maze(rng, self.config, self.split)

    def prompt(self, task: MazeTask, num_answers: int) -> str:
        """Return the maze and the tags to fill in, as the preset shows them."""
        return (compact_prompt if self.has_lanes else full_prompt)(task, num_answers)

    parse = staticmethod(read_route)

    def effective(self, answer: str, outcome: MazeOutcome) -> str:
        """Return the route up to the exit, where the walk ends."""
        return answer[: outcome.steps] if outcome.reached_exit else answer

    def evaluate(self, task: MazeTask, answer: str) -> MazeOutcome:
        """Walk the route."""
        return walk(task, answer)

    def feasible(self, outcome: MazeOutcome) -> bool:
        """Return whether the route reaches the exit."""
        return outcome.reached_exit

    def why(self, task: MazeTask, facts: Mapping[str, Any]) -> str:
        """Return whether the exit was missed, else what was collected and stepped on."""
        if not facts["reached_exit"]:
            return f"not at the exit after {facts['steps']} of {facts['max_steps']} steps"
        return ", ".join(
            f"{facts[name]} of {total} {name}"
            for name in ("gold", "diamonds", "lava")
            if (total := facts[f"{name}_total"])
        )

    def outcome_front(self, task: MazeTask) -> Sequence[tuple[MazeOutcome, str]]:
        """Return every outcome that no other route beats in items, lava and steps, each with a route."""
        return [(outcome, self.write_answer(task, route)) for outcome, route in outcome_front(task)]

    def fact_grids(self, task: MazeTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in items, lava and steps."""
        return [fact_grid(task)]

    def demonstrations(self, task: MazeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return routes through random waypoints; with three lanes the front's specialists and its best compromise."""
        routes = (routes_of_each_kind if self.has_lanes else random_routes)(task, rng, num_answers)
        return [self.write_answer(task, route) for route in routes]

    def write_answer(self, task: MazeTask, route: str) -> str:
        """Return a route in the form that the prompt asks for."""
        return write_compact_route(task, route) if self.has_lanes else write_route(route)

    def render(self) -> Any:
        """Return the maze with the routes of the last response: text, or a picture (height, width, 3) of uint8."""
        from vpo_envs.tasks.maze.render import render_ansi, render_rgb

        if self.render_mode is None:
            return None
        task = self.current_task
        routes = [self._route_of(text) for text in self.episode.answers]
        legend = self._legend(task, routes)
        if self.render_mode == "rgb_array":
            return render_rgb(task, routes, legend)
        return render_ansi(task, routes, legend, colour=self.colour)

    def drawing(self, task: MazeTask, answer: str | None = None) -> dict[str, Any]:
        """Return the maze as a board, or the cells of a route on it."""
        if answer is None:
            return {"says": "Maze", "board": list(task.rows)}
        cells = [[cell % task.board.width, cell // task.board.width] for cell in cells_along(task, answer)]
        return {"says": f"route {' '.join(answer)}", "path": cells}

    def _legend(self, task: MazeTask, routes: Sequence[str | None]) -> list[str]:
        """Return the outcome and the score of each route and, if there is any, the best score that a route can have."""
        from vpo_envs.tasks.maze.render import outcome_line

        weights = self.fixed_weights(task)
        lines = []
        for route in routes:
            line = outcome_line(task, route)
            outcome = None if route is None else self.evaluate(task, route)
            if outcome is not None and self.feasible(outcome):
                line += f", score {float(weights @ self.reward_vector(outcome)):.2f}"
            lines.append(line)
        with contextlib.suppress(UnknownFront):
            lines += [f"best possible score: {self.optimum(task):.2f}"] if lines else []
        return lines

    def _route_of(self, text: str | None) -> str | None:
        try:
            return None if text is None else self.parse(text)
        except ValueError:
            return None
