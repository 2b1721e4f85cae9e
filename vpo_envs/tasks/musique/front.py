"""The exact front: every choice of gold paragraphs to cite, with the right final answer."""

from __future__ import annotations

from itertools import combinations

from vpo_envs.tasks.musique.scoring import MuSiQueOutcome, judge
from vpo_envs.tasks.musique.task import MuSiQueTask
from vpo_envs.tasks.musique.text import read_answer, write_answer


def best_outcomes(task: MuSiQueTask) -> list[tuple[MuSiQueOutcome, str]]:
    """Return the outcome of every set of gold paragraphs that can be cited, each with an answer that has it."""
    gold = list(dict.fromkeys(task.support))
    cited = [
        paragraphs
        for size in range(min(task.max_citations, len(gold)), -1, -1)
        for paragraphs in combinations(gold, size)
    ]
    answers = [write_answer(paragraphs, task.answers[0]) for paragraphs in cited]
    return [(judge(task, read_answer(answer)), answer) for answer in answers]
