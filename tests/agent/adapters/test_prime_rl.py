"""The prime-rl adapter, against prime-rl's own classes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "prime_rl.orchestrator.algo", reason="prime-rl is not on PyPI: put its source on PYTHONPATH, see docs/adapters.md"
)

import verifiers.v1 as vf
from prime_rl.configs.algorithm import GRPOAlgoConfig
from prime_rl.orchestrator.algo import ALGORITHM_CLASSES, build_algorithm
from transformers import AutoTokenizer
from verifiers.v1.graph import MessageNode

from envs_data import bundled_model_path
from vpo_agent.adapters.prime_rl import register
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_envs.adapters.verifiers import VectorTaskset, VectorTasksetConfig, text_env
from vpo_envs.text import format_answers

MODEL = str(bundled_model_path("tiny-maze"))
SETTINGS = {"env": "vpo/Maze-v0", "num_answers": 2, "env_kwargs": {"preset": "embedded", "prompt_style": "compact"}}
PROMPT = [0, 1]
"""Tokens before the response."""


@pytest.fixture(autouse=True)
def restored() -> Any:
    before = dict(ALGORITHM_CLASSES)
    yield
    ALGORITHM_CLASSES.update(before)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


def group(tokenizer: Any) -> tuple[Any, list[vf.Episode]]:
    """A task and four scored rollouts to it: the front, one point of it twice, nothing, and one that failed."""
    task = next(iter(VectorTaskset(VectorTasksetConfig(**SETTINGS, size=1))))
    env = text_env(task.data)
    front = [point.answer for point in env.front(env.task(0))]
    replies = [format_answers(front[:2], 2), format_answers([front[0], front[0]], 2), "", format_answers(front[:1], 2)]
    episodes = []
    for place, reply in enumerate(replies):
        tokens = tokenizer(reply, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        nodes = [
            MessageNode(
                parent=None, message=vf.UserMessage(content="?"), sampled=False, token_ids=PROMPT, mask=[False, False]
            ),
            MessageNode(
                parent=0,
                message=vf.AssistantMessage(content=reply),
                sampled=True,
                token_ids=tokens,
                mask=[True] * len(tokens),
                logprobs=[-1.0] * len(tokens),
            ),
        ]
        trace = vf.Trace(
            task=vf.TraceTask(type="VectorTask", data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=nodes,
            ok=place != 3,
        )
        asyncio.run(task.score(trace))
        # What the orchestrator gets has been through the wire, where the task's class is not known.
        wire = vf.WireTrace.model_validate(trace.model_dump())
        info = {"env": vf.EnvInfo(id="maze"), "task": wire.task, "group": vf.GroupInfo(id="group")}
        episodes.append(vf.WireEpisode(**info, traces=[wire]))
    return task, episodes


def run(method: str, episodes: list[vf.Episode]) -> None:
    register(method, num_weights=64)
    algorithm = build_algorithm(GRPOAlgoConfig(), SimpleNamespace(model_name=MODEL))
    asyncio.run(algorithm.setup())
    asyncio.run(algorithm.finalize_group(episodes))


def set_advantages(task: Any, episodes: list[vf.Episode]) -> np.ndarray:
    """The paper's advantages of the rollouts without an error, from the definition."""
    env = text_env(task.data)
    instance = env.task(0)
    weights = draw_weights([prompt_key(instance.content_hash())], num_objectives=env.reward_dim, num_weights=64)[0]
    matrices = [np.array(one.traces[0].info["reward_matrix"]) for one in episodes[:3]]
    scores = np.array([(weights @ matrix.T).max(axis=1).mean() for matrix in matrices])
    return (scores - scores.mean()) / (scores.std() + 1e-6)


def test_each_token_gets_the_standardised_set_score(tokenizer: Any) -> None:
    task, episodes = group(tokenizer)
    run("vpo", episodes)
    expected = set_advantages(task, episodes)
    assert np.ptp(expected) > 1
    for episode, advantage in zip(episodes[:3], expected, strict=True):
        (branch,) = episode.traces[0].branches
        assert branch.advantages == pytest.approx([0.0, 0.0] + [advantage] * (len(branch.token_ids) - 2), abs=1e-4)
    assert episodes[3].traces[0].nodes[1].advantages is None, "a rollout with an error is in no group"


def test_credit_differs_between_answers_and_is_the_same_within_one(tokenizer: Any) -> None:
    task, episodes = group(tokenizer)
    run("vpo_credit", episodes)
    expected = set_advantages(task, episodes)
    node = episodes[1].traces[0].nodes[1]
    second = next(place for place, token in enumerate(node.token_ids) if tokenizer.decode([token]) == "<answer_2>")
    first_answer, second_answer = node.advantages[:second], node.advantages[second:-1]
    assert len(set(np.round(second_answer, 5))) == 1
    assert first_answer[0] > second_answer[0], "the second answer repeats the first, and adds nothing"
    assert node.advantages[-1] == pytest.approx(expected[1], abs=1e-4), "the end of the response is in no answer"


def test_a_taskset_without_a_matrix_and_methods_without_a_place_are_one_sentence(tokenizer: Any) -> None:
    _, episodes = group(tokenizer)
    del episodes[0].traces[0].info["reward_matrix"]
    with pytest.raises(ValueError, match="has no reward_matrix: write the taskset with vpo export verifiers"):
        run("vpo", episodes)
    with pytest.raises(ValueError, match="vpo_process needs values of unfinished answers"):
        register("vpo_process")
    with pytest.raises(ValueError, match="goal_conditioned needs weights in the prompt"):
        register("goal_conditioned")
    with pytest.raises(ValueError, match="sft is no algorithm of prime-rl with the loss rl: choose one of grpo"):
        register("vpo", replaces="sft")
