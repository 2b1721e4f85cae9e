"""``vpo/Archive-v0``: questions whose documents must be opened, each of which costs something."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import itemgetter
from types import MappingProxyType

import numpy as np

from vpo_envs.core import Call, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.archive.generate import ArchiveConfig, archive_prompt, draw_archive
from vpo_envs.tasks.archive.task import (
    OBJECTIVES,
    OPEN,
    ArchiveOutcome,
    ArchiveTask,
    fact_grid,
    judge,
    normal_title,
    reply,
    solutions,
)
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.musique.env import MuSiQueEnv


class ArchiveEnv(TaskEnv[ArchiveTask, str, ArchiveOutcome]):
    """Answer a question from documents that must be opened first, and open few of them.

    ## Description

    A question has two readings. The first document tells what kind of thing both ask for, and whom to look up next; the
    second has the answer of the near reading, and the third the answer of the far reading. The prompt lists the titles
    of these and of other documents; the environment shows the text of each that is opened.

    ## Action space

    Text: calls ``<open>title</open>``, each of which ends a turn and gets the document as the observation of its step,
    and ``num_answers`` answers, each in its tag: the thing in one reading, or the kind. All may stand in one response;
    an answer is judged with what was opened before it. A ninth call truncates the episode.

    ## Rewards

    Three objectives, each in [0, 1]. An answer counts only if the documents that state it were opened before it, and
    an answer that scores 0 in both readings earns nothing at all.

    0. ``near``: 1 for the thing in the near reading, which takes two documents; 0.4 for the kind, which takes one.
    1. ``far``: 1 for the thing in the far reading, which takes three documents; 0.4 for the kind.
    2. ``saved``: 1, less a third for each different title that was asked for, even if there is no such document.

    So the front has three points: (0.4, 0.4, 2/3) for one document, (1, 0, 1/3) for two and (0, 1, 0) for three.
    ``pareto_front()`` is exact.

    Args:
        preset: ``"conflict"`` (default), ``"paper"``, questions of MuSiQue with hidden paragraphs, which is the default
            for rows, or ``"compact"``. ``"paper"`` and ``"compact"`` are classes of their own.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.archive.generate.ArchiveConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`.
    """

    task_type = ArchiveTask
    namespace = 30
    turn_tags = (OPEN,)
    presets = MappingProxyType(
        {
            "conflict": ArchiveConfig(),
            "paper": "vpo_envs.tasks.archive.paper:ArchivePaperEnv",
            "compact": "vpo_envs.tasks.archive.compact:ArchiveCompactEnv",
        }
    )
    config: ArchiveConfig
    objectives = monotone_objectives = OBJECTIVES
    example_row = MuSiQueEnv.example_row
    respond = staticmethod(reply)
    evaluate_after = staticmethod(judge)

    def draw(self, source: random.Random) -> ArchiveTask:
        """Draw an archive."""
        return draw_archive(source, self.config)

    def prompt(self, task: ArchiveTask, num_answers: int) -> str:
        """Return the titles, the question, the rules and the tags to fill in."""
        return archive_prompt(task, num_answers, self.max_calls)

    def parse(self, text: str) -> str:
        """Return the answer in small letters, without surplus blanks and without a full stop at its end."""
        answer = normal_title(text).removesuffix(".").rstrip()
        if not answer:
            raise Unparsable("the answer has no words")
        return answer

    def evaluate(self, task: ArchiveTask, answer: str) -> ArchiveOutcome:
        """Return the facts about an answer for which no document was opened."""
        return judge(task, answer, ())

    def feasible(self, outcome: ArchiveOutcome) -> bool:
        """Return whether an answer scores above 0 in a reading; saved documents alone earn nothing."""
        return outcome.near > 0 or outcome.far > 0

    def outcome_front(self, task: ArchiveTask) -> Sequence[tuple[ArchiveOutcome, str]]:
        """Return the outcomes of the kind, the near and the far reading, each with the documents that it takes."""
        front = []
        for answer, titles in solutions(task):
            calls = [Call(OPEN, title) for title in titles]
            front.append((judge(task, normal_title(answer), calls), self.played(task, calls, answer)))
        return front

    def fact_grids(self, task: ArchiveTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in both scores and in documents left closed."""
        return [fact_grid(task)]

    def demonstrations(self, task: ArchiveTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the three good answers after different numbers of documents, fewest first.

        Half of them open one document too many; if many are asked for, they open more.
        """
        titles = [*task.way, *(document.title for document in task.documents if document.title not in task.way)]
        most = min(len(titles), self.max_calls)
        by_delay: list[list[tuple[int, str]]] = []
        for delay in range(most):
            opened = [(len(needed) + delay, answer) for answer, needed in solutions(task)]
            by_delay.append([(count, answer) for count, answer in opened if count <= most])
        candidates = [*by_delay[0], *by_delay[1]]
        order = [candidates[i] for i in rng.permutation(len(candidates))]
        order += [candidate for later in by_delay[2:] for candidate in later]
        # Wrong, so that many answers differ: what the documents are about.
        order += [(most, title) for title in titles]
        chosen = sorted(order[:num_answers], key=itemgetter(0))
        if len(chosen) < num_answers:
            raise NotImplementedError(f"the archive has {len(chosen)} different demonstrations, not {num_answers}")
        calls = [Call(OPEN, title) for title in titles]
        return [self.played(task, calls[:count], answer) for count, answer in chosen]
