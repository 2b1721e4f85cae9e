"""A task during a search, with the answers sampled so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vpo_agent.search.records import NOT_SAMPLED, TaskSearch
from vpo_agent.search.settings import SearchMeasure, Settings, weightings
from vpo_agent.search.variation import Answer
from vpo_envs import Status, Task, UnknownFront
from vpo_envs.core import AnyEnv, check_never_replies
from vpo_envs.pareto import set_utility
from vpo_envs.text import format_answers


class Archive:
    """The answers to a task that may become parents: one for each reward vector reached.

    A parent is the best answer under weights drawn for each child. For the utility they are uniform on the simplex. For
    the scalar reward they are the task's fixed weights half of the time, else uniform: the search climbs the scalar
    reward and keeps stepping stones along the front. A newer answer replaces one with the same vector, which lets the
    search drift across plateaus.
    """

    def __init__(self, weights: NDArray[np.float64], active: NDArray[np.bool_], measure: SearchMeasure) -> None:
        self._weights = weights
        self._active = active
        self._measure = measure
        self._answers: dict[tuple[float, ...], Answer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Answer, reward: NDArray[np.float32]) -> None:
        """Add an answer."""
        self._answers[tuple(float(value) for value in np.round(reward, 6))] = answer

    def parent(self, rng: np.random.Generator) -> Answer:
        """Draw a parent."""
        weights = self._weights
        if self._measure == "utility" or rng.random() < 0.5:
            draws = rng.exponential(size=len(weights)) * self._active
            weights = draws / draws.sum()
        vectors = np.array(list(self._answers))
        values = vectors @ weights
        best = np.flatnonzero(values >= values.max() - 1e-9)
        chosen = vectors[int(rng.choice(best))]
        return self._answers[tuple(chosen.tolist())]


class SearchedTask:
    """A task with a log of its answers, and the score of its exact front if that is known.

    The log has room for the budget of answers or, with a budget of tokens, for the answers that end within it.
    """

    def __init__(self, env: AnyEnv, index: int, settings: Settings) -> None:
        self.index = index
        self.measure = measure = settings.measure
        self.task: Task = task_of(env, index)
        self.weights = env.fixed_weights(self.task)
        self.active = env.active(self.task)
        self.weightings = weightings(measure, self.weights, self.active)
        """The weightings under which answers are scored, (K, d)."""
        self.reached = np.zeros(len(self.weightings))
        """The best w·r so far for each weighting, (K,)."""
        try:
            front = np.array([point.vector for point in env.front(self.task)], dtype=np.float64)
            self.optimum: float | None = set_utility(front, self.weightings)
        except UnknownFront:
            self.optimum = None
        self._budget, self._token_budget = settings.iterations, settings.tokens
        self._log: list[tuple[NDArray[np.float32], int, int]] = []
        """Reward vector, status and tokens of each answer."""
        self.spent = 0
        """Tokens sampled."""
        self.best = -1.0
        self.best_answer = ""
        self.archive = Archive(self.weights, self.active, measure)

    @property
    def sampled(self) -> int:
        """Return the number of answers sampled."""
        return len(self._log)

    @property
    def tokens_left(self) -> int | None:
        """Return how many more tokens may be sampled; ``None`` if the budget is one of answers."""
        return None if self._token_budget is None else self._token_budget - self.spent

    @property
    def room(self) -> int:
        """Return how many more answers may be sampled, at most: each has at least one token."""
        return self._budget - self.sampled if self.tokens_left is None else self.tokens_left

    @property
    def done(self) -> bool:
        """Return whether the budget is spent or the optimum reached."""
        return self.room == 0 or (self.optimum is not None and self.reached.mean() >= self.optimum - 1e-6)

    def add(self, answer: Answer | None, reward: NDArray[np.float32], status: int, tokens: int) -> None:
        """Log one answer; one that ends beyond the token budget counts as missing, one that begins beyond it is left
        out."""
        if not self.room:
            return
        if self.tokens_left is not None and tokens > self.tokens_left:
            answer, reward, status, tokens = None, np.zeros_like(reward), Status.MISSING, self.tokens_left
        self._log.append((reward, status, tokens))
        self.spent += tokens
        if answer is not None and status == Status.OK:
            vector = reward.astype(np.float64)
            self.reached = np.maximum(self.reached, self.weightings @ vector)
            scalar = float(vector @ self.weights)
            self.archive.add(answer, reward)
            if scalar > self.best:
                self.best, self.best_answer = scalar, answer.text

    def record(self) -> TaskSearch:
        """Return what was found; a budget of answers that is not used up is filled with ``NOT_SAMPLED``."""
        unused = 0 if self._token_budget is not None else self.room
        rewards = np.array([reward for reward, _, _ in self._log], dtype=np.float32)
        statuses = [status for _, status, _ in self._log]
        tokens = np.array([cost for _, _, cost in self._log], dtype=np.int64)
        return TaskSearch(
            index=self.index,
            measure=self.measure,
            weights=self.weights,
            active=self.active,
            optimum=self.optimum,
            rewards=np.pad(rewards, ((0, unused), (0, 0))),
            status=np.array([*statuses, *[NOT_SAMPLED] * unused], dtype=np.int8),
            tokens=np.pad(tokens, (0, unused)),
            best_answer=self.best_answer,
        )


def check_searchable(env: AnyEnv, name: str) -> None:
    """Raise a ValueError if an environment replies, since a search samples the rest of a response in one piece."""
    check_never_replies(env, name, "a search", "compare sets of answers with vpo eval and --k")


def task_of(env: AnyEnv, index: int) -> Task:
    """Return the task ``index`` of the split; raise a ValueError if it is beyond the rows of a data set."""
    rows = getattr(env, "rows", ())
    if rows and not 0 <= index < len(rows):
        raise ValueError(f"task {index} is outside the split {env.split!r}, which has tasks 0 to {len(rows) - 1}")
    task: Task = env.task(index)
    return task


def log_answers(
    env: AnyEnv,
    searched: Sequence[SearchedTask],
    rows: Sequence[int],
    answers: Sequence[Answer | None],
    costs: Sequence[int],
) -> None:
    """Score answers one by one, so that an answer that repeats another earns the same, and log each with its task.

    ``rows`` are the numbers of their tasks, ``costs`` their tokens.
    """
    responses = [format_answers([None if answer is None else answer.text], 1) for answer in answers]
    batch = env.score_batch([searched[row].task for row in rows], responses, num_answers=1)
    for number, (row, answer, cost) in enumerate(zip(rows, answers, costs, strict=True)):
        searched[row].add(answer, batch.rewards[number, 0], int(batch.status[number, 0]), cost)
