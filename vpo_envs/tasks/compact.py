"""Small versions of the tasks for small models: short prompts, and specialists that a compromise beats under the mean.

Every instance has ``specialists``, each of which earns everything on one objective and nothing on the others, and a
``compromise`` that earns a share of every objective, more than a specialist does on average. So whoever sees the
mean alone keeps the compromise, while a set of specialists is worth more to everyone whose weights are not yet known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain

import numpy as np

from vpo_envs.core import OutcomeT, TaskT, Unparsable
from vpo_envs.tasks.base import TaskEnv, endless, in_random_order

Words = tuple[str, ...]


class CompactEnv(TaskEnv[TaskT, Words, OutcomeT]):
    """A text environment whose answers are a few words, and whose best answers are known by construction."""

    names_tags = False

    def parse(self, text: str) -> Words:
        """Return the words of the text."""
        words = tuple(text.split())
        if not words:
            raise Unparsable("the answer has no words")
        return words

    @abstractmethod
    def ways(self, task: TaskT) -> Sequence[Words]:
        """Return the answers that the instance was built around: the specialists and the compromise."""

    def demonstrations(self, task: TaskT, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the ways in random order, each as likely as the others, and then some with a word of another."""
        ways = [*self.ways(task)]
        words = sorted({word for way in ways for word in way})

        def slip() -> Words:
            way = [*ways[int(rng.integers(len(ways)))]]
            way[int(rng.integers(len(way)))] = words[int(rng.integers(len(words)))]
            return tuple(way)

        answers = chain(in_random_order(rng, ways), endless(slip))
        return self.different(task, map(" ".join, answers), num_answers)
