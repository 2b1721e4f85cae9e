"""What the command and the gallery print: environments by id, examples of answers, reward vectors as text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from vpo_envs.core import Status, UnknownFront, Unparsable, VectorTextEnv

AnyTextEnv = VectorTextEnv[Any, Any, Any]

PROMPT_CHARS = 1600
"""From this length on the middle of a text is left out."""
TAIL_SHARE = 0.45
"""How much of what is kept comes from the end, where the question and the rules stand."""
OTHER_TASKS = 4
"""How many other tasks are asked for an answer that is poor here."""


class CommandError(ValueError):
    """What was asked for cannot be done; the message is one sentence that says why."""


class Example(NamedTuple):
    """An answer (what stands inside the tags) and what it earns."""

    answer: str
    vector: tuple[float, ...]
    status: Status


def env_ids() -> list[str]:
    """The ids in the namespace ``vpo``, in alphabetical order."""
    return sorted((env_id for env_id in gym.registry if env_id.startswith("vpo/")), key=str.lower)


def text_env_ids() -> list[str]:
    """Those of them that answer in text."""
    return [env_id for env_id in env_ids() if issubclass(env_type(env_id), VectorTextEnv)]


def make_text_env(env_id: str, **kwargs: Any) -> AnyTextEnv:
    """A text environment by its id; it renders text if it can.

    Raises:
        CommandError: Unknown id, not a text environment, or arguments that it does not take.
    """
    known = ", ".join(text_env_ids())
    try:
        made_of = env_type(env_id)
    except (gym.error.Error, ImportError, AttributeError):
        near = get_close_matches(env_id.lower(), map(str.lower, text_env_ids()), n=1)
        meant = "".join(f"did you mean {known_id}? " for known_id in text_env_ids() if known_id.lower() in near)
        raise CommandError(f"unknown environment {env_id!r}: {meant}choose one of {known}") from None
    if not issubclass(made_of, VectorTextEnv):
        raise CommandError(f"{env_id} does not answer in text: choose one of {known}")
    taken = inspect.signature(made_of).parameters
    unknown = [name for name in kwargs if name not in taken]
    if unknown and all(parameter.kind is not parameter.VAR_KEYWORD for parameter in taken.values()):
        raise CommandError(f"{env_id} takes no argument {unknown[0]!r}: it takes {', '.join(taken)}")
    if not isinstance(kwargs.get("num_answers", 1), int):
        raise CommandError(f"num_answers must be a whole number, got {kwargs['num_answers']!r}")
    if "ansi" in made_of.metadata["render_modes"]:
        kwargs = {"render_mode": "ansi", **kwargs}
    try:
        env = gym.make(env_id, **kwargs).unwrapped
    except (ValueError, TypeError, AttributeError, gym.error.Error, ImportError) as error:
        reason = " ".join(str(error).split()).partition(" was raised from the environment creator")[0]
        raise CommandError(f"{env_id} cannot be made: {reason}") from None
    assert isinstance(env, VectorTextEnv)
    return env


def good_example(env: AnyTextEnv, task: Any) -> Example | None:
    """The best answer to ``task`` by its scalar weights: of the front, or else of four demonstrations.

    Returns:
        ``None`` where the environment has neither.
    """
    try:
        answers = [point.answer for point in env.front(task)]
    except UnknownFront:
        try:
            answers = env.demonstrations(task, np.random.default_rng(0), 4)
        except NotImplementedError:
            return None
    weights = env.fixed_weights(task)
    examples = [score(env, task, answer) for answer in answers]
    return max(examples, key=lambda example: float(weights @ example.vector), default=None)


def poor_example(env: AnyTextEnv, index: int) -> Example:
    """A good answer to another task that earns less on task ``index``; an empty one where there is none."""
    task = env.task(index)
    weights = env.fixed_weights(task)
    good = good_example(env, task)
    if good is not None:
        for other in range(index + 1, index + 1 + OTHER_TASKS):
            borrowed = good_example(env, env.task(other))
            if borrowed is None:
                break
            poor = score(env, task, borrowed.answer)
            if weights @ poor.vector < weights @ good.vector:
                return poor
    return score(env, task, "")


def score(env: AnyTextEnv, task: Any, answer: str) -> Example:
    """Score one answer."""
    vectors, statuses, _ = env.score_answers(task, [answer])
    return Example(answer, vectors[0], statuses[0])


def show_vector(env: AnyTextEnv, task: Any, vector: Sequence[float]) -> str:
    """A reward vector with the names of its active objectives, such as ``completion 1, gold 0.25``."""
    active = env.active(task)
    parts = zip(env.objective_names, vector, active, strict=True)
    return ", ".join(f"{name} {round(float(value), 3):g}" for name, value, counts in parts if counts)


def show_objectives(names: Sequence[str]) -> str:
    """Names apart by commas; three or more that count up stand as ``test_1 to test_16``."""
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


def unparsable_reason(env: AnyTextEnv, text: str) -> str:
    """Why ``text`` is not an answer; empty where it is one."""
    try:
        env.parse(text)
    except Unparsable as error:
        return str(error)
    return ""


def cut(text: str, limit: int = PROMPT_CHARS) -> str:
    """``text`` with whole lines of its middle left out where it is longer than ``limit`` characters.

    A single line that is longer than its part of the limit is broken.
    """
    if len(text) <= limit:
        return text
    tail_chars = int(limit * TAIL_SHARE)
    head, tail = text[: limit - tail_chars], text[-tail_chars:]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail.rstrip("\n") else tail
    return f"{head}\n[… {len(text) - len(head) - len(tail):,} characters …]\n{tail}"


def env_type(env_id: str) -> type[Any]:
    """The class behind an id; ``object`` where the entry point is a function."""
    entry_point = gym.spec(env_id).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    return creator if isinstance(creator, type) else object


def _next_name(name: str) -> str | None:
    """``hop_2`` for ``hop_1``, ``entity_B`` for ``entity_A``; ``None`` for a name that does not count."""
    match = re.fullmatch(r"(.+_)(\d+|[A-Y])", name)
    if match is None:
        return None
    stem, count = match.groups()
    return f"{stem}{int(count) + 1}" if count.isdigit() else f"{stem}{chr(ord(count) + 1)}"
