"""The checks of :func:`~vpo_envs.checking.checker.check_vector_env`, one function each."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence

from vpo_envs.core import SPLITS, RewardBatch, Status, Task, UnknownFront, VectorTextEnv
from vpo_envs.text import answer_tags, format_answers

AnyEnv = VectorTextEnv[Any, Any, Any]

TOLERANCE = 1e-6
SPLIT_INSTANCES = 32
"""Instances of each split that are compared with those of the others."""
RIVALS = 32
"""Answers per instance that are compared with its front."""
HOSTILE = (
    *("", " ", "\n", "\0", "a", "0", "-1", "1e999", "NaN", "null", "[]", "{}", "[[[[", '{"a":', "<", "</", "<>"),
    *("%s", "{0}", "<answer>", "</answer>", "<answer_1>", "<think>", "</think>", "<tool_call></tool_call>"),
    *("<support>²</support>", "\ud800", "\udfff\ud800", "\u202eabc", "\ufeff", "e\u0301", "²³", "٣", "上下左右"),
    *("🙂" * 50, "İ", "ß", "\x1b[31m"),
)
HUGE = tuple(
    piece * (200_000 // len(piece)) for piece in ("a", "a ", "\0", "🙂", "<", "[", "<answer_1>", "1,", '{"a":')
)


class CheckFailed(Exception):
    """An environment breaks its contract; the message says which part and how."""


class CannotCheck(Exception):
    """A check does not apply, for this reason."""


def _statements(env: AnyEnv, instances: int) -> None:
    names = env.objective_names
    _expect(all(isinstance(name, str) and name for name in names), f"an objective has no name: {names}")
    _expect(issubclass(env.task_type, Task), f"task_type {env.task_type!r} is not a Task")
    _expect(env.reward_space.shape == (len(names),), f"reward_space {env.reward_space} is not of shape ({len(names)},)")
    for task in _tasks(env, instances):
        active = env.active(task)
        _expect(active.shape == (len(names),) and active.dtype == np.bool_, f"active is {active!r}, not d booleans")
        _expect(bool(active.any()), "no objective is active")
        weights = env.fixed_weights(task)
        _expect(bool((weights >= 0).all()) and abs(weights.sum() - 1) < TOLERANCE, f"fixed_weights is {weights}")


def _tasks_are_data(env: AnyEnv, instances: int) -> None:
    twin = copy.deepcopy(env)
    for index, task in enumerate(_tasks(env, instances)):
        _expect(isinstance(task, env.task_type), f"task({index}) is a {type(task).__name__}")
        _expect(bool(task.model_config.get("frozen")), f"{type(task).__name__} is not frozen")
        again = type(task).model_validate_json(task.model_dump_json())
        _expect(again == task, f"task({index}) does not survive a round trip through JSON")
        _expect(again.content_hash() == task.content_hash(), f"task({index}) has another content hash after JSON")
        _expect(twin.task(index) == task, f"task({index}) of a copy of the environment is another task")
        env.reset(options={"task": env.reset(options={"index": index})[1]["task"]})
        _expect(env.current_task == task, f"info['task'] of index {index} does not give the task again")


def _splits_are_disjoint(env: AnyEnv, instances: int) -> None:
    if getattr(env, "rows", ()):
        raise CannotCheck("the tasks are rows of a data set")
    seen: dict[str, str] = {}
    for split in SPLITS:
        twin = copy.copy(env)
        twin.split = split
        for index in range(SPLIT_INSTANCES):
            other = seen.setdefault(twin.task(index).content_hash(), split)
            _expect(other == split, f"task({index}) of split {split} is also in split {other}")


def _prompts(env: AnyEnv, instances: int) -> None:
    for index, task in enumerate(_tasks(env, instances)):
        for m in (1, 2, 5):
            prompt = env.prompt(task, m)
            name = f"the prompt of task({index}) for {m} answer{'s' * (m > 1)}"
            _expect(isinstance(prompt, str) and prompt != "", f"{name} is not a text, or empty")
            _expect(prompt == env.prompt(task, m), f"{name} differs from call to call")
            lacking = [tag for pair in answer_tags(m) for tag in pair if tag not in prompt]
            _expect(
                not (env.names_tags and lacking),
                f"{name} does not name {lacking}: name each tag, or set names_tags = False if the model knows them",
            )
            unwanted = [opening for n in (1, 6) if n != m for opening, _ in answer_tags(n)[m if n > 1 else 0 :]]
            found = [tag for tag in unwanted if tag in prompt]
            _expect(not found, f"{name} names {found}")


def _front(env: AnyEnv, instances: int) -> None:
    known = 0
    for index, task in enumerate(_tasks(env, instances)):
        try:
            front = env.front(task)
        except UnknownFront:
            continue
        known += 1
        _expect(len(front) > 0, f"the front of task({index}) is empty")
        vectors = np.array([point.vector for point in front])
        batch = _score_each(env, task, [point.answer for point in front])
        for point, reward, status in zip(front, batch.rewards[:, 0], batch.status[:, 0], strict=True):
            _expect(status == Status.OK, f"a front answer of task({index}) is {Status(status).name.lower()}")
            _expect(
                np.allclose(reward, point.vector, atol=TOLERANCE),
                f"a front answer of task({index}) scores {reward.tolist()}, but {list(point.vector)} is declared",
            )
        rivals = _rivals(env, task, index, [point.answer for point in front])
        for answer, vector in zip(rivals, _score_each(env, task, rivals).rewards[:, 0], strict=True):
            _expect(
                bool((vectors >= vector - TOLERANCE).all(axis=1).any()),
                f"the front of task({index}) is not complete: {answer!r:.80} scores {vector.tolist()}, which no point "
                "of the front matches or beats",
            )
    if not known:
        raise CannotCheck("the environment has no exact front")


def _rivals(env: AnyEnv, task: Any, index: int, front: list[str]) -> list[str]:
    """Return answers that may lie beyond a front: demonstrations, and answers changed or joined from two."""
    source = random.Random(index)
    demonstrations = _demonstrations(env, task, index, RIVALS)
    known = list(dict.fromkeys([*demonstrations, *front]))
    rivals = [_mutated(source, source.choice(known), [""]) for _ in range(RIVALS // 2)]
    for _ in range(RIVALS // 2):
        first, second = source.choice(known), source.choice(known)
        rivals.append(first[: source.randint(0, len(first))] + second[source.randint(0, len(second)) :])
    return list(dict.fromkeys([*demonstrations, *rivals]))


def _demonstrations_score(env: AnyEnv, instances: int) -> None:
    found = 0
    earned = False
    for index, task in enumerate(_tasks(env, instances)):
        answers = _demonstrations(env, task, index)
        batch = _score_each(env, task, answers)
        for answer, status in zip(answers, batch.status[:, 0], strict=True):
            name = Status(status).name.lower()
            _expect(status == Status.OK, f"a demonstration of task({index}) is {name}: {answer!r:.80}")
        found += len(answers)
        earned |= bool(batch.rewards.any())
    if not found:
        raise CannotCheck("the environment has no demonstrations")
    _expect(earned, "no demonstration scores above 0")


def _bounds(env: AnyEnv, instances: int) -> None:
    tasks = _tasks(env, instances)
    source = random.Random(0)
    for index, task in enumerate(tasks):
        texts = list(HOSTILE if index else (*HOSTILE, *HUGE))
        texts += [_mutated(source, answer) for answer in _demonstrations(env, task, index) for _ in range(8)]
        responses = texts + [format_answers([text, text, source.choice(HOSTILE)]) for text in texts]
        for m in (1, 3):
            for response in responses:
                try:
                    _score(env, [task], [response], m)
                except CheckFailed:
                    raise
                except Exception as error:
                    message = f"the response {response!r:.80} to task({index}) raises {type(error).__name__}: {error}"
                    raise CheckFailed(message) from error


def _determinism(env: AnyEnv, instances: int) -> None:
    source = random.Random(1)
    tasks, responses = [], []
    for index, task in enumerate(_tasks(env, instances)):
        answers = _demonstrations(env, task, index)
        for text in [*answers, *(_mutated(source, answer) for answer in answers), *source.sample(HOSTILE, 3)]:
            tasks.append(task)
            responses.append(format_answers([text, "another"]))
    first = _score(env, tasks, responses, 2)
    backwards = _score(env, tasks[::-1], responses[::-1], 2)
    for kind, again in (
        ("a second time", _score(env, tasks, responses, 2)),
        ("by a copy of the environment", _score(copy.deepcopy(env), tasks, responses, 2)),
        ("in reverse order", RewardBatch(backwards.rewards[::-1], backwards.status[::-1])),
    ):
        same = (first.rewards == again.rewards).all(axis=(1, 2)) & (first.status == again.status).all(axis=1)
        if not same.all():
            raise CheckFailed(f"scored {kind}, the response {responses[int(np.argmin(same))]!r:.80} scores differently")


def _episodes(env: AnyEnv, instances: int) -> None:
    for index in range(instances):
        observation, info = env.reset(options={"index": index})
        task, m = env.current_task, env.num_answers
        _expect(observation in env.observation_space, f"the prompt of task({index}) is not in observation_space")
        missing = {"objectives", "active_objectives", "split", "index", "task"} - set(info)
        _expect(not missing, f"info of reset lacks {sorted(missing)}")
        answers = _demonstrations(env, task, index) or ["an answer"]
        response = format_answers([answers[i % len(answers)] for i in range(m)])
        expected = _score(env, [task], [response], m).rewards[0]
        total = np.zeros(env.reward_dim)
        terminated = False
        while not terminated:
            observation, reward, terminated, truncated, info = env.step(response)
            _expect(reward in env.reward_space, f"the reward {reward} is not in reward_space")
            _expect(observation in env.observation_space, "an observation is not in observation_space")
            _expect(not truncated, "an episode is truncated")
            total += reward
        _expect(
            np.allclose(total, expected.sum(axis=0), atol=1e-4),
            f"the return of task({index}) is {total.tolist()}, but score_batch gives {expected.sum(axis=0).tolist()}",
        )


def _nothing_is_shared(env: AnyEnv, instances: int) -> None:
    def episode(scribbling: bool) -> list[Any]:
        returned: list[Any] = [env.reset(options={"index": 0})]
        answers = _demonstrations(env, env.current_task, 0) or ["an answer"]
        response = format_answers([answers[i % len(answers)] for i in range(env.num_answers)])
        kept = [copy.deepcopy(returned[-1])]
        while len(returned) == 1 or not kept[-1][2]:
            if scribbling:
                _scribble(returned[-1])
            returned.append(env.step(response))
            kept.append(copy.deepcopy(returned[-1]))
        if scribbling:
            _scribble(returned[-1])
        return kept

    reference = episode(False)
    for changed in (episode(True), episode(False)):
        same = data_equivalence(changed, reference, exact=True)
        _expect(same, "writing into what reset and step return changes what they return later")


def _spec(env: AnyEnv, instances: int) -> None:
    if env.spec is None:
        raise CannotCheck("the environment was not made by gym.make")
    again = gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    _expect(type(again) is type(env), f"the spec makes a {type(again).__name__} after a round trip through JSON")
    first, second = env.reset(seed=5), again.reset(seed=5)
    _expect(data_equivalence(first, second, exact=True), "after a round trip of the spec reset(seed=5) differs")


CHECKS: dict[str, Callable[[AnyEnv, int], None]] = {
    "objectives, weights and spaces": _statements,
    "tasks are frozen data, the same each time, and survive JSON": _tasks_are_data,
    "splits share no instance": _splits_are_disjoint,
    "prompts name the wanted tags": _prompts,
    "fronts are complete and their answers reach their vectors": _front,
    "demonstrations can be read and score": _demonstrations_score,
    "scores stay in bounds under empty, huge, Unicode and hostile text": _bounds,
    "scores are the same each time": _determinism,
    "episodes return what score_batch gives": _episodes,
    "no mutable object is shared between calls": _nothing_is_shared,
    "the spec survives JSON": _spec,
}
"""The checks, by the name that a report gives them."""


# Helpers -------------------------------------------------------------------------------------------------------------


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def _tasks(env: AnyEnv, instances: int) -> list[Any]:
    return [env.task(index) for index in range(instances)]


def _score(env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], m: int) -> RewardBatch:
    """Return ``score_batch`` of some responses after checking its shapes, bounds and statuses."""
    rewards, statuses = batch = env.score_batch(tasks, responses, m)
    shape = (len(tasks), m, env.reward_dim)
    _expect(rewards.shape == shape, f"score_batch gives rewards of shape {rewards.shape}, not {shape}")
    _expect(rewards.dtype == np.float32, f"score_batch gives rewards of {rewards.dtype}, not float32")
    _expect(statuses.shape == shape[:2], f"score_batch gives statuses of shape {statuses.shape}, not {shape[:2]}")
    for response, scores in zip(responses, rewards, strict=True):
        within = bool(((scores >= 0) & (scores <= 1)).all())
        _expect(within, f"the response {response!r:.80} scores {scores.tolist()}, which is not in [0, 1]")
    _expect(
        not (rewards.any(axis=2) & (statuses != Status.OK)).any(), "an answer whose status is not ok scores above 0"
    )
    return batch


def _demonstrations(env: AnyEnv, task: Any, index: int, count: int = 2) -> list[str]:
    """Return some demonstrations; none if the environment has none."""
    try:
        answers = env.demonstrations(task, np.random.default_rng(index), count)
    except NotImplementedError:
        return []
    _expect(len(answers) == count, f"asked for {count} demonstrations of task({index}), got {len(answers)}")
    return answers


def _score_each(env: AnyEnv, task: Any, answers: Sequence[str]) -> RewardBatch:
    """Return the scores of answers to one task, each in a response of its own."""
    return _score(env, [task] * len(answers), [format_answers([answer]) for answer in answers], 1)


def _mutated(source: random.Random, text: str, pieces: Sequence[str] = HOSTILE) -> str:
    """Return the text with a part taken out, doubled, or replaced by one of ``pieces``."""
    start, end = sorted(source.choices(range(len(text) + 1), k=2))
    piece = source.choice(["", text[start:end] * 2, source.choice(pieces)])
    return text[:start] + piece + text[end:]


def _scribble(data: Any) -> None:
    """Overwrite everything in ``data`` that can be written to."""
    if isinstance(data, dict):
        for value in list(data.values()):
            _scribble(value)
        data.clear()
    elif isinstance(data, list | tuple):
        for value in data:
            _scribble(value)
        if isinstance(data, list):
            data.clear()
    elif isinstance(data, np.ndarray) and data.flags.writeable:
        data.fill(0)
