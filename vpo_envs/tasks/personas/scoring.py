"""The outcome of a text, and one objective for each persona."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.tasks.personas.checks import read_text
from vpo_envs.tasks.personas.task import RUN, PersonasTask, runs
from vpo_envs.tasks.personas.text import MAX_WORDS, MIN_WORDS

MOST_STALE = 0.25
"""Highest share of runs of words that may be copied from the prompt or repeat an earlier one."""


class PersonasOutcome(NamedTuple):
    """The facts about one text that the objectives look at."""

    real: bool
    """Whether the text follows the rules: a text of its own, on the topic, neither copied nor padded."""
    held: tuple[tuple[bool, ...], ...]
    """For each persona which checks hold; empty for a text that breaks a rule, whose checks are not counted."""


def evaluate(task: PersonasTask, answer: str) -> PersonasOutcome:
    """Check a text for every persona of a task."""
    text = read_text(answer)
    if not _is_real(task, text.words):
        return PersonasOutcome(False, ())
    counted, bands, owned = task.compiled
    counts = [count(text, value) for count, value in counted]
    held = tuple([least <= counts[place] <= most for place, least, most in bands])
    return PersonasOutcome(True, tuple([held[own] for own in owned]))


def _is_real(task: PersonasTask, words: list[str]) -> bool:
    if task.topic and not (MIN_WORDS <= len(words) <= MAX_WORDS and task.topic in words):
        return False
    different = set(words)
    count = len(words) - RUN + 1
    # Runs are slow to compare. A run that repeats another begins with a repeated word, and one that is copied has
    # only words of the request: mostly there are so few of either that no more has to be known.
    repeated = len(words) - len(different)
    if max(0, len(task.vocabulary & different) + repeated - (RUN - 1)) + repeated <= MOST_STALE * count:
        return True
    copied = len(task.passages.intersection(runs(words)))
    if copied + repeated > MOST_STALE * count:
        repeated = count - len(set(runs(words)))
    return copied + repeated <= MOST_STALE * count or count <= 0


def _share(persona: int, outcome: PersonasOutcome) -> float:
    if persona >= len(outcome.held):
        return 0.0  # A row with fewer instructions: the objective is inactive.
    held = outcome.held[persona]
    return sum(held) / len(held)


def objectives_of(count: int, kind: str) -> tuple[Objective, ...]:
    """Return ``count`` objectives named ``kind_1`` and so on: the share of each persona's checks that hold."""
    return tuple(
        Objective(f"{kind}_{k + 1}", f"Share of the checks of {kind} {k + 1} that hold", partial(_share, k))
        for k in range(count)
    )
