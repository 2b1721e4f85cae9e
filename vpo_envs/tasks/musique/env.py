"""``vpo/MuSiQue-v0``: questions that take several steps, answered with citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs_data.readers import OnBadRow
from vpo_envs.core import Split, UnknownFront
from vpo_envs.data_env import DataTextEnv, Mode
from vpo_envs.generation import read_knobs
from vpo_envs.tasks.musique.generator import PRESETS, MuSiQueConfig, draw_question
from vpo_envs.tasks.musique.rows import read_published
from vpo_envs.tasks.musique.task import (
    MAX_HOPS,
    OBJECTIVES,
    SCALAR_WEIGHTS,
    MuSiQueAnswer,
    MuSiQueOutcome,
    MuSiQueTask,
    falling_objective,
    judge,
)
from vpo_envs.tasks.musique.text import question_prompt, read_answer, write_answer


class MuSiQueEnv(DataTextEnv[MuSiQueTask, MuSiQueAnswer, MuSiQueOutcome]):
    """Answer questions that take two to four steps, and cite the paragraph that each step rests on.

    ## Description

    A question over numbered paragraphs, most of which lead nowhere. The generated ones are about an invented world, in
    the schema of MuSiQue-Ans (Trivedi et al., 2022), whose own rows can be loaded instead; the decomposition is that of
    Vector Policy Optimization (arXiv 2605.22817). In ``mode="conflict"`` fewer citations count than the question has
    steps, so that an answer must choose which steps to support.

    ## Action space

    Text: ``num_answers`` answers, each in its tag and of the form ``<support>3, 7</support><final>Tarvel</final>``.
    Every integer in ``<support>`` is a citation; the first four distinct ones count (fewer in ``mode="conflict"``). An
    answer without words in ``<final>`` is unparsable.

    ## Observation space

    Text: the prompt, with the paragraphs, the question and the rules.

    ## Rewards

    Five objectives, each in [0, 1]:

    0. ``hop_1`` to ``hop_4``: 1 if the paragraph of this step is cited. Steps that a question does not have are
       inactive: their entries are 0 and carry no weight.
    4. ``answer_f1``: token F1 of the final answer after SQuAD's normalisation, the best over the gold answers.

    The scalar of the paper weighs each step once and the F1 three times. ``pareto_front()`` is exact, for a subclass
    with other objectives too, as long as none of them falls when an answer finds more steps, gets a higher F1 or cites
    less.

    ## Starting state

    A question of the split, or the one that ``reset(options={"index": i})`` or ``options={"task": task}`` names.

    ## Episode end

    After the one response, or after ``num_answers`` steps with ``answers_as_steps=True``.

    ## Information

    ``info["reward_matrix"]`` (m, 5), ``status`` per answer, ``outcomes`` (hops found, F1, citations) per answer,
    ``active_objectives`` (5,).

    ## Version history

    * v0: first version.

    Args:
        source: ``"builtin"`` for generated questions; a file or ``"hf:org/name"`` with rows of MuSiQue-Ans.
        mode: ``"paper"`` or ``"conflict"``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.musique.generator.MuSiQueConfig``.
        on_bad_row: ``"error"`` or ``"skip"``.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        num_answers: Answers per response.
        answers_as_steps: One answer a step.
        data_seed: Which stream of generated questions.
        render_mode: ``None`` or ``"ansi"``.
    """

    task_type = MuSiQueTask
    namespace = 2
    objectives = OBJECTIVES
    scalar_weights = SCALAR_WEIGHTS

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
        self.config: MuSiQueConfig = read_knobs(PRESETS[mode], difficulty)
        if (mode == "conflict") is not (self.config.missing_citations > 0):
            wanted = "no missing_citations" if mode == "paper" else "missing_citations of 1 or more"
            raise ValueError(f"mode={mode!r} has {wanted}, got {self.config.missing_citations}")

    def generate(self, rng: np.random.Generator) -> MuSiQueTask:
        """Draw a question of this split."""
        return draw_question(rng, self.config, self.split)

    def read_row(self, raw: Mapping[str, Any]) -> MuSiQueTask:
        """A row of MuSiQue-Ans."""
        return read_published(raw)

    def prompt(self, task: MuSiQueTask, num_answers: int) -> str:
        """Paragraphs, question and what is wanted."""
        return question_prompt(task, num_answers)

    def parse(self, text: str) -> MuSiQueAnswer:
        """Read citations and final answer."""
        return read_answer(text)

    def evaluate(self, task: MuSiQueTask, answer: MuSiQueAnswer) -> MuSiQueOutcome:
        """Find the steps that are cited, and compare the final answer."""
        return judge(task, answer)

    def active(self, task: MuSiQueTask) -> NDArray[np.bool_]:
        """The steps that the question has, and the F1; all of a subclass's further objectives."""
        absent = {f"hop_{hop}" for hop in range(len(task.hops) + 1, MAX_HOPS + 1)}
        return np.array([name not in absent for name in self.objective_names])

    def outcome_front(self, task: MuSiQueTask) -> Sequence[tuple[MuSiQueOutcome, str]]:
        """Every set of gold paragraphs that can be cited, with the right final answer.

        Raises:
            UnknownFront: An objective falls when an answer does better in one of the facts, or the subclass changes
                which outcomes there are.
        """
        own = type(self)
        if own.evaluate is not MuSiQueEnv.evaluate or own.feasible is not MuSiQueEnv.feasible:
            raise UnknownFront(
                f"{own.__name__} overrides evaluate or feasible, so its front may be another: "
                "override outcome_front as well"
            )
        falling = falling_objective(self.objectives, len(task.hops), task.max_citations)
        if falling is not None:
            raise UnknownFront(
                f"objective {falling!r} of {own.__name__} is not monotone in steps found, F1 and citations, "
                "so its front may be another: override outcome_front"
            )
        gold = list(dict.fromkeys(task.support))
        cited = [
            paragraphs
            for size in range(min(task.max_citations, len(gold)), -1, -1)
            for paragraphs in combinations(gold, size)
        ]
        answers = [write_answer(paragraphs, task.answers[0]) for paragraphs in cited]
        return [(judge(task, read_answer(answer)), answer) for answer in answers]

    def demonstrations(self, task: MuSiQueTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Answers of which about half are the best there is; others miss a paragraph or name another thing."""
        numbers = [paragraph.number for paragraph in task.paragraphs]
        demonstrations = []
        for _ in range(num_answers):
            cited = [int(number) for number in rng.permutation(list(dict.fromkeys(task.support)))]
            cited = cited[: task.max_citations]
            final = str(rng.choice(task.answers))
            slip = rng.random()
            if slip < 0.35:
                cited[int(rng.integers(len(cited)))] = int(rng.choice(numbers))
            if 0.25 < slip < 0.5:
                final = str(rng.choice([hop.answer for hop in task.hops]))
            demonstrations.append(write_answer(list(dict.fromkeys(cited)), final))
        return demonstrations
