"""``vpo/EUREQA-v0``: name the masked entities of a narrative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs_data.readers import OnBadRow
from vpo_envs.core import Split, UnknownFront
from vpo_envs.data_env import DataTextEnv, Mode
from vpo_envs.generation import read_knobs
from vpo_envs.tasks.eureqa.generator import PRESETS, EUREQAConfig, draw_narrative
from vpo_envs.tasks.eureqa.rows import read_published
from vpo_envs.tasks.eureqa.task import (
    ENTITY_OBJECTIVES,
    MAX_WORLDS,
    WORLD_OBJECTIVES,
    EUREQAOutcome,
    EUREQATask,
    judge,
)
from vpo_envs.tasks.eureqa.text import narrative_prompt, read_names, write_names
from vpo_envs.text import normalise_name

NOBODY = "unknown"


class EUREQAEnv(DataTextEnv[EUREQATask, tuple[str, ...], EUREQAOutcome]):
    """Name five masked entities of a narrative, each of which is known only by its relation to the next.

    ## Description

    A chain of six entities is told in clues with masks for names; the last one is revealed. The generated narratives
    rest on facts about invented people that stand in the prompt; rows of EUREQA (Li et al., 2024), which ask for
    knowledge of the real world, can be loaded instead. The decomposition is that of Vector Policy Optimization
    (arXiv 2605.22817). In ``mode="conflict"`` the clues fit two or three worlds.

    ## Action space

    Text: ``num_answers`` answers, each in its tag and of the form ``<entity_A>Tarvel</entity_A>`` to
    ``<entity_E>…</entity_E>``. An answer that names no entity is unparsable; one that leaves some out is not.

    ## Observation space

    Text: the prompt, with the facts, the clues and the leaf.

    ## Rewards

    Each in [0, 1]. A name is right if it is the gold one up to underscores, case, accents, punctuation and articles.

    * ``mode="paper"``: ``entity_A`` to ``entity_E``, 1 for a right name. Generated clues have one solution.
    * ``mode="conflict"``: ``world_1`` to ``world_3``, the share of the five names that agree with each world that fits
      the clues, the worlds in the alphabetical order of their names for A. Where there are two worlds, ``world_3`` is
      inactive and 0.

    ``pareto_front()`` is exact for any objectives of these facts, a subclass's too.

    ## Starting state

    A narrative of the split, or the one that ``reset(options={"index": i})`` or ``options={"task": task}`` names.

    ## Episode end

    After the one response, or after ``num_answers`` steps with ``answers_as_steps=True``.

    ## Information

    ``info["reward_matrix"]`` (m, d), ``status`` per answer, ``outcomes`` (agreement with each world) per answer,
    ``active_objectives`` (d,).

    ## Version history

    * v0: first version.

    Args:
        source: ``"builtin"`` for generated narratives; a file or ``"hf:org/name"`` with rows of EUREQA.
        mode: ``"paper"`` or ``"conflict"``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.eureqa.generator.EUREQAConfig``.
        on_bad_row: ``"error"`` or ``"skip"``.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        num_answers: Answers per response.
        answers_as_steps: One answer a step.
        data_seed: Which stream of generated narratives.
        render_mode: ``None`` or ``"ansi"``.
    """

    task_type = EUREQATask
    namespace = 3
    objectives = ENTITY_OBJECTIVES

    def __init__(
        self,
        *,
        source: str = "builtin",
        mode: Mode = "paper",
        difficulty: dict[str, Any] | None = None,
        on_bad_row: OnBadRow = "error",
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if mode == "conflict" and type(self).objectives is EUREQAEnv.objectives:
            self.objectives = WORLD_OBJECTIVES
        super().__init__(
            source=source,
            mode=mode,
            on_bad_row=on_bad_row,
            split=split,
            num_answers=num_answers,
            answers_as_steps=answers_as_steps,
            data_seed=data_seed,
            render_mode=render_mode,
        )
        self.config: EUREQAConfig = read_knobs(PRESETS[mode], difficulty)
        if mode == "paper" and self.config.worlds != (1, 1):
            raise ValueError(f"mode='paper' has one world, got worlds={self.config.worlds}: choose mode='conflict'")
        if mode == "conflict" and self.config.worlds[0] < 2:
            raise ValueError(f"mode='conflict' has two worlds or three, got worlds={self.config.worlds}")

    def generate(self, rng: np.random.Generator) -> EUREQATask:
        """Draw a narrative of this split."""
        return draw_narrative(rng, self.config, self.split)

    def read_row(self, raw: Mapping[str, Any]) -> EUREQATask:
        """A row of EUREQA."""
        return read_published(raw)

    def prompt(self, task: EUREQATask, num_answers: int) -> str:
        """Facts, clues and what is wanted."""
        return narrative_prompt(task, num_answers, many_worlds=self.mode == "conflict")

    def parse(self, text: str) -> tuple[str, ...]:
        """Read the names of A to E, normalised."""
        return read_names(text)

    def evaluate(self, task: EUREQATask, answer: tuple[str, ...]) -> EUREQAOutcome:
        """Compare the names with those of each world."""
        return judge(task, answer)

    def active(self, task: EUREQATask) -> NDArray[np.bool_]:
        """All but the worlds that a task does not have."""
        absent = {f"world_{world}" for world in range(len(task.worlds) + 1, MAX_WORLDS + 1)}
        return np.array([name not in absent for name in self.objective_names])

    def outcome_front(self, task: EUREQATask) -> Sequence[tuple[EUREQAOutcome, str]]:
        """Every outcome that there is: for each entity the name of some world, or a wrong one.

        Raises:
            UnknownFront: The subclass changes which outcomes there are.
        """
        own = type(self)
        if own.evaluate is not EUREQAEnv.evaluate or own.feasible is not EUREQAEnv.feasible:
            raise UnknownFront(
                f"{own.__name__} overrides evaluate or feasible, so its front may be another: "
                "override outcome_front as well"
            )
        choices = []
        for names in zip(*task.worlds, strict=True):
            different = {normalise_name(name): name for name in reversed(names)}
            wrong = NOBODY
            while normalise_name(wrong) in different:
                wrong += " one"
            choices.append([*reversed(different.values()), wrong])
        return [(judge(task, tuple(map(normalise_name, names))), write_names(names)) for names in product(*choices)]

    def demonstrations(self, task: EUREQATask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Answers in turn about each world, of which half are right and others have one or two names wrong."""
        people = sorted({fact.split(",")[0] for fact in task.facts}) or [task.leaf, NOBODY]
        worlds = rng.permutation(len(task.worlds))
        demonstrations = []
        for i in range(num_answers):
            names: list[str] = list(task.worlds[int(worlds[i % len(worlds)])])
            if rng.random() < 0.5:
                for _ in range(int(rng.integers(1, 3))):
                    names[int(rng.integers(len(names)))] = str(rng.choice(people))
            demonstrations.append(write_names(names))
        return demonstrations
