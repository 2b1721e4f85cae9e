"""Small versions of the tasks for small models: short prompts, and specialists below a compromise in scalar reward.

Every task has ``specialists``, each of which earns 1 on one objective and 0 on the others. It also has a
``compromise``, which earns a part of every objective and has a higher scalar reward than a specialist. A method that
sees the scalar reward alone therefore keeps the compromise. A set of specialists scores more for users whose weighting
is not yet known.
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
        """Return the answers that the task was built around: the specialists and the compromise."""

    def demonstrations(self, task: TaskT, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the ways in random order, each as likely as the others, then ways with a word of another way."""
        ways = [*self.ways(task)]
        words = sorted({word for way in ways for word in way})

        def slip() -> Words:
            way = [*ways[int(rng.integers(len(ways)))]]
            way[int(rng.integers(len(way)))] = words[int(rng.integers(len(words)))]
            return tuple(way)

        answers = chain(in_random_order(rng, ways), endless(slip))
        return self.different(task, map(" ".join, answers), num_answers)
