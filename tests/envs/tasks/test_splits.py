"""Held out means held out: no two splits share what a task is but for an order or arbitrary names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

from vpo_envs.core import SPLITS
from vpo_envs.registration import env_type, text_env_ids

SLOW = {"vpo/Maze-v0": 12, "vpo/Countdown-v0": 8, "vpo/Personas-v0": 6}
"""Tasks of a split that are compared where drawing one with conflict takes long."""
PRESETS: list[tuple[str, dict[str, Any], int]] = [
    (env_id, {"preset": preset}, SLOW.get(env_id, 60))
    for env_id in text_env_ids()
    for preset in env_type(env_id).presets
]
"""Every preset of every id, and how many tasks of a split are compared."""
SMALL: list[tuple[str, str, dict[str, Any], int]] = [
    ("vpo/Maze-v0", "paper", {"size": 5, "opened": (2, 12), "gold": (1, 2), "diamonds": (1, 2), "lava": (0, 2)}, 600),
    ("vpo/Countdown-v0", "conflict", {"count": 3, "numbers": (1, 6), "min_set_gain": 1, "min_vector_gain": 1}, 50),
    ("vpo/Tools-v0", "paper", {"requests": (1, 1), "no_call": 0}, 1000),
    ("vpo/Personas-v0", "paper", {"personas": 2, "checks": (1, 1)}, 600),
    ("vpo/GSM8K-v0", "paper", {"events": (0, 0)}, 100),
    ("vpo/Code-v0", "compact", {"common": (1, 1)}, 100),
]
"""Knobs with which tasks repeat."""


@pytest.mark.parametrize(
    ("env_id", "options", "count"),
    [*PRESETS, *((env_id, {"preset": preset, "difficulty": knobs}, count) for env_id, preset, knobs, count in SMALL)],
    ids=lambda value: None if isinstance(value, int) else str(value),
)
def test_no_canonical_content_is_in_two_splits(env_id: str, options: dict[str, Any], count: int) -> None:
    splits = defaultdict(set)
    for split in SPLITS:
        env: Any = gym.make(env_id, split=split, **options).unwrapped
        for index in range(count):
            task = env.task(index)
            assert task.split == split
            splits[task.canonical].add(split)
    assert [content for content, found in splits.items() if len(found) > 1] == []


def reversed_fields(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda task: {name: getattr(task, name)[::-1] for name in names}


def reversed_requests(task: Any) -> dict[str, Any]:
    return {
        "market": {**task.market.model_dump(), "requests": task.market.requests[::-1]},
        "instructions": "other names",
        "dialogue": "another opening",
    }


ALL = ("paper", "conflict", "compact")
OTHERWISE: dict[tuple[str, str], Callable[[Any], dict[str, Any]]] = {
    **{("vpo/Countdown-v0", preset): reversed_fields("numbers", "targets") for preset in ALL},
    **{("vpo/MuSiQue-v0", preset): reversed_fields("paragraphs") for preset in ALL[:2]},
    **{("vpo/EUREQA-v0", preset): reversed_fields("clues", "facts") for preset in ALL[:2]},
    **{("vpo/Code-v0", preset): reversed_fields("tests") for preset in ALL[:2]},
    ("vpo/Programs-v0", "paper"): lambda task: {"tests": task.tests[::-1], "statement": "the same examples elsewhere"},
    ("vpo/Programs-v0", "compact"): reversed_fields("shown", "hidden"),
    ("vpo/RewardModels-v0", "paper"): reversed_fields("references"),
    ("vpo/Tools-v0", "conflict"): reversed_requests,
    ("vpo/Tools-v0", "paper"): lambda task: {
        "calls": task.calls[::-1],
        "instructions": "other names",
        "dialogue": "other words",
    },
    **{
        ("vpo/Personas-v0", preset): lambda task: {"personas": [own[::-1] for own in task.personas[::-1]]}
        for preset in ALL[:2]
    },
    ("vpo/GSM8K-v0", "paper"): lambda task: {"question": task.question.replace(task.question.split()[0], "Ann")},
    ("vpo/Archive-v0", "paper"): reversed_fields("paragraphs"),
    **{("vpo/Archive-v0", preset): reversed_fields("documents") for preset in ALL[1:]},
    ("vpo/EUREQA-v0", "compact"): reversed_fields("links"),
    ("vpo/MuSiQue-v0", "compact"): reversed_fields("paragraphs", "readings"),
    ("vpo/Tools-v0", "compact"): reversed_fields("needs", "tools"),
    ("vpo/Code-v0", "compact"): reversed_fields("own", "places", "inputs"),
}
"""The same task told in another order, or with other names that no answer holds."""
WITHOUT_ORDER = {("vpo/Maze-v0", preset) for preset in ALL} | {("vpo/Functions-v0", "paper")}
"""Presets whose tasks can be told in one way alone."""


def test_every_preset_is_told_otherwise_or_has_no_order() -> None:
    presets = {(env_id, preset) for env_id in text_env_ids() for preset in env_type(env_id).presets}
    assert OTHERWISE.keys() | WITHOUT_ORDER >= presets
    assert not OTHERWISE.keys() & WITHOUT_ORDER


@pytest.mark.parametrize(("env_id", "preset"), OTHERWISE)
def test_another_order_is_the_same_task_and_another_index_a_different_one(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    task = env.task(1)
    fields = {**task.model_dump(), **OTHERWISE[env_id, preset](task)}
    told = type(task).model_validate(fields)
    assert told != task
    assert told.canonical == task.canonical
    assert told.split == task.split
    assert any(env.task(index).canonical != task.canonical for index in (2, 3))


def test_a_reply_is_the_same_task_whatever_the_tools_around_it() -> None:
    env: Any = gym.make("vpo/Tools-v0", preset="paper", difficulty={"no_call": 1}).unwrapped
    task = env.task(0)
    told = task.model_copy(update={"instructions": "other tools", "avoid": task.avoid[::-1]})
    assert (told.canonical, told.split) == (task.canonical, task.split)
    assert env.task(1).canonical != task.canonical


def test_compact_programs_are_the_same_task_where_their_steps_commute() -> None:
    env: Any = gym.make("vpo/Code-v0", preset="compact").unwrapped
    one = env.task(0).model_copy(
        update={"common": ("double", "reverse"), "own": ("sort", "even", "head"), "places": (2, 2, 2)}
    )
    assert one.canonical == one.model_copy(update={"common": ("reverse", "double")}).canonical
    assert one.canonical != one.model_copy(update={"common": ("rotate", "double")}).canonical
    assert one.canonical != one.model_copy(update={"own": ("sort", "even", "unique")}).canonical
