"""``vpo/MazeSteps-v0``: the maze one move at a time, for multi-objective reinforcement learning without text."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_envs.contract.arguments import check_whole, refuse_arguments
from vpo_envs.contract.streams import MAX_STREAM
from vpo_envs.core import Split, UnknownFront
from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.maze.env import MazeEnv
from vpo_envs.tasks.maze.routes import MazeOutcome, cells_along
from vpo_envs.tasks.maze.task import BONUS, DIAMOND, EXIT, GOLD, LAVA, MOVES, WALL, MazeTask

RewardTiming = Literal["exit", "collected"]

THINGS = (GOLD, DIAMOND, LAVA, BONUS)
PLANES = (
    "agent",
    "wall",
    "exit",
    *(f"{thing}_{state}" for thing in ("gold", "diamond", "lava", "bonus") for state in ("ahead", "visited")),
    "steps_left",
    "share_left",
)
"""Names of the planes of an observation, in order."""


class MazeStepsEnv(gym.Env[NDArray[np.float32], np.int64]):
    """Walk through the maze of ``vpo/Maze-v0`` one move at a time.

    ## Description

    The same mazes, rules and objectives as in ``MazeEnv``, where an answer is a whole route. Here the route is built
    move by move, and the undiscounted return of an episode is the reward vector of its route.

    ## Action space

    ``Discrete(4)``: 0 up, 1 down, 2 left, 3 right. A move into a wall or over the edge ends the walk; in mazes of the
    preset ``"paper"`` the agent stays in place, and a step is used.

    ## Observation space

    ``Box(0, 1, (13, size, size), float32)``: planes over the cells of the grid, rows from the top.

    | plane | meaning |
    |---|---|
    | 0 | 1 where the agent stands |
    | 1 | 1 on walls |
    | 2 | 1 on the exit |
    | 3, 4 | 1 on gold not yet collected; 1 on gold collected |
    | 5, 6 | the same for diamonds |
    | 7, 8 | 1 on lava not yet stepped on; 1 on lava stepped on |
    | 9, 10 | 1 on the bonus tile not yet visited; 1 on it once visited |
    | 11 | everywhere the number of steps left divided by the number of cells, at most 1 |
    | 12 | everywhere the share of the step budget that is left |

    Rewards and episode end depend on nothing else, so the process is Markov (except for the exact number of steps left
    while it exceeds the number of cells).

    ## Rewards

    Vectors (d,) of float32, with the objectives of ``MazeEnv``. Only a route that reaches E within the budget has a
    return above zero.

    | ``reward_timing`` | on the way | at E | at the end of the budget |
    |---|---|---|---|
    | ``"exit"`` | zeros | the vector of the route | zeros |
    | ``"collected"`` | each gain or loss when it happens | the rest of the vector | minus all that was earned |

    A gain is an item picked up; a loss is lava entered or, with three lanes, a step more than a shortest route has.
    The undiscounted return is the same in both, and ``pareto_front()`` its exact front. ``pareto_front(gamma)`` is the
    one in discounted returns, as in MO-Gymnasium, for rewards at the exit.

    ## Starting state

    The agent on S of maze ``index``, or of a random one of the split. ``reset(options={"index": i})`` and
    ``options={"task": task}`` name another for one episode.

    ## Episode end

    ``terminated`` on E, at a move that ends the walk, and when the step budget is used up. The budget is a rule of the
    maze and part of the observation, so exhausting it is a true end without further reward, and not a truncation after
    which a learner would have to bootstrap. ``truncated`` is never set.

    ## Information

    After ``reset``: ``objectives``, ``active_objectives``, ``split``, ``index`` and ``task``. After ``step``:
    ``objectives``, ``active_objectives`` and ``outcome``, the facts about the route so far.

    Args:
        preset: ``"conflict"`` (default), ``"paper"`` or ``"compact"``, as for ``MazeEnv``.
        difficulty: Knobs that replace the preset's, by name.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        data_seed: Which stream of mazes; the i-th maze is that of ``MazeEnv`` with the same arguments.
        index: The maze of every episode; a random one each time if ``None``.
        reward_timing: ``"exit"`` or ``"collected"``.
        render_mode: ``"ansi"`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's form
    maze_type: ClassVar[type[MazeEnv]] = MazeEnv
    """The environment that defines the rules and objectives; a subclass may name another."""

    def __init__(
        self,
        *,
        preset: str | None = None,
        difficulty: dict[str, Any] | None = None,
        split: Split = "train",
        data_seed: int = 0,
        index: int | None = None,
        reward_timing: RewardTiming = "exit",
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_arguments(type(self), unknown)
        if index is not None:
            check_whole("index", index, 0, MAX_STREAM)
        if reward_timing not in (timings := get_args(RewardTiming)):
            raise ValueError(f"unknown reward_timing {reward_timing!r}: choose one of {', '.join(timings)}")
        self.maze = self.maze_type(
            preset=preset,
            difficulty=difficulty,
            split=split,
            data_seed=data_seed,
            render_mode=render_mode,
        )
        self.index = index
        self.reward_timing: RewardTiming = reward_timing
        self.render_mode = render_mode
        size = self.maze.config.size
        self.observation_space = gym.spaces.Box(0.0, 1.0, (len(PLANES), size, size), np.float32)
        self.action_space = gym.spaces.Discrete(len(MOVES))
        low, high = (0.0, 1.0) if reward_timing == "exit" else (-1.0, 2.0)
        self.reward_space = gym.spaces.Box(low, high, (self.reward_dim,), np.float32)
        self._task: MazeTask | None = None
        self._layout: NDArray[np.float32] = np.zeros(self.observation_space.shape, dtype=np.float32)
        self._route = ""
        self._over = False
        self._standing = self._at_start = np.zeros(self.reward_dim)

    @property
    def reward_dim(self) -> int:
        """Number of objectives, d."""
        return self.maze.reward_dim

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; the arguments and ``info`` are as in ``MazeEnv``.

        Raises:
            ValueError: An unknown option, or a task of another size than the observation space has.
        """
        super().reset(seed=seed)
        self.maze.np_random = self.np_random
        fixed = None if self.index is None else {"index": self.index}
        _, info = self.maze.reset(options=options or fixed)
        task = self.maze.current_task
        if task.size != self.maze.config.size:
            raise ValueError(
                f"this environment observes mazes of size {self.maze.config.size}, got one of size {task.size}: "
                f"make it with difficulty={{'size': {task.size}}}"
            )
        self._task, self._route, self._over = task, "", False
        self._layout = _layout(task)
        self._standing = self._at_start = self._scores(self.maze.evaluate(task, ""))
        return self._observation(task), info

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], bool, bool, dict[str, Any]]:
        """Take one move.

        Args:
            action: 0 up, 1 down, 2 left, 3 right.

        Returns:
            Observation, reward (d,) float32, terminated, truncated and ``info``.

        Raises:
            ValueError: The action is none of the four.
            ResetNeeded: The episode is over, or none has begun.
        """
        task = self._current()
        if self._over:
            raise gym.error.ResetNeeded("this episode is over: call reset() before the next step()")
        if not self.action_space.contains(action):
            raise ValueError(f"a move is 0 up, 1 down, 2 left or 3 right, got {action!r}")
        self._route += MOVES[action]
        outcome = self.maze.evaluate(task, self._route)
        ended = task.blocked == "ends" and _is_blocked(cells_along(task, self._route))
        self._over = outcome.reached_exit or ended or outcome.steps >= task.budget
        paid = np.array(self.maze.reward_vector(outcome)) if self._over else np.zeros(self.reward_dim)
        if self.reward_timing == "collected":
            before, self._standing = self._standing, self._scores(outcome)
            paid += (self._at_start if self._over else self._standing) - before
        info = {
            "objectives": self.maze.objective_names,
            "active_objectives": self.maze.active(task),
            "outcome": self.maze.outcome_info(outcome),
        }
        return self._observation(task), paid.astype(np.float32), self._over, False, info

    def pareto_front(self, gamma: float = 1.0, *, task: MazeTask | None = None) -> list[NDArray[np.float32]]:
        """Return the exact Pareto front of a maze in discounted returns.

        A route of n steps is paid in its last one, which discounts its vector by gamma^(n − 1).

        Args:
            gamma: Discount in [0, 1].
            task: The maze; the current one if ``None``.

        Returns:
            Vectors of shape (d,).

        Raises:
            UnknownFront: The maze is too large, a subclass has objectives that the solver does not cover, or gamma is
                below 1 and rewards come as things are collected.
            ValueError: gamma is out of range.
        """
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
        if gamma < 1.0 and self.reward_timing == "collected":
            raise UnknownFront(
                'the front in discounted returns is known for reward_timing="exit" only: use that, or gamma=1'
            )
        task = self._current() if task is None else task
        self.maze.check_solver(task)
        # The solver keeps the shortest route of every outcome of the front, and a shorter route is discounted less.
        returns = [
            gamma ** (outcome.steps - 1) * np.array(self.maze.reward_vector(outcome))
            for outcome, _ in self.maze.outcome_front(task)
        ]
        keep = non_dominated(np.array(returns))
        return [vector.astype(np.float32) for vector, kept in zip(returns, keep, strict=True) if kept]

    def render(self) -> Any:
        """Return the maze and the route so far: text, or a picture (height, width, 3) of uint8."""
        from vpo_envs.tasks.maze.render import render_ansi, render_rgb

        if self.render_mode is None:
            return None
        task = self._current()
        return (render_ansi if self.render_mode == "ansi" else render_rgb)(task, [self._route] if self._route else [])

    def _scores(self, outcome: MazeOutcome) -> NDArray[np.float64]:
        """Return what each objective says about a route so far, whether or not it ends at the exit."""
        # A route that has not used the fewest steps yet would have saved more than all of them.
        return np.clip([objective.score(outcome) for objective in self.maze.objectives], 0.0, 1.0)

    def _current(self) -> MazeTask:
        if self._task is None:
            raise gym.error.ResetNeeded("call reset() first: there is no current maze")
        return self._task

    def _observation(self, task: MazeTask) -> NDArray[np.float32]:
        planes = self._layout.copy()
        rows, columns = np.divmod(cells_along(task, self._route), task.board.width)
        first, last = PLANES.index("gold_ahead"), PLANES.index("steps_left")
        ahead, visited = planes[first:last:2], planes[first + 1 : last : 2]
        visited[:, rows, columns] = ahead[:, rows, columns]
        ahead[:, rows, columns] = 0.0
        planes[PLANES.index("agent"), rows[-1], columns[-1]] = 1.0
        left = task.budget - len(self._route)
        planes[PLANES.index("steps_left")] = min(1.0, left / task.size**2)
        planes[PLANES.index("share_left")] = left / task.budget
        return planes


def _is_blocked(cells: list[int]) -> bool:
    """Return whether the last move of a walk led nowhere."""
    return cells[-1] == cells[-2]


def _layout(task: MazeTask) -> NDArray[np.float32]:
    """Return the planes of a maze before anything is visited; most of them never change."""
    planes = np.zeros((len(PLANES), task.size, task.size), dtype=np.float32)
    symbols = np.array([list(row) for row in task.rows])
    planes[PLANES.index("wall")] = symbols == WALL
    planes[PLANES.index("exit")] = symbols == EXIT
    for number, symbol in enumerate(THINGS):
        planes[PLANES.index("gold_ahead") + 2 * number] = symbols == symbol
    return planes
