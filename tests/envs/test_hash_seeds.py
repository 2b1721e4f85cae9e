"""Every environment is the same in every process, whatever order sets of texts have there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import gymnasium as gym
import pytest
from paths import ROOT

import vpo_envs  # noqa: F401 - registers the environments

PROBE = """
import hashlib, json, random, warnings
import gymnasium as gym, numpy as np, vpo_envs
from vpo_envs.checking.texts import mutated
from vpo_envs.core import SPLITS, UnknownFront, VectorTextEnv
from vpo_envs.text import format_answers

warnings.simplefilter("ignore")

def facts(env, index):
    task = env.task(index)
    yield "task", task.model_dump_json()
    yield "canonical", task.canonical
    yield "prompts", [env.prompt(task, m) for m in (1, 3)]
    yield "active", env.active(task).tolist()
    try:
        answers = env.demonstrations(task, np.random.default_rng(index), 3)
    except NotImplementedError:
        return
    yield "demonstrations", answers
    try:
        yield "front", [tuple(point) for point in env.front(task)]
    except UnknownFront:
        pass
    answers += [mutated(random.Random(index), answer) for answer in answers]
    batch = env.score_batch([task], [format_answers(answers)], len(answers))
    yield "scores", [batch.rewards.tolist(), batch.status.tolist()]

def steps(env):
    env.action_space.seed(0)
    yield "reset", repr(env.reset(seed=0))
    for number in range(20):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        yield f"step {number}", repr((observation, reward, info))
        if terminated or truncated:
            return

told = {}
for env_id in filter(lambda known: known.startswith("vpo/"), gym.registry):
    for preset in ("paper", "conflict", "compact"):
        for split in SPLITS:
            try:
                env = gym.make(env_id, preset=preset, split=split).unwrapped
            except ValueError as error:
                assert "unknown preset" in str(error), error
                continue
            of_env = f"{env_id} {preset} {split}"
            if not isinstance(env, VectorTextEnv):
                told |= {f"{of_env} {name}": fact for name, fact in steps(env)}
                continue
            for index in range(2):
                told |= {f"{of_env} {index} {name}": fact for name, fact in facts(env, index)}
            row = getattr(env, "example_row", None)
            if row and preset == "paper":
                told[f"{of_env} row"] = env.read_row(dict(row)).model_dump_json()
print(json.dumps({name: hashlib.md5(repr(fact).encode()).hexdigest() for name, fact in told.items()}))
"""


@pytest.mark.slow
def test_tasks_prompts_fronts_and_rewards_are_the_same_under_every_hash_seed() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROBE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for seed in ("1", "2")
    ]
    first, second = (json.loads(process.communicate()[0]) for process in processes)
    assert {name.partition(" ")[0] for name in first} == {known for known in gym.registry if known.startswith("vpo/")}
    assert len(first) > 800
    assert [name for name in first if first[name] != second.get(name)] == []
    assert first.keys() == second.keys()
