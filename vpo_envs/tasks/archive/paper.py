"""``vpo/Archive-v0`` with ``preset="paper"``: questions of MuSiQue whose paragraphs must be opened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from vpo_envs.core import Call, Objective, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.archive.task import OPEN, UNKNOWN
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.musique.env import MuSiQueEnv
from vpo_envs.tasks.musique.generate import PRESETS, MuSiQueConfig, draw_question
from vpo_envs.tasks.musique.task import INTEGER, MuSiQueTask, has_words, read_published
from vpo_envs.text import answer_tags, several_answers, squad_tokens, token_f1

OPENINGS = (
    "Answer the question from the paragraphs listed below. They are closed: you see their numbers and titles.",
    "Below are the titles of numbered paragraphs, which are closed. Open those that you need to answer the question.",
    "You can open the numbered paragraphs of this list one at a time. Use them to answer the question.",
)


class OpenedOutcome(NamedTuple):
    """The facts about one answer."""

    answer_f1: float
    """Best token F1 over the gold answers, in [0, 1]."""
    evidence: float
    """Share of the supporting paragraphs that were opened before the answer."""
    closed: float
    """Share of all paragraphs that were not opened before the answer."""


def _evidence(outcome: OpenedOutcome) -> float:
    return outcome.answer_f1 * outcome.evidence


def _saved(outcome: OpenedOutcome) -> float:
    return outcome.answer_f1 * outcome.closed


def opened_paragraphs(task: MuSiQueTask, calls: Sequence[Call]) -> set[int]:
    """Return the numbers of the paragraphs that calls open."""
    numbers = {paragraph.number for paragraph in task.paragraphs}
    asked = (INTEGER.search(call.text) for call in calls)
    return {int(number[0]) for number in asked if number and len(number[0]) < 10} & numbers


class ArchivePaperEnv(TaskEnv[MuSiQueTask, tuple[str, ...], OpenedOutcome]):
    """Answer questions of MuSiQue whose paragraphs must be opened, and show the evidence by opening them.

    ## Description

    A question over numbered paragraphs of which the prompt has the titles; generated, or rows of MuSiQue-Ans (Trivedi
    et al., 2022).

    ## Action space

    Text: calls such as ``<open>3</open>``, each of which gets the paragraph with this number, and ``num_answers``
    answers. An answer without words is unparsable.

    ## Rewards

    Three objectives, each in [0, 1]:

    0. ``answer``: token F1 after SQuAD's normalisation, the best over the gold answers.
    1. ``evidence``: the F1, times the share of the supporting paragraphs that were opened before the answer.
    2. ``saved``: the F1, times the share of all paragraphs that were not.

    An answer may be known by heart: it then has no evidence, and saves everything. ``pareto_front()`` is exact.

    Args:
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads rows of MuSiQue-Ans.
    """

    task_type = MuSiQueTask
    namespace = 32
    turn_tags = (OPEN,)
    max_calls = 20
    presets = MappingProxyType({"paper": PRESETS["paper"]})
    config: MuSiQueConfig
    objectives = monotone_objectives = (
        Objective("answer", "Token F1 of the answer with the best gold answer", attrgetter("answer_f1")),
        Objective("evidence", "That F1, times the share of the supporting paragraphs that were opened", _evidence),
        Objective("saved", "That F1, times the share of all paragraphs that stayed closed", _saved),
    )
    example_row = MuSiQueEnv.example_row
    read_row = staticmethod(read_published)

    def draw(self, source: random.Random) -> MuSiQueTask | None:
        """Draw a question."""
        return draw_question(source, self.config)

    def prompt(self, task: MuSiQueTask, num_answers: int) -> str:
        """Return the titles, the question, the rules and the tags to fill in."""
        opening = OPENINGS[int(task.content_hash(), 16) % len(OPENINGS)]
        wanted = (
            "Give one answer in this form:" if num_answers == 1 else f"{several_answers(num_answers)} Use this form:"
        )
        return "\n".join(
            [
                opening,
                "",
                *[f"[{paragraph.number}] {paragraph.title}" for paragraph in task.paragraphs],
                "",
                f"Question: {task.question}",
                "",
                f"Write <{OPEN}>number</{OPEN}> to open a paragraph, and wait: its text comes next. You may do so at "
                f"most {self.max_calls} times in all, before and between answers. A number that is not "
                "listed opens nothing.",
                "An answer is scored on three objectives: answer, how far its words are those of the correct one; "
                "evidence, the share of the paragraphs behind the correct answer that you opened before you answered; "
                "and saved, the share of all paragraphs that you had not opened by then. The last two are multiplied "
                "by the first.",
                wanted,
                *[f"{tag}...{closing}" for tag, closing in answer_tags(num_answers)],
            ]
        )

    def respond(self, task: MuSiQueTask, calls: Sequence[Call]) -> str:
        """Return the text of the paragraph that the last call opens."""
        opened = opened_paragraphs(task, calls[-1:])
        return next((p.text for p in task.paragraphs if p.number in opened), UNKNOWN)

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the words of the answer, normalised."""
        if not has_words(text):
            raise Unparsable("the answer contains no letter or digit")
        return squad_tokens(text)

    def evaluate(self, task: MuSiQueTask, answer: tuple[str, ...]) -> OpenedOutcome:
        """Return the facts about an answer for which no paragraph was opened."""
        return self.evaluate_after(task, answer, ())

    def evaluate_after(self, task: MuSiQueTask, answer: tuple[str, ...], calls: Sequence[Call]) -> OpenedOutcome:
        """Return the facts about an answer, given the paragraphs opened before it."""
        opened, support = opened_paragraphs(task, calls), set(task.support)
        f1 = max(token_f1(answer, gold) for gold in task.gold_tokens)
        return OpenedOutcome(f1, len(opened & support) / len(support), 1 - len(opened) / len(task.paragraphs))

    def outcome_front(self, task: MuSiQueTask) -> Sequence[tuple[OpenedOutcome, str]]:
        """Return the outcomes of the right answer after each number of supporting paragraphs."""
        support = list(dict.fromkeys(task.support))
        front = []
        for count in range(len(support) + 1):
            calls = [Call(OPEN, str(number)) for number in support[:count]]
            outcome = self.evaluate_after(task, self.parse(task.answers[0]), calls)
            front.append((outcome, self.played(task, calls, task.answers[0])))
        return front

    def fact_grids(self, task: MuSiQueTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in F1, evidence and paragraphs left closed."""
        shares = tuple(step / 8 for step in range(9))
        return [FactGrid(OpenedOutcome, (shares, shares, shares))]

    def demonstrations(self, task: MuSiQueTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return answers that open different numbers of paragraphs, fewest first; of many answers, some are wrong."""
        support = dict.fromkeys(map(str, task.support))
        others = (str(paragraph.number) for paragraph in task.paragraphs)
        calls = [Call(OPEN, number) for number in dict.fromkeys([*support, *others])][: self.max_calls]
        right, *wrong = dict.fromkeys([task.answers[0], *(hop.answer for hop in reversed(task.hops))])
        good = [(int(count), right) for count in rng.permutation(len(support) + 1)]
        late = [(count, right) for count in range(len(support) + 1, len(calls) + 1)]
        poor = [(count, answer) for answer in wrong for count in range(len(calls) + 1)]
        chosen = sorted([*good, *late, *poor][:num_answers], key=itemgetter(0))
        if len(chosen) < num_answers:
            raise NotImplementedError(f"the question has {len(chosen)} different demonstrations, not {num_answers}")
        return [self.played(task, calls[:count], answer) for count, answer in chosen]
