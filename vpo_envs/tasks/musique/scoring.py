"""The outcome of an answer, the objectives, and whether those of a subclass are monotone."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise, product
from typing import NamedTuple

from vpo_envs.core import Objective
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


def _answer_f1(outcome: MuSiQueOutcome) -> float:
    return outcome.answer_f1


OBJECTIVES = (
    # A partial, unlike a lambda, can be pickled with its environment.
    *(
        Objective(f"hop_{i + 1}", f"The paragraph of the {ordinal} step is cited", partial(_cited, i))
        for i, ordinal in enumerate(("first", "second", "third", "fourth"))
    ),
    Objective("answer_f1", "Token F1 of the final answer with the best gold answer", _answer_f1),
)
SCALAR_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 3.0)
"""The paper's scalar: the final answer weighs as much as three paragraphs."""

ROUNDING = 1e-9


@lru_cache(maxsize=64)
def falling_objective(objectives: tuple[Objective, ...], hop_count: int, max_citations: int) -> str | None:
    """The first objective that falls when an answer does better in one fact, all else equal; ``None`` where none does.

    Better is one more hop found, a higher F1 (tried in sixteenths), or one citation fewer.
    """
    own = [objective for objective in objectives if objective not in OBJECTIVES]
    grades = [step / 16 for step in range(17)]
    for objective in own:
        table = {}
        for found in product((False, True), repeat=hop_count):
            hops = (*found, *[False] * (MAX_HOPS - hop_count))
            for cited in range(max_citations + 1):
                scores = [objective.score(MuSiQueOutcome(hops, hop_count, grade, cited)) for grade in grades]
                if any(after < before - ROUNDING for before, after in pairwise(scores)):
                    return objective.name
                table[found, cited] = scores
        for (found, cited), scores in table.items():
            worse = [(found, cited + 1)] if cited < max_citations else []
            worse += [((*found[:i], False, *found[i + 1 :]), cited) for i in range(hop_count) if found[i]]
            for other in worse:
                if any(a < b - ROUNDING for a, b in zip(scores, table[other], strict=True)):
                    return objective.name
    return None
