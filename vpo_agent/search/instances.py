"""An instance during a search: its task, and the answers sampled so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vpo_agent.search.records import NOT_SAMPLED, InstanceSearch
from vpo_envs import Status, Task, UnknownFront, VectorTextEnv
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]


class Instance:
    """One instance with a log of up to ``budget`` answers."""

    def __init__(self, env: Env, index: int, budget: int) -> None:
        """Make the task, and compute its optimum if the environment can."""
        self.index = index
        self.task: Task = task_of(env, index)
        self.weights = env.fixed_weights(self.task)
        self.active = env.active(self.task)
        try:
            self.optimum: float | None = env.optimum(self.task)
        except UnknownFront:
            self.optimum = None
        self.rewards = np.zeros((budget, env.reward_dim), dtype=np.float32)
        self.status = np.full(budget, NOT_SAMPLED, dtype=np.int8)
        self.tokens = np.zeros(budget, dtype=np.int64)
        self.sampled = 0
        self.best = -1.0
        self.best_answer = ""

    @property
    def room(self) -> int:
        """Return how many more answers may be sampled."""
        return len(self.status) - self.sampled

    @property
    def done(self) -> bool:
        """Return whether the budget is spent or the optimum reached."""
        return self.room == 0 or (self.optimum is not None and self.best >= self.optimum - 1e-6)

    def add(self, text: str | None, reward: np.ndarray, status: int, tokens: int) -> None:
        """Log one answer."""
        self.rewards[self.sampled], self.status[self.sampled] = reward, status
        self.tokens[self.sampled] = tokens
        self.sampled += 1
        scalar = float(reward.astype(np.float64) @ self.weights)
        if text is not None and status == Status.OK and scalar > self.best:
            self.best, self.best_answer = scalar, text

    def record(self) -> InstanceSearch:
        """Return what was found."""
        return InstanceSearch(
            self.index, self.weights, self.optimum, self.rewards, self.status, self.tokens, self.best_answer
        )


def task_of(env: Env, index: int) -> Task:
    """Return the instance ``index`` of the environment's split.

    Raises:
        ValueError: The index is negative, or beyond the rows of a data set.
    """
    rows = getattr(env, "rows", ())
    if rows and not 0 <= index < len(rows):
        raise ValueError(f"instance {index} is outside the split {env.split!r}, which has 0 to {len(rows) - 1}")
    task: Task = env.task(index)
    return task


def score(env: Env, tasks: Sequence[Task], texts: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """Score answers one by one, so that an answer that repeats another is worth the same.

    Returns:
        Reward vectors (n, d) and statuses (n,).
    """
    batch = env.score_batch(tasks, [format_answers([text], 1) for text in texts], num_answers=1)
    return batch.rewards[:, 0], batch.status[:, 0]


def check_budget(budget: int) -> None:
    """Raise a ValueError if a number of answers is below 1."""
    if budget < 1:
        raise ValueError(f"iterations must be at least 1, got {budget}: each is one answer sampled")
