"""``vpo/Personas-v0``: one text for several personas, each with checks of their own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import Objective, UnknownFront
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv, in_random_order
from vpo_envs.tasks.personas.checks import describe
from vpo_envs.tasks.personas.front import best_sets_of_checks, contradictions, maximal_sets, witness
from vpo_envs.tasks.personas.generate import PRESETS, PersonasConfig, draw_task
from vpo_envs.tasks.personas.task import (
    PersonasOutcome,
    PersonasTask,
    evaluate,
    full_prompt,
    objectives_of,
    read_answer,
)


@dataclass(frozen=True)
class _OutcomeOf:
    """Makes the outcome of a real text from one flag for each check."""

    sizes: tuple[int, ...]

    def __call__(self, *flags: bool) -> PersonasOutcome:
        ends = accumulate(self.sizes)
        return PersonasOutcome(True, tuple([flags[end - n : end] for n, end in zip(self.sizes, ends, strict=True)]))


class PersonasEnv(TaskEnv[PersonasTask, str, PersonasOutcome]):
    """Write a short text that several personas judge, each by their own list of checks.

    ## Description

    The prompt names a topic and lists what each persona checks. Checks are deterministic and of families as in IFEval
    (arXiv 2311.07911). They give bands for the number of words, sentences or bullets, and words to use or avoid. They
    forbid commas, digits, capitals or a certain letter, or say how the text begins and ends. With
    ``preset="conflict"`` personas contradict each other: a text passes the checks of one of them and few of the others,
    or a part of everyone's.

    ## Action space

    Text: ``num_answers`` texts, each in its tag. Blanks at the ends of lines and repeated ones do not count.

    ## Rewards

    ``persona_1`` to ``persona_K``, each in [0, 1]: the share of this persona's checks that hold. All are 0 for a text
    that breaks a rule. By the rules a text has 8 to 120 words and uses the topic's word, and at most a quarter of its
    runs of four words are copied from the prompt or repeat an earlier one.

    With ``preset="paper"`` one text can pass all checks. With ``"conflict"`` every task is certified by its exact
    front: the utility of the best three texts is at least 1.3 times that of the best one (``min_set_gain``). It is at
    least 1.15 times that of the best three texts whose scalar reward is within 0.02 of the best (``min_vector_gain``).

    ``pareto_front()`` is exact: the points are the maximal sets of checks without a contradiction, each with a text
    that passes them, and no text passes two checks that contradict each other.

    Args:
        preset: ``"conflict"`` (default) or ``"paper"``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.personas.generate.PersonasConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`.
    """

    task_type = PersonasTask
    namespace = 20
    presets = PRESETS
    config: PersonasConfig
    objectives = objectives_of(PRESETS["paper"].personas)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if (self.preset == "conflict") is not (self.config.exclusive != (0, 0)):
            wanted = "exclusive of (0, 0)" if self.preset == "paper" else "exclusive of 2 or more"
            raise ValueError(f"preset={self.preset!r} has {wanted}, got {self.config.exclusive}")

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return one objective per persona."""
        return objectives_of(self.config.personas)

    prompt = staticmethod(full_prompt)
    parse = staticmethod(read_answer)
    evaluate = staticmethod(evaluate)

    def draw(self, source: random.Random) -> PersonasTask:
        """Draw a task of this split."""
        return draw_task(source, self.config, self.split)

    def active(self, task: PersonasTask) -> NDArray[np.bool_]:
        """Return which objectives count: one for each persona."""
        return np.arange(self.reward_dim) < len(task.personas)

    def feasible(self, outcome: PersonasOutcome) -> bool:
        """Return whether the text follows the rules."""
        return outcome.real

    def why(self, task: PersonasTask, facts: Mapping[str, Any]) -> str:
        """Return the checks that do not hold."""
        if not facts["real"]:
            return "breaks a rule: too short, too long, without the topic, copied, or repeating itself"
        pairs = zip(self.objective_names, task.personas, facts["held"], strict=False)
        return ", ".join(
            f"{name} wants: {describe(check)}"
            for name, checks, held in pairs
            for check, holds in zip(checks, held, strict=True)
            if not holds
        )

    def outcome_front(self, task: PersonasTask) -> Sequence[tuple[PersonasOutcome, str]]:
        """Return the outcome of a text for every maximal set of checks without a contradiction."""
        checks = [check for checks in task.personas for check in checks]
        texts = self._texts(task, list(maximal_sets(contradictions(checks))))
        return [(evaluate(task, text), text) for text in texts]

    def fact_grids(self, task: PersonasTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in every check."""
        sizes = tuple(len(checks) for checks in task.personas)
        return [FactGrid(_OutcomeOf(sizes), ((False, True),) * sum(sizes))]

    def demonstrations(self, task: PersonasTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return texts of the front in random order, and then others for the same checks in other words."""
        sets = best_sets_of_checks(task.personas)

        def texts() -> Iterator[str]:
            while True:
                yield from in_random_order(rng, self._texts(task, sets, int(rng.integers(2**31))))

        return self.different(task, texts(), num_answers)

    def _texts(self, task: PersonasTask, sets: Sequence[frozenset[int]], seed: int = 0) -> list[str]:
        """Return a text for each set of checks."""
        checks = [check for checks in task.personas for check in checks]
        texts = []
        for chosen in sets:
            wanted = [checks[i] for i in sorted(chosen)]
            text = witness(wanted, task.topic, seed) or witness(wanted, task.topic, 0)
            if text is None:
                raise UnknownFront(f"no text was found that passes these checks together: {wanted}")
            texts.append(text)
        return texts
