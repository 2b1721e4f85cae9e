"""The outcome of an answer, and the objectives."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.musique.task import MAX_HOPS, MuSiQueTask
from vpo_envs.tasks.musique.text import MuSiQueAnswer
from vpo_envs.text import token_f1


class MuSiQueOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    hops: tuple[bool, ...]
    """Whether the gold paragraph of each of four hops is among the citations that count; false for absent hops."""
    hop_count: int
    """Hops of the question."""
    answer_f1: float
    """Best token F1 over the gold answers, in [0, 1]."""
    cited: int
    """Distinct citations that count."""


def judge(task: MuSiQueTask, answer: MuSiQueAnswer) -> MuSiQueOutcome:
    """Find the steps that are cited, and compare the final answer with the gold ones."""
    counted = answer.citations[: task.max_citations]
    hops = [number in counted for number in task.support]
    f1 = max([token_f1(answer.tokens, gold) for gold in task.gold_tokens])
    hops += [False] * (MAX_HOPS - len(hops))
    return MuSiQueOutcome(tuple(hops), len(task.support), f1, len(counted))


def _cited(hop: int, outcome: MuSiQueOutcome) -> float:
    return float(outcome.hops[hop])


OBJECTIVES = (
    # A partial, unlike a lambda, can be pickled with its environment.
    *(
        Objective(f"hop_{i + 1}", f"The paragraph of the {ordinal} step is cited", partial(_cited, i))
        for i, ordinal in enumerate(("first", "second", "third", "fourth"))
    ),
    Objective("answer_f1", "Token F1 of the final answer with the best gold answer", attrgetter("answer_f1")),
)
SCALAR_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 3.0)
"""The paper's scalar: the final answer weighs as much as three paragraphs."""


def fact_grid(hop_count: int, max_citations: int) -> FactGrid:
    """Return the outcomes of a question, from worse to better: more hops found, a higher F1, fewer citations."""
    found = [(False, True)] * hop_count + [(False,)] * (MAX_HOPS - hop_count)
    grades = tuple(step / 16 for step in range(17))
    return FactGrid(_outcome, ((hop_count,), grades, tuple(range(max_citations, -1, -1)), *found))


def _outcome(hop_count: int, answer_f1: float, cited: int, *hops: bool) -> MuSiQueOutcome:
    return MuSiQueOutcome(hops, hop_count, answer_f1, cited)
