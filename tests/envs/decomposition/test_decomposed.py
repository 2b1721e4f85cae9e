"""The environment under a decomposition: its answers are the other's, its rewards the map of the other's."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import vpo_envs
from vpo_envs import Decomposed, Decomposition, Finder, Status, UnknownFront, check_vector_env, decompose
from vpo_envs.checking.checks import CHECKS
from vpo_envs.core import VectorTextEnv
from vpo_envs.registration import make_text_env
from vpo_envs.tasks.code.compact import STEPS
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]
TESTS = {"env": "vpo/Code-v0", "preset": "compact", "objective_per": "test"}
WAYS: tuple[Finder, ...] = ("select", "cluster", "nmf", "pca")


def criteria_env(**options: Any) -> Env:
    return make_text_env("vpo/Code-v0", preset="compact", objective_per="test", **options)


def found(by: Finder, d: int = 4) -> Decomposition:
    """A decomposition of the tests, from programs around those of the instances."""
    env, rng = criteria_env(), np.random.default_rng(0)
    rewards, prompts = [], []
    for index in range(30):
        task = env.task(index)
        ways = env.ways(task)  # type: ignore[attr-defined]
        for program in [*ways, *ways, *(tuple(rng.choice(list(STEPS), 2)) for _ in range(6))]:
            rewards.append(env.reward_vector(env.evaluate(task, program)))
            prompts.append(index)
    return decompose(np.array(rewards), d, by, prompts=prompts, criteria=env.objective_names, env="vpo/Code-v0")


@pytest.mark.parametrize("by", WAYS)
def test_rewards_are_the_map_of_the_criteria_and_only_good_answers_earn(by: Finder) -> None:
    inner, decomposition = criteria_env(num_answers=3), found(by)
    env = Decomposed(inner, decomposition)
    tasks = [env.task(index) for index in range(8)]
    ways = [[" ".join(way) for way in inner.ways(task)] for task in tasks]  # type: ignore[attr-defined]
    responses = [format_answers([one[0], one[0], one[3]]) for one in ways]
    responses += [format_answers(["no program", "reverse", ""]), "", *responses[2:]]
    batch, plain = env.score_batch(tasks, responses[:8]), inner.score_batch(tasks, responses[:8])
    np.testing.assert_array_equal(batch.status, plain.status)
    wanted = decomposition.apply(plain.rewards) * (plain.status == Status.OK)[..., None]
    np.testing.assert_allclose(batch.rewards, wanted, atol=1e-6)
    outcome = inner.evaluate(tasks[0], tuple(ways[0][0].split()))
    by_objective = [objective.score(outcome) for objective in env.objectives]
    assert by_objective == pytest.approx(env.reward_vector(outcome))


@pytest.mark.parametrize("by", ["select", "cluster", "nmf"])
def test_the_front_is_that_of_all_programs(by: Finder) -> None:
    env = Decomposed(criteria_env(), found(by))
    task = env.task(1)
    programs = [program for count in (1, 2, 3) for program in itertools.product(STEPS, repeat=count)]
    reached = np.array([env.reward_vector(env.evaluate(task, program)) for program in programs]).round(9)
    distinct = np.unique(reached, axis=0)
    best = {tuple(p) for p in distinct if not ((distinct >= p).all(axis=1) & (distinct > p).any(axis=1)).any()}
    assert {tuple(np.round(point.vector, 9)) for point in env.front(task)} == best
    for point in env.front(task):
        outcome = env.evaluate(task, env.parse(point.answer))
        assert env.reward_vector(outcome) == pytest.approx(point.vector)


def test_the_front_under_negative_weights_is_unknown() -> None:
    env = Decomposed(criteria_env(), found("pca"))
    with pytest.raises(UnknownFront, match="by 'pca' is unknown, since an objective of it falls where a criterion"):
        env.front(env.task(0))


@pytest.mark.parametrize("by", WAYS)
def test_the_contract_is_kept(by: Finder, tmp_path: Path) -> None:
    found(by).save(tmp_path / "found.json")
    env = gym.make("vpo/Decomposed-v0", **TESTS, decomposition=str(tmp_path / "found.json"), num_answers=3)
    report = check_vector_env(env, 3)
    assert len(report.passed) + len(report.skipped) == sum(check.contract for check in CHECKS)
    assert not report.constant


def test_information_holds_the_criteria() -> None:
    env, inner = Decomposed(criteria_env(num_answers=2), found("cluster")), criteria_env(num_answers=2)
    _, info = env.reset(options={"index": 3})
    assert info["criteria"] == inner.objective_names
    assert info["objectives"] == ("cluster_1", "cluster_2", "cluster_3", "cluster_4")
    response = format_answers([env.front(env.task(3))[0].answer, "gibberish"])
    *_, info = env.step(response)
    inner.reset(options={"index": 3})
    *_, plain = inner.step(response)
    np.testing.assert_array_equal(info["criteria_matrix"], plain["reward_matrix"])
    assert info["outcomes"] == plain["outcomes"]
    assert env.criteria_env.objective_names == inner.objective_names


def test_copies_of_it_step_together_and_go_to_worker_processes(tmp_path: Path) -> None:
    kwargs = {**TESTS, "decomposition": found("nmf").model_dump(mode="json"), "num_answers": 1}
    env = gym.make("vpo/Decomposed-v0", **kwargs).unwrapped
    copies = gym.make_vec("vpo/Decomposed-v0", num_envs=2, **kwargs)
    prompts, _ = copies.reset(seed=4)
    answers = []
    for i in range(2):
        prompt, _ = env.reset(seed=4 + i)
        assert prompt == prompts[i]
        answers.append(format_answers([env.front(env.current_task)[0].answer]))  # type: ignore[attr-defined]
    _, rewards, *_ = copies.step(answers)
    assert (rewards.max(axis=1) > 0).all()
    last = env.step(answers[1])[1]
    np.testing.assert_array_equal(rewards[1], last)
    again = pickle.loads(pickle.dumps(env))
    again.reset(seed=5)
    np.testing.assert_array_equal(again.step(answers[1])[1], last)
    assert gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped.objectives[0].name == "nmf_1"  # type: ignore[union-attr]


def test_an_objective_without_active_criteria_is_inactive() -> None:
    code = make_text_env("vpo/Code-v0", split="validation")
    names = code.objective_names
    parts = {"early": names[:4], "late": names[12:]}
    objectives = [{"name": name, "weights": dict.fromkeys(tests, 0.25)} for name, tests in parts.items()]
    env = Decomposed(code, Decomposition.model_validate({"criteria": names, "objectives": objectives}))
    assert env.active(env.task(0)).tolist() == [True, False]
    assert env.fixed_weights(env.task(0)).tolist() == [1.0, 0.0]


def test_other_environments_can_be_decomposed() -> None:
    maze = make_text_env("vpo/Maze-v0", preset="paper")
    weights = [
        {"name": "treasure", "weights": {"gold": 0.5, "diamond": 0.5}},
        {"name": "safe", "weights": {"avoid_lava": 1.0}},
    ]
    decomposition = Decomposition.model_validate({"criteria": maze.objective_names, "objectives": weights})
    check_vector_env(Decomposed(maze, decomposition), 4)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "needs another environment and a decomposition, such as env='vpo/Code-v0'"),
        ({**TESTS, "decomposition": "no/such.json"}, "cannot read the decomposition 'no/such.json': No such file"),
        (
            {"env": "vpo/Maze-v0"},
            "fitted on vpo/Code-v0 with the criteria a_1, .* but vpo/Maze-v0 has co",
        ),
        ({**TESTS, "difficulty": {"tests": 4}}, "but vpo/Code-v0 has a_1, a_2, a_3, a_4, b_1"),
        ({**TESTS, "colour": "red"}, "takes no argument 'colour'"),
        ({"env": "vpo/Mase-v0"}, "unknown environment 'vpo/Mase-v0': did you mean vpo/Maze-v0"),
    ],
)
def test_what_does_not_fit_is_one_clear_sentence(kwargs: dict[str, Any], message: str) -> None:
    if kwargs:
        kwargs = {"decomposition": found("select").model_dump(mode="json"), **kwargs}
    with pytest.raises(ValueError, match=message) as error:
        make_text_env("vpo/Decomposed-v0", **kwargs)
    assert "\n" not in str(error.value)


def test_it_is_not_listed_with_the_environments_that_need_no_arguments() -> None:
    assert "vpo/Decomposed-v0" in gym.registry
    assert "vpo/Decomposed-v0" not in vpo_envs.registration.env_ids()
    with pytest.raises(ValueError, match="'split' is an option of the other environment"):
        Decomposed(criteria_env(), found("select"), split="test")
