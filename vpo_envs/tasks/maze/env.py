"""``vpo/Maze-v0``: routes through a maze, one response an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vpo_envs.core import Split, UnknownFront, VectorTextEnv
from vpo_envs.tasks.maze.demonstrations import random_routes
from vpo_envs.tasks.maze.front import outcome_front
from vpo_envs.tasks.maze.generator import PRESETS, MazeConfig, draw_maze
from vpo_envs.tasks.maze.scoring import ALIGNED, CONVEX_BONUS, LINEAR, MazeOutcome, falling_objective, until_exit, walk
from vpo_envs.tasks.maze.task import MazeTask
from vpo_envs.tasks.maze.text import compact_prompt, full_prompt, read_route, write_compact_route, write_route

RewardShape = Literal["linear", "convex_bonus", "aligned"]
PromptStyle = Literal["full", "compact"]


class MazeEnv(VectorTextEnv[MazeTask, str, MazeOutcome]):
    """Find routes through a maze that make different trade-offs between gold, diamonds and lava.

    ## Description

    A square grid has a start S and an exit E on opposite corners, gold G about one of the other corners, diamonds D
    about the last one, and lava L. The step budget is too short to visit both corners, so a route must choose, and the
    best set of answers holds routes that choose differently. The geometry is that of Vector Policy Optimization
    (arXiv 2605.22817).

    ## Action space

    Text: ``num_answers`` routes, each in its tag (``<answer_1>UP, RIGHT</answer_1>`` and so on; ``<answer>`` where one
    answer is wanted). Moves are UP, DOWN, LEFT, RIGHT or their first letters, apart by blanks or commas.

    ## Observation space

    Text: the prompt. ``prompt_style="full"`` explains the rules, ``"compact"`` is one word per cell.

    ## Rewards

    Four objectives, each in [0, 1], all zero unless E is reached within the budget:

    0. ``completion``: 1 at the exit.
    1. ``gold``: the share of the gold collected.
    2. ``diamond``: the share of the diamonds collected.
    3. ``avoid_lava``: the share of the lava cells not stepped on.

    With ``reward_shape="convex_bonus"`` the shares of gold and diamonds are squared, and worth half as much again (at
    most 1) for a route over the bonus tile B. ``reward_shape="aligned"`` is a control without conflict: each objective
    is 0.9 times the mean of the linear four and 0.1 times itself, so that their mean stays what it is. With
    ``num_answers`` > 1 the reward is the sum of the answers' vectors. ``pareto_front()`` is exact, for a subclass with
    other objectives too, as long as none of them falls when a route collects more, enters less lava or is shorter.

    ## Starting state

    A random maze of the split, or the one that ``reset(options={"index": i})`` or ``options={"task": task}`` names.

    ## Episode end

    After the one response, or after ``num_answers`` steps with ``answers_as_steps=True``. The walk inside stops at E;
    a blocked move stays put and costs a step.

    ## Information

    ``info["reward_matrix"]`` (m, d), ``status`` per answer, ``outcomes`` (steps, items, lava) per answer.

    ## Version history

    * v0: first version.

    Args:
        preset: ``"paper"`` (9×9, as in the paper), ``"conflict"`` (7×7, certified to need three routes) or
            ``"embedded"`` (the bundled tiny model's).
        reward_shape: ``"linear"``, ``"convex_bonus"`` or ``"aligned"``.
        prompt_style: ``"full"`` or ``"compact"``.
        difficulty: Knobs that replace the preset's, by name; see ``vpo_envs.tasks.maze.generator.MazeConfig``.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        num_answers: Routes per response.
        answers_as_steps: One route a step.
        data_seed: Which stream of mazes.
        render_mode: ``"ansi"`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's form
    task_type = MazeTask
    namespace = 1
    objectives = LINEAR

    def __init__(
        self,
        *,
        preset: str = "paper",
        reward_shape: RewardShape = "linear",
        prompt_style: PromptStyle = "full",
        difficulty: dict[str, Any] | None = None,
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if reward_shape not in get_args(RewardShape):
            raise ValueError(f"unknown reward_shape {reward_shape!r}: choose one of {', '.join(get_args(RewardShape))}")
        if prompt_style not in get_args(PromptStyle):
            raise ValueError(f"unknown prompt_style {prompt_style!r}: choose one of {', '.join(get_args(PromptStyle))}")
        self.config = maze_config(preset, difficulty)
        self.prompt_style = prompt_style
        self.names_tags = prompt_style == "full"
        if reward_shape != "linear":
            if type(self).objectives is not MazeEnv.objectives:
                raise ValueError(f"{type(self).__name__} states its own objectives: reward_shape must be 'linear'")
            self.objectives = CONVEX_BONUS if reward_shape == "convex_bonus" else ALIGNED
        super().__init__(
            split=split,
            num_answers=num_answers,
            answers_as_steps=answers_as_steps,
            data_seed=data_seed,
            render_mode=render_mode,
        )

    def generate(self, rng: np.random.Generator) -> MazeTask:
        """Draw a maze of this split."""
        return draw_maze(rng, self.config, self.split)

    def prompt(self, task: MazeTask, num_answers: int) -> str:
        """The maze and what is wanted, in the environment's prompt style."""
        return (full_prompt if self.prompt_style == "full" else compact_prompt)(task, num_answers)

    def condition(self, prompt: str, weights: NDArray[np.floating], active: NDArray[np.bool_] | None = None) -> str:
        """State the weights; in the compact style as numbers from 1 to 64, which the tiny model's tokenizer knows."""
        if self.prompt_style == "full":
            return super().condition(prompt, weights, active)
        return "\n".join([" ".join(["weights", *(str(1 + round(63 * float(w))) for w in weights)]), prompt])

    def parse(self, text: str) -> str:
        """Read a route over ``UDLR``."""
        return read_route(text)

    def canonical(self, task: MazeTask, answer: str) -> str:
        """Return the route up to the exit, where the walk ends."""
        return until_exit(task, answer)

    def evaluate(self, task: MazeTask, answer: str) -> MazeOutcome:
        """Walk the route."""
        return walk(task, answer)

    def feasible(self, outcome: MazeOutcome) -> bool:
        """Only a route that reaches the exit earns anything."""
        return outcome.reached_exit

    def outcome_front(self, task: MazeTask) -> Sequence[tuple[MazeOutcome, str]]:
        """Every outcome that no other route beats in items, lava and steps, each with a route.

        Raises:
            UnknownFront: An objective falls when a route does better in one of these facts, or the subclass changes
                which outcomes there are, so that the maze's solver does not give its front; or the maze is too large.
        """
        own = type(self)
        if own.evaluate is not MazeEnv.evaluate or own.feasible is not MazeEnv.feasible:
            raise UnknownFront(
                f"{own.__name__} overrides evaluate or feasible, so the maze's solver does not give its front: "
                "override outcome_front as well"
            )
        board = task.board
        falling = falling_objective(
            self.objectives,
            task.budget,
            board.gold_count,
            board.diamond_count,
            board.lava_count,
            board.bonus != 0,
        )
        if falling is not None:
            raise UnknownFront(
                f"objective {falling!r} of {own.__name__} is not monotone in items, lava and steps, "
                "so the maze's solver does not give its front: override outcome_front"
            )
        return [(outcome, self.write_answer(task, route)) for outcome, route in outcome_front(task)]

    def demonstrations(self, task: MazeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Routes through random waypoints."""
        return [self.write_answer(task, route) for route in random_routes(task, rng, num_answers)]

    def write_answer(self, task: MazeTask, route: str) -> str:
        """A route as the prompt style asks for it."""
        return write_route(route) if self.prompt_style == "full" else write_compact_route(task, route)

    def render(self) -> Any:
        """The maze with the routes of the last response: text, or a picture (height, width, 3) of uint8."""
        from vpo_envs.tasks.maze.render import render_ansi, render_rgb

        if self.render_mode is None:
            return None
        task = self.current_task
        routes = [self._route_of(text) for text in self._answers]
        return render_ansi(task, routes) if self.render_mode == "ansi" else render_rgb(task, routes)

    def _route_of(self, text: str | None) -> str | None:
        try:
            return None if text is None else self.parse(text)
        except ValueError:
            return None


def maze_config(preset: str, difficulty: dict[str, Any] | None) -> MazeConfig:
    """The preset's configuration with some knobs replaced.

    Raises:
        ValueError: Unknown preset or knob, or a value out of range.
    """
    if preset not in PRESETS:
        raise ValueError(f"unknown maze preset {preset!r}: choose one of {', '.join(PRESETS)}")
    try:
        return MazeConfig.model_validate({**PRESETS[preset].model_dump(), **(difficulty or {})})
    except ValidationError as error:
        first = error.errors()[0]
        knob = ".".join(str(part) for part in first["loc"]) or "difficulty"
        known = ", ".join(MazeConfig.model_fields)
        raise ValueError(f"maze difficulty {knob}={first['input']!r}: {first['msg']}; the knobs are {known}") from None
