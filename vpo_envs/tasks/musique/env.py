"""``vpo/MuSiQue-v0``: questions that take several hops, answered with citations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv, endless
from vpo_envs.tasks.musique.generate import PRESETS, MuSiQueConfig, draw_question
from vpo_envs.tasks.musique.task import (
    MAX_HOPS,
    OBJECTIVES,
    SCALAR_WEIGHTS,
    MuSiQueAnswer,
    MuSiQueOutcome,
    MuSiQueTask,
    fact_grid,
    judge,
    question_prompt,
    read_answer,
    read_published,
    write_answer,
)


class MuSiQueEnv(TaskEnv[MuSiQueTask, MuSiQueAnswer, MuSiQueOutcome]):
    """Answer questions that take two to four hops, and cite the paragraph that supports each hop.

    ## Description

    A question over numbered paragraphs, most of which lead nowhere. Generated questions are about an invented world, in
    the schema of MuSiQue-Ans (Trivedi et al., 2022), whose own rows can be loaded instead; the decomposition is that of
    Vector Policy Optimization (arXiv 2605.22817). With ``preset="conflict"`` fewer citations count than the question
    has hops, so that an answer must choose which hops to support.

    ## Action space

    Text: ``num_answers`` answers, each in its tag and of the form ``<support>3, 7</support><final>Tarvel</final>``.
    Every integer in ``<support>`` is a citation; the first four distinct ones count (fewer with ``"conflict"``). An
    answer without words in ``<final>`` is unparsable.

    ## Rewards

    Five objectives, each in [0, 1]:

    0. ``hop_1`` to ``hop_4``: 1 if the paragraph of this hop is cited. Hops that a question does not have are inactive:
       their entries are 0 and carry no weight.
    4. ``answer_f1``: token F1 of the final answer after SQuAD's normalisation, the best over the gold answers; in
       generated questions 1 for exactly the right name, and else 0.

    The scalar reward of the paper weighs each hop once and the F1 three times. ``pareto_front()`` is exact, and also
    for a subclass whose objectives never fall when an answer finds more hops, gets a higher F1 or cites less.

    Args:
        preset: ``"conflict"`` (default), ``"paper"`` (the default for rows) or ``"compact"``, a class of its own:
            ``vpo_envs.MuSiQueCompactEnv``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.musique.generate.MuSiQueConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads rows of MuSiQue-Ans.
    """

    task_type = MuSiQueTask
    namespace = 2
    presets = MappingProxyType({**PRESETS, "compact": "vpo_envs.tasks.musique.compact:MuSiQueCompactEnv"})
    config: MuSiQueConfig
    draw_advice = "allow more hops or fewer missing citations"
    objectives = monotone_objectives = OBJECTIVES
    scalar_weights = SCALAR_WEIGHTS

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if (self.preset == "conflict") is not (self.config.missing_citations > 0):
            wanted = "no missing_citations" if self.preset == "paper" else "missing_citations of 1 or more"
            raise ValueError(f"preset={self.preset!r} has {wanted}, got {self.config.missing_citations}")

    def draw(self, source: random.Random) -> MuSiQueTask | None:
        """Draw a question."""
        return draw_question(source, self.config)

    example_row: ClassVar[dict[str, Any]] = {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": 0, "title": "Tea", "paragraph_text": "Tea is a drink.", "is_supporting": False},
            {"idx": 1, "title": "Ada Holm", "paragraph_text": "Ada Holm wrote Low Tide.", "is_supporting": True},
            {"idx": 2, "title": "Ada Holm's life", "paragraph_text": "Holm was born in Bergen.", "is_supporting": True},
        ],
        "question": "Where was the author of Low Tide born?",
        "question_decomposition": [
            {"id": 1, "question": "Who wrote Low Tide?", "answer": "Ada Holm", "paragraph_support_idx": 1},
            {"id": 2, "question": "Where was #1 born?", "answer": "Bergen", "paragraph_support_idx": 2},
        ],
        "answer": "Bergen",
        "answer_aliases": [],
        "answerable": True,
    }
    read_row = staticmethod(read_published)
    prompt = staticmethod(question_prompt)
    parse = staticmethod(read_answer)
    evaluate = staticmethod(judge)

    def active(self, task: MuSiQueTask) -> NDArray[np.bool_]:
        """Return which objectives count: all but the hops that the question does not have."""
        absent = {f"hop_{hop}" for hop in range(len(task.hops) + 1, MAX_HOPS + 1)}
        return np.array([name not in absent for name in self.objective_names])

    def outcome_front(self, task: MuSiQueTask) -> Sequence[tuple[MuSiQueOutcome, str]]:
        """Return the outcome of every set of gold paragraphs that can be cited, with the right final answer."""
        gold = list(dict.fromkeys(task.support))
        sizes = range(min(task.max_citations, len(gold)), -1, -1)
        cited = [paragraphs for size in sizes for paragraphs in combinations(gold, size)]
        answers = [write_answer(paragraphs, task.answers[0]) for paragraphs in cited]
        return [(judge(task, read_answer(answer)), answer) for answer in answers]

    def fact_grids(self, task: MuSiQueTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in hops found, F1 and citations."""
        return [fact_grid(len(task.hops), task.max_citations)]

    def demonstrations(self, task: MuSiQueTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return answers, about half of them optimal; the others miss a paragraph or give another hop's answer."""
        numbers = [paragraph.number for paragraph in task.paragraphs]

        def answer() -> str:
            cited = [int(number) for number in rng.permutation(list(dict.fromkeys(task.support)))]
            cited = cited[: task.max_citations]
            final = str(rng.choice(task.answers))
            slip = rng.random()
            if slip < 0.35:
                cited[int(rng.integers(len(cited)))] = int(rng.choice(numbers))
            if 0.25 < slip < 0.5:
                final = str(rng.choice([hop.answer for hop in task.hops]))
            return write_answer(list(dict.fromkeys(cited)), final)

        return self.different(task, endless(answer), num_answers)
