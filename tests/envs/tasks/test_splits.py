"""Held out means held out: no two splits share what a task is but for an order or arbitrary names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import SPLITS

MODES = ("paper", "conflict")
COMPACT = ("EUREQACompact", "MuSiQueCompact", "ToolsCompact", "CodeCompact")
PRESETS: list[tuple[str, dict[str, Any], int]] = [
    *(("vpo/Maze-v0", {"preset": preset}, 300) for preset in ("paper", "embedded", "embedded-easy")),
    ("vpo/Maze-v0", {"preset": "conflict"}, 60),
    *(("vpo/Countdown-v0", {"preset": preset}, 60) for preset in ("conflict", "classic", "embedded")),
    *((f"vpo/{name}-v0", {"mode": mode}, 300) for name in ("MuSiQue", "EUREQA", "Tools", "Code") for mode in MODES),
    *(("vpo/Personas-v0", {"mode": mode}, 30) for mode in MODES),
    *((f"vpo/{name}-v0", {}, 300) for name in ("GSM8K", *COMPACT)),
]
"""Every preset of every id, and how many instances of a split are compared: fewer where drawing one takes long."""
SMALL: list[tuple[str, dict[str, Any], int]] = [
    ("vpo/Maze-v0", {"size": 5, "opened": (2, 12), "gold": (1, 2), "diamonds": (1, 2), "lava": (0, 2)}, 600),
    ("vpo/Countdown-v0", {"count": 3, "numbers": (1, 6), "min_set_worth": 1, "min_vector_worth": 1}, 300),
    ("vpo/Tools-v0", {"requests": (1, 1), "no_call": 0}, 1000),
    ("vpo/Personas-v0", {"personas": 2, "checks": (1, 1)}, 600),
    ("vpo/GSM8K-v0", {"events": (0, 0)}, 300),
    ("vpo/CodeCompact-v0", {"common": (1, 1)}, 300),
]
"""Knobs with which instances repeat."""


@pytest.mark.parametrize(
    ("env_id", "options", "count"),
    [*PRESETS, *((env_id, {"difficulty": knobs}, count) for env_id, knobs, count in SMALL)],
    ids=lambda value: None if isinstance(value, int) else str(value),
)
def test_no_canonical_content_is_in_two_splits(env_id: str, options: dict[str, Any], count: int) -> None:
    splits = defaultdict(set)
    for split in SPLITS:
        env: Any = gym.make(env_id, split=split, **options).unwrapped
        for index in range(count):
            splits[env.task(index).canonical].add(split)
    assert [content for content, found in splits.items() if len(found) > 1] == []


def reversed_fields(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda task: {name: getattr(task, name)[::-1] for name in names}


OTHERWISE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "vpo/Countdown-v0": reversed_fields("numbers", "targets"),
    "vpo/MuSiQue-v0": reversed_fields("paragraphs"),
    "vpo/EUREQA-v0": reversed_fields("clues", "facts"),
    "vpo/Tools-v0": lambda task: {"calls": task.calls[::-1], "instructions": "other names", "dialogue": "other words"},
    "vpo/Personas-v0": lambda task: {"personas": [own[::-1] for own in task.personas[::-1]]},
    "vpo/GSM8K-v0": lambda task: {"question": task.question.replace(task.question.split()[0], "Ann")},
    "vpo/EUREQACompact-v0": reversed_fields("links"),
    "vpo/MuSiQueCompact-v0": reversed_fields("paragraphs", "readings"),
    "vpo/ToolsCompact-v0": reversed_fields("needs", "tools"),
    "vpo/CodeCompact-v0": reversed_fields("own", "inputs"),
}
"""The same task told in another order, or with other names that no answer holds."""


@pytest.mark.parametrize("env_id", OTHERWISE)
def test_another_order_is_the_same_task_and_another_index_a_different_one(env_id: str) -> None:
    env: Any = gym.make(env_id).unwrapped
    task = env.task(1)
    fields = {**task.model_dump(), **OTHERWISE[env_id](task)}
    told = type(task).model_validate(fields)
    assert told != task
    assert told.canonical == task.canonical
    assert env.task(2).canonical != task.canonical


def test_compact_programs_are_the_same_task_where_their_steps_commute() -> None:
    env: Any = gym.make("vpo/CodeCompact-v0").unwrapped
    one = env.task(0).model_copy(update={"common": ("double", "reverse"), "own": ("sort", "even", "head")})
    assert one.canonical == one.model_copy(update={"common": ("reverse", "double")}).canonical
    assert one.canonical != one.model_copy(update={"common": ("rotate", "double")}).canonical
    assert one.canonical != one.model_copy(update={"own": ("sort", "even", "unique")}).canonical
