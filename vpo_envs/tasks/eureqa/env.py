"""``vpo/EUREQA-v0``: name the masked entities of a narrative."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle, product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpo_envs.common.wording import counted
from vpo_envs.core import Objective
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.eureqa.generate import PRESETS, EUREQAConfig, draw_narrative
from vpo_envs.tasks.eureqa.task import (
    ENTITY_OBJECTIVES,
    MAX_WORLDS,
    WORLD_OBJECTIVES,
    EUREQAOutcome,
    EUREQATask,
    judge,
    narrative_prompt,
    read_names,
    read_published,
    write_names,
)
from vpo_envs.text import normalise_name

NOBODY = "unknown"


class EUREQAEnv(TaskEnv[EUREQATask, tuple[str, ...], EUREQAOutcome]):
    """Name five masked entities of a narrative, each of which is known only by its relation to the next.

    ## Description

    Clues describe a chain of six entities with masks for names; the last entity is revealed. Generated narratives rest
    on facts about invented people that the prompt lists; rows of EUREQA (Li et al., 2024), which ask for knowledge of
    the real world, can be loaded instead. The decomposition is that of Vector Policy Optimization (arXiv 2605.22817).
    With ``preset="conflict"`` the clues fit two or three worlds.

    ## Action space

    Text: ``num_answers`` answers, each in its tag and of the form ``<entity_A>Tarvel</entity_A>`` to
    ``<entity_E>…</entity_E>``. An answer that names no entity is unparsable; one that leaves some out is not.

    ## Rewards

    Each in [0, 1]. Names are compared without regard to case, accents, articles and punctuation; a hyphen or an
    underscore is a blank. Signs that make another name count: C++ is not C.

    * ``preset="paper"``: ``entity_A`` to ``entity_E``, 1 for the right name. Generated clues have one solution.
    * ``preset="conflict"``: ``world_1`` to ``world_3``, the share of the five names that agree with each world that
      fits the clues, the worlds in the alphabetical order of their names for A. Where there are two worlds,
      ``world_3`` is inactive and 0.

    ``pareto_front()`` is exact for any objectives computed from the outcome, a subclass's included.

    Args:
        preset: ``"conflict"`` (default), ``"paper"`` (the default for rows) or ``"compact"``, a class of its own:
            ``vpo_envs.EUREQACompactEnv``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.eureqa.generate.EUREQAConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads rows of EUREQA.
    """

    task_type = EUREQATask
    namespace = 3
    presets = MappingProxyType({**PRESETS, "compact": "vpo_envs.tasks.eureqa.compact:EUREQACompactEnv"})
    config: EUREQAConfig
    draw_advice = "allow more worlds or fewer shared names"
    objectives = WORLD_OBJECTIVES

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        fewest, most = self.config.worlds
        if not (most == 1 if self.preset == "paper" else fewest > 1):
            wanted = "one world" if self.preset == "paper" else "two or three worlds"
            raise ValueError(f"preset={self.preset!r} has {wanted}, got worlds={self.config.worlds}: change one")

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return one objective per entity, or with conflict one per world."""
        return ENTITY_OBJECTIVES if self.preset == "paper" else WORLD_OBJECTIVES

    def draw(self, source: random.Random) -> EUREQATask | None:
        """Draw a narrative."""
        return draw_narrative(source, self.config)

    example_row: ClassVar[dict[str, Any]] = {
        "idx": 7,
        "question": ["[A] painted [B]."],
        "entity_masks": ["[A]", "[B]", "[C]", "[D]", "[E]", "[F]"],
        "entities": ["Frida_Kahlo", "Diego_Rivera", "Coyoacán", "The_Two_Fridas", "Mexico_City", "Leon_Trotsky"],
    }
    read_row = staticmethod(read_published)
    parse = staticmethod(read_names)

    def prompt(self, task: EUREQATask, num_answers: int) -> str:
        """Return the facts, the clues and the tags to fill in."""
        self._check_task(task)
        return narrative_prompt(task, num_answers)

    def evaluate(self, task: EUREQATask, answer: tuple[str, ...]) -> EUREQAOutcome:
        """Compare the names with those of each world."""
        self._check_task(task)
        return judge(task, answer)

    def active(self, task: EUREQATask) -> NDArray[np.bool_]:
        """Return which objectives count: all but those of worlds that the task does not have."""
        absent = {f"world_{world}" for world in range(len(task.worlds) + 1, MAX_WORLDS + 1)}
        return np.array([name not in absent for name in self.objective_names])

    def outcome_front(self, task: EUREQATask) -> Sequence[tuple[EUREQAOutcome, str]]:
        """Return every possible outcome: each entity has its name in some world, or a wrong one."""
        choices = []
        for names, spellings in zip(zip(*task.worlds, strict=True), zip(*task.spellings, strict=True), strict=True):
            different = {normalise_name(name): name for name in reversed(names)}
            wrong = NOBODY
            while any(normalise_name(wrong) in right for right in spellings):
                wrong += " one"
            choices.append([*reversed(different.values()), wrong])
        return [(judge(task, tuple(map(normalise_name, names))), write_names(names)) for names in product(*choices)]

    def demonstrations(self, task: EUREQATask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return answers for each world in turn; half of them are right, the others have one or two names wrong."""
        people = sorted({fact.split(",")[0] for fact in task.facts}) or [task.leaf, NOBODY]
        worlds = rng.permutation(len(task.worlds))

        def answer(world: int) -> str:
            names: list[str] = list(task.worlds[world])
            if rng.random() < 0.5:
                for _ in range(int(rng.integers(1, 3))):
                    names[int(rng.integers(len(names)))] = str(rng.choice(people))
            return write_names(names)

        return self.different(task, map(answer, cycle(worlds.tolist())), num_answers)

    def _check_task(self, task: EUREQATask) -> None:
        self._check_preset(
            (len(task.worlds) == 1) is (self.preset == "paper"), f"a task with {counted(len(task.worlds), 'world')}"
        )
