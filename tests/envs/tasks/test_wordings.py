"""Prompts of natural presets: three wordings, which the task chooses, and trade-offs only where there are some."""

from __future__ import annotations

import itertools
import re
from typing import Any

import gymnasium as gym
import pytest

from vpo_envs.registration import env_type, text_env_ids
from vpo_envs.tasks.code.task import WORDINGS
from vpo_envs.tasks.generation import worded
from vpo_envs.tasks.personas.task import WORDINGS as PERSONAS

NATURAL = [(env_id, preset) for env_id in text_env_ids() for preset in env_type(env_id).presets if preset != "compact"]
WITHOUT_CONFLICT = {
    *(("vpo/MuSiQue-v0", "paper"), ("vpo/EUREQA-v0", "paper"), ("vpo/Personas-v0", "paper"), ("vpo/Code-v0", "paper")),
    *(("vpo/Programs-v0", "paper"), ("vpo/Tools-v0", "paper"), ("vpo/RewardModels-v0", "paper")),
}
"""Presets in which one answer can have everything."""


def wording_of(env_id: str, preset: str, task: Any) -> int:
    """Return the number of the wording that a task's prompt should have."""
    if env_id == "vpo/Personas-v0":
        return next(i for i, known in enumerate(PERSONAS) if known.persona.format(number=1) in task.request)
    if env_id == "vpo/Archive-v0":
        return int(task.wording if preset == "conflict" else int(task.content_hash(), 16) % 3)
    return worded(task, range(3))


@pytest.mark.parametrize(("env_id", "preset"), NATURAL)
def test_a_prompt_has_one_of_three_wordings(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    tasks = [env.task(index) for index in range(30)]
    # What all prompts of one wording say in the same words, those of another do not.
    said: dict[int, set[str]] = {}
    for task in tasks:
        sentences = set(re.split(r"(?<=[.:?!])\s+|\n", env.prompt(task, 3)))
        number = wording_of(env_id, preset, task)
        said[number] = said.get(number, sentences) & sentences
    if len({task.canonical for task in tasks}) > 10:  # there are seven problems with conflict
        assert set(said) == {0, 1, 2}
    assert all(said[one] - said[other] for one, other in itertools.permutations(said, 2))


@pytest.mark.parametrize(("env_id", "preset"), NATURAL)
def test_trade_offs_are_asked_for_where_there_are_some(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    prompts = [env.prompt(env.task(index), 3) for index in range(12)]
    if (env_id, preset) in WITHOUT_CONFLICT:
        assert not any("trade-off" in prompt for prompt in prompts)
    elif env_id not in ("vpo/Code-v0", "vpo/Tools-v0"):  # which speak of readings, and of sub-requests
        assert all("trade-off" in prompt for prompt in prompts)
    assert not any("than copies" in prompt for prompt in prompts)


UNSAID = re.compile(r"\bgoals?\b|\bevenly\b|\bworthless\b|\bcosts points\b", re.IGNORECASE)
"""What prompts call otherwise: they speak of objectives, and say how a score decreases."""


# Parameters of bundled programming problems may be called goal; those of "conflict" have the same wordings.
WORDED = sorted({*NATURAL, ("vpo/Maze-v0", "paper"), ("vpo/Maze-v0", "conflict")} - {("vpo/Code-v0", "paper")})


@pytest.mark.parametrize(("env_id", "preset"), WORDED)
@pytest.mark.parametrize("num_answers", [1, 3])
def test_prompts_use_the_words_of_the_glossary(env_id: str, preset: str, num_answers: int) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    prompts = [env.prompt(env.task(index), num_answers) for index in range(12)]
    assert [found[0] for prompt in prompts if (found := UNSAID.search(prompt))] == []


def test_code_with_readings_says_so_for_one_answer_too() -> None:
    env: Any = gym.make("vpo/Code-v0", preset="conflict").unwrapped
    for index in range(12):
        task = env.task(index)
        wording = worded(task, WORDINGS)
        assert wording.readings in env.prompt(task, 1)
        assert wording.follow not in env.prompt(task, 1)
        assert f"{wording.readings} {wording.follow}" in env.prompt(task, 3)


def test_eureqa_says_how_many_worlds_fit() -> None:
    env: Any = gym.make("vpo/EUREQA-v0", preset="conflict").unwrapped
    for index in range(12):
        task = env.task(index)
        last = env.prompt(task, 1).split("Entity F is")[-1]
        assert f"{len(task.worlds)} " in last


def test_code_says_which_names_need_no_import_and_that_constants_earn_nothing() -> None:
    code, programs = (gym.make(env_id, preset="paper").unwrapped for env_id in ("vpo/Code-v0", "vpo/Programs-v0"))
    for index in range(8):
        prompt = code.prompt(code.task(index), 1)  # type: ignore[attr-defined]
        assert "`deque`" in prompt
        assert "one and the same result" in prompt or "same result" in prompt or "one result" in prompt
        assert "same result" not in programs.prompt(programs.task(index), 1)  # type: ignore[attr-defined]
