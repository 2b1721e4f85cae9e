"""What an audit scores: an environment, or plain reward functions, behind one interface."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_envs.checking.checks import Subject, demonstrations_of
from vpo_envs.core import Status, UnknownFront
from vpo_envs.text import format_answers

Floats = NDArray[np.float64]
GOOD = 2
"""Good answers to each prompt, at most."""


class Case(NamedTuple):
    """A prompt and what is known about it."""

    prompt: str
    good: tuple[str, ...]
    """Answers that should score well; there may be none."""
    weights: Floats
    """Weights of the objectives in the scalar reward, (d,), summing to 1."""
    optimum: float | None
    """Best scalar reward, if an exact front states it."""


class Rewards(ABC):
    """Reward vectors of responses to some prompts; the time that they take is added up."""

    names: tuple[str, ...]
    bounds: tuple[float, float]
    """The lowest and highest score that each objective may have."""
    cases: Sequence[Case]

    def __init__(self) -> None:
        self.seconds, self.scored = 0.0, 0
        self.seen: list[Floats] = []
        """The vectors of all valid answers so far."""
        self.errors: dict[str, str] = {}
        """How scorers failed, by name; the first time of each."""

    def score(self, cases: Sequence[int], responses: Sequence[str]) -> Floats:
        """Return the vectors (n, d) of responses to the cases with these indices.

        NaN stands for an objective that is not scored, because it is inactive or fails.
        """
        start = time.perf_counter()
        vectors, valid = self._score(cases, responses)
        self.seconds += time.perf_counter() - start
        self.scored += len(responses)
        self.seen.append(vectors[valid])
        return vectors

    @abstractmethod
    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors, as :meth:`score`, and which of them are of valid answers, (n,)."""

    @abstractmethod
    def respond(self, answer: str) -> str:
        """Return a response that holds an answer."""


class EnvRewards(Rewards):
    """The rewards of a text environment on its first tasks."""

    bounds = (0.0, 1.0)

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._env = subject.env
        self._tasks = subject.tasks
        self.names = self._env.objective_names
        self.cases = [self._case(index, task) for index, task in enumerate(self._tasks)]

    def _case(self, index: int, task: Any) -> Case:
        try:
            front = self._env.front(task)
            optimum = self._env.optimum(task)
        except UnknownFront:
            front, optimum = [], None
        # A front follows the objectives, whatever their sign; demonstrations are good by themselves.
        good = demonstrations_of(self._env, task, index, GOOD) or [point.answer for point in front]
        chosen = random.Random(index).sample(good, min(GOOD, len(good)))
        return Case(self._env.prompt(task, 1), tuple(chosen), self._env.fixed_weights(task), optimum)

    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        tasks = [self._tasks[case] for case in cases]
        rewards, statuses = self._env.score_batch(tasks, responses, 1)
        active = np.array([self._env.active(task) for task in tasks], dtype=bool).reshape(-1, len(self.names))
        scored = active & (statuses != Status.INVALID)
        return np.where(scored, rewards[:, 0].astype(np.float64), np.nan), statuses[:, 0] == Status.OK

    def respond(self, answer: str) -> str:
        """Return the answer in its tag."""
        return format_answers([answer])
