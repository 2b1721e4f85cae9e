"""Examples of answers, and reward vectors and long texts as the commands and the site print them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vpo_envs.core import AnyEnv, Status, UnknownFront
from vpo_envs.text import bare_answer, calls_of

OTHER_TASKS = 8
"""Number of other tasks whose good answers are tried as a poor answer."""


class Example(NamedTuple):
    """An answer, without its tags, and what it earns."""

    answer: str
    vector: tuple[float, ...]
    status: Status


def good_example(env: AnyEnv, task: Any) -> Example | None:
    """Return the answer to ``task`` with the highest scalar reward, of its front or else of four demonstrations.

    ``None`` if the environment has neither of them, or they are empty.
    """
    weights = env.fixed_weights(task)
    try:
        best = max(env.front(task), key=lambda point: float(weights @ point.vector), default=None)
        return score(env, task, best.answer) if best else None
    except UnknownFront:
        try:
            answers = env.demonstrations(task, np.random.default_rng(0), 4)
        except NotImplementedError:
            return None
    examples = [score(env, task, answer) for answer in answers]
    return max(examples, key=lambda example: float(weights @ example.vector), default=None)


def poor_example(env: AnyEnv, index: int) -> Example:
    """Return the worst answer to task ``index`` among good answers to other tasks, or an empty one if none is worse."""
    task = env.task(index)
    weights = env.fixed_weights(task)
    borrowed = [good_example(env, env.task(other)) for other in range(index + 1, index + 1 + OTHER_TASKS)]
    # What they call is replied to as in this task.
    poor = [
        score(env, task, env.played(task, calls_of(example.answer), bare_answer(example.answer)))
        for example in borrowed
        if example is not None
    ]
    worst = min(poor, key=lambda example: float(weights @ example.vector), default=None)
    good = good_example(env, task)
    if worst is None or good is None or weights @ worst.vector >= weights @ good.vector:
        return score(env, task, "")
    return worst


def score(env: AnyEnv, task: Any, answer: str) -> Example:
    """Score one answer."""
    vectors, statuses, _ = env.score_answers(task, [answer])
    return Example(answer, vectors[0], statuses[0])


def show_vector(env: AnyEnv, task: Any, vector: Sequence[float]) -> str:
    """Return a reward vector with the names of its active objectives, such as ``completion 1, gold 0.25``."""
    active = env.active(task)
    columns = zip(env.objective_names, vector, active, strict=True)
    return ", ".join(f"{name} {round(float(value), 3):g}" for name, value, is_active in columns if is_active)


def show_objectives(names: Sequence[str]) -> str:
    """Return names separated by commas, with runs of numbered names shortened to ``test_1 to test_16``."""
    shown: list[str] = []
    start = 0
    while start < len(names):
        stop = start + 1
        while stop < len(names) and names[stop] == _next_name(names[stop - 1]):
            stop += 1
        run = list(names[start:stop])
        shown += run if len(run) < 3 else [f"{run[0]} to {run[-1]}"]
        start = stop
    return ", ".join(shown)


def _next_name(name: str) -> str | None:
    """Return ``hop_2`` for ``hop_1``, ``entity_B`` for ``entity_A``; ``None`` for a name without a count."""
    match = re.fullmatch(r"(.+_)(\d+|[A-Y])", name)
    if match is None:
        return None
    stem, count = match.groups()
    return f"{stem}{int(count) + 1}" if count.isdigit() else f"{stem}{chr(ord(count) + 1)}"
