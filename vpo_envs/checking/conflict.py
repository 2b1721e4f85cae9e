"""How far the objectives of an environment conflict, on sampled tasks."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv, Status, UnknownFront, VectorTextEnv
from vpo_envs.pareto import NEARLY, BestSets, best_sets, needs_a_set, non_dominated, set_utility, spread_weights
from vpo_envs.text import format_answers

DEMONSTRATIONS = 16
"""Answers per task if the front is unknown."""


class ConflictReport(NamedTuple):
    """The shape of the fronts, on average over the sampled tasks."""

    objectives: tuple[str, ...]
    num_tasks: int
    exact: bool
    """Whether the points are exact fronts; otherwise they are the best of some demonstrations."""
    correlation: NDArray[np.float64]
    """Correlation of the objectives over the points of a front, (d, d), after subtracting each front's mean; NaN if an
    objective does not vary. Below 0, what helps one objective hurts the other."""
    points: float
    """Mean number of points of a front."""
    all_ones: float
    """Share of the tasks where one answer scores 1 on every objective."""
    best_single: float
    """Expected utility of the best single answer, E_w[w·r] with w uniform on the simplex of active objectives."""
    best_set: float
    """Expected utility of the best set of three, E_w[max w·r]."""
    best_by_scalar: float
    """Expected utility of the best three among the points within 0.02 of the best scalar reward."""
    whole_front: float
    """Expected utility of the whole front."""
    needs_a_set: float
    """Share of the tasks that :func:`~vpo_envs.pareto.needs_a_set` certifies."""

    @property
    def difference(self) -> float:
        """Expected utility of the best set of three, minus the expected utility of the best single answer."""
        return self.best_set - self.best_single

    @property
    def set_gain(self) -> float:
        """Gain from a set, see :func:`vpo_envs.pareto.gains`; a ratio of means over the tasks."""
        return self.best.set_gain

    @property
    def vector_gain(self) -> float:
        """Gain from the vector; a ratio of means over the tasks."""
        return self.best.vector_gain

    @property
    def best(self) -> BestSets:
        """Expected utilities of the best small sets."""
        return BestSets(self.best_single, self.best_set, self.best_by_scalar)

    @property
    def headline(self) -> str:
        """The report without the correlations."""
        kind = "exact fronts" if self.exact else "fronts of demonstrations, since exact ones are unknown,"
        return (
            f"{counted(self.num_tasks, 'task')}; {kind} have {self.points:.1f} points on average; "
            f"{self.all_ones:.0%} of the tasks have an answer that earns 1 on every objective\n"
            f"expected utility: best answer {self.best_single:.3f}, best three answers {self.best_set:.3f} "
            f"(+{self.difference:.3f}), whole front {self.whole_front:.3f}; "
            f"{self.needs_a_set:.0%} of the tasks need a set\n"
            f"gain from a set {self.set_gain:.2f}: best three answers / best answer\n"
            f"gain from the vector {self.vector_gain:.2f}: best three answers / best three within {NEARLY} of the best "
            "scalar reward"
        )

    def __str__(self) -> str:
        width = max(map(len, self.objectives))
        lines = [self.headline, "correlation over the points of a front:"]
        for name, row in zip(self.objectives, self.correlation, strict=True):
            lines.append(f"  {name:<{width}}  " + " ".join("    –" if np.isnan(x) else f"{x:+.2f}" for x in row))
        return "\n".join(lines)


def objective_conflict(env: gym.Env[Any, Any], num_tasks: int = 32) -> ConflictReport:
    """Measure how far the objectives conflict on the first ``num_tasks`` tasks of the environment's split.

    Args:
        env: A text environment, or wrappers around one.
        num_tasks: Number of tasks.

    Raises:
        TypeError: Not a text environment.
        ValueError: ``num_tasks`` below 1.
        UnknownFront: The environment has neither exact fronts nor demonstrations.
    """
    text_env = checked_text_env("objective_conflict", env, num_tasks)
    exact = True
    shapes: list[tuple[float, ...]] = []
    deviations: list[NDArray[np.float64]] = []
    for index in range(num_tasks):
        task = text_env.task(index)
        try:
            vectors = np.array([point.vector for point in text_env.front(task)], dtype=np.float64)
        except UnknownFront as error:
            exact = False
            vectors = _demonstrated(text_env, task, index, error)
        active = text_env.active(task)
        points, weights = vectors[:, active], text_env.fixed_weights(task)[active]
        full_marks = bool((points == 1.0).all(axis=1).any())
        whole = set_utility(points, spread_weights(points.shape[1]))
        # The fields of the report from ``points`` on.
        shapes.append((len(points), full_marks, *best_sets(points, weights), whole, needs_a_set(points)))
        deviations.append(np.where(active, vectors - vectors.mean(axis=0), np.nan))
    correlation = _correlation(np.concatenate(deviations))
    means = np.array(shapes, dtype=np.float64).mean(axis=0).tolist()
    return ConflictReport(text_env.objective_names, num_tasks, exact, correlation, *means)


def checked_text_env(caller: str, env: gym.Env[Any, Any], num_tasks: int) -> AnyEnv:
    """Return the text environment inside wrappers, after checking the arguments of ``caller``."""
    text_env = env.unwrapped
    if not isinstance(text_env, VectorTextEnv):
        raise TypeError(f"{caller} needs a text environment, got {type(text_env).__name__}")
    if num_tasks < 1:
        raise ValueError(f"num_tasks must be at least 1, got {num_tasks}")
    return text_env


def _demonstrated(env: AnyEnv, task: Any, index: int, unknown: UnknownFront) -> NDArray[np.float64]:
    """Return the best vectors among some demonstrations, shape (n, d), n at least 1."""
    try:
        answers = env.demonstrations(task, np.random.default_rng(index), DEMONSTRATIONS)
    except NotImplementedError:
        raise UnknownFront(f"{unknown}; and there are no demonstrations to use instead") from None
    batch = env.score_batch([task], [format_answers(answers)], len(answers))
    vectors = batch.rewards[0][batch.status[0] == Status.OK].astype(np.float64)
    if len(vectors) == 0:
        return np.zeros((1, env.reward_dim))
    return np.asarray(vectors[non_dominated(vectors)])


def _correlation(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlation of columns (n, d) with mean zero, over the rows where both are present."""
    present = ~np.isnan(deviations)
    values = np.where(present, deviations, 0.0)
    squares = (values**2).T @ present
    scale = np.sqrt(squares * squares.T)
    return np.asarray(np.divide(values.T @ values, scale, out=np.full_like(scale, np.nan), where=scale > 1e-12))
