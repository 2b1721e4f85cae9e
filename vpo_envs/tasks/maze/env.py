"""``vpo/Maze-v0``: routes through a maze."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

import numpy as np

from vpo_envs.core import UnknownFront
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv, endless
from vpo_envs.tasks.maze.front import outcome_front
from vpo_envs.tasks.maze.generate import PRESETS, draw_maze
from vpo_envs.tasks.maze.routes import (
    OBJECTIVES,
    MazeOutcome,
    cells_along,
    fact_grid,
    full_prompt,
    random_routes,
    read_route,
    walk,
    write_route,
)
from vpo_envs.tasks.maze.task import MazeTask


class MazeEnv(TaskEnv[MazeTask, str, MazeOutcome]):
    """Find routes through a maze that make different trade-offs between gold, diamonds and lava.

    ## Description

    A square grid has a start S and an exit E on opposite corners, gold G around one of the other corners, diamonds D
    around the last one, and lava L. The step budget is too short to visit both corners, so a route must choose, and the
    best set of answers contains routes that choose differently. The geometry is that of Vector Policy Optimization
    (arXiv 2605.22817).

    ## Action space

    Text: ``num_answers`` routes, each in its tag (``<answer_1>UP, RIGHT</answer_1>`` and so on; ``<answer>`` where one
    answer is wanted). Moves are UP, DOWN, LEFT, RIGHT or their first letters, separated by blanks or commas. A move
    into a wall or over the edge ends the walk; with ``"paper"`` you stay in place, and a step is used. Moves after the
    exit are not part of a route: routes that differ only there are duplicates.

    ## Rewards

    Four objectives, each in [0, 1], all zero unless E is reached within the budget:

    0. ``completion``: 1 at the exit.
    1. ``gold``: the share of the gold collected.
    2. ``diamond``: the share of the diamonds collected.
    3. ``avoid_lava``: the share of the lava cells not stepped on.

    ``pareto_front()`` is exact, and also for a subclass whose objectives never fall when a route collects more, enters
    less lava or is shorter.

    Args:
        preset: ``"conflict"`` (default: 7×7, certified to need three routes), ``"paper"`` (9×9, as in the paper) or
            ``"compact"`` (7×7 with three lanes, for a tiny model), a class of its own:
            ``vpo_envs.MazeCompactEnv``.
        difficulty: Knobs that replace the preset's, by name; see ``vpo_envs.tasks.maze.generate.MazeConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`; ``render_mode`` may be ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's form
    task_type = MazeTask
    draw_advice = "allow more slack, fewer items or more openings"
    namespace = 1
    # That of a class which has one of the presets.
    harmless_arguments = TaskEnv.harmless_arguments | {"reward_shape"}
    presets = MappingProxyType({**PRESETS, "compact": "vpo_envs.tasks.maze.compact:MazeCompactEnv"})
    objectives = monotone_objectives = OBJECTIVES

    def draw(self, source: random.Random) -> MazeTask | None:
        """Draw a maze, of this split if it is complete."""
        return draw_maze(source, self.config, self.split)

    def prompt(self, task: MazeTask, num_answers: int) -> str:
        """Return the rules, the maze and the tags to fill in."""
        return full_prompt(task, num_answers)

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
        """Return routes through random waypoints, then prefixes of these routes."""
        routes = chain.from_iterable(endless(partial(random_routes, task, rng, num_answers)))
        return self._different_routes(task, rng, routes, num_answers)

    def _different_routes(
        self, task: MazeTask, rng: np.random.Generator, routes: Iterator[str], count: int
    ) -> list[str]:
        """Return ``count`` different routes; if there are too few, prefixes of them follow."""
        whole = [*islice(routes, 4 * count)]

        def beginning() -> str:
            route = whole[int(rng.integers(len(whole)))]
            return route[: int(rng.integers(1, len(route) + 1))]

        answers = (self.write_answer(task, route) for route in chain(whole, endless(beginning)))
        return self.different(task, answers, count)

    def write_answer(self, task: MazeTask, route: str) -> str:
        """Return a route in the form that the prompt asks for."""
        return write_route(route)

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
