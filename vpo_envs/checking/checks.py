"""The checks of :func:`~vpo_envs.checking.checker.check_vector_env`, one function each."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence
from numpy.typing import NDArray

from vpo_envs.core import FAILURES, SPLITS, RewardBatch, Status, Task, UnknownFront, Unparsable, VectorTextEnv
from vpo_envs.errors import NothingToScoreWith
from vpo_envs.text import answer_tags, format_answers, split_answers
from vpo_envs.wording import counted

AnyEnv = VectorTextEnv[Any, Any, Any]

TOLERANCE = 1e-6
SPLIT_INSTANCES = 32
"""Instances of each split that are compared with those of the others."""
RIVALS = 32
"""Answers of each kind per instance that are compared with its front."""
REPEATS = 20
"""Number of times that an answer is scored again where answers are evaluated one by one."""
ECHOES = 8
"""Smallest number of tasks whose prompts are sent back."""
GRID_OUTCOMES = 64
"""Outcomes of each fact grid on which objectives are compared."""
WORD = re.compile(r"\w+")
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


class Subject:
    """The environment under test, its first tasks, and what its answers have scored so far."""

    def __init__(self, env: AnyEnv, instances: int) -> None:
        self.env = env
        self.instances = instances
        self.vectors: list[NDArray[np.float64]] = []
        """Vectors of all valid answers so far, shape (n, d) each; NaN for inactive objectives."""

    @cached_property
    def tasks(self) -> list[Any]:
        """The first instances of the environment's split."""
        return [self.env.task(index) for index in range(self.instances)]

    @cached_property
    def known(self) -> list[list[str]]:
        """For each task the answers of its front and some demonstrations; empty where there are neither."""
        return [
            list(dict.fromkeys([*_answers_from(self.env.front, task), *demonstrations_of(self.env, task, index)]))
            for index, task in enumerate(self.tasks)
        ]

    def score(self, tasks: Sequence[Any], responses: Sequence[str], m: int, env: AnyEnv | None = None) -> RewardBatch:
        """Return ``score_batch`` of some responses after checking its shapes, bounds and statuses."""
        env = env or self.env
        try:
            rewards, statuses = batch = env.score_batch(tasks, responses, m)
        except NothingToScoreWith:
            raise
        except Exception as error:
            raise CheckFailed(_blame(env, tasks, responses, m, error)) from error
        shape = (len(tasks), m, env.reward_dim)
        _expect(rewards.shape == shape, f"score_batch gives rewards of shape {rewards.shape}, not {shape}")
        _expect(rewards.dtype == np.float32, f"score_batch gives rewards of {rewards.dtype}, not float32")
        _expect(statuses.shape == shape[:2], f"score_batch gives statuses of shape {statuses.shape}, not {shape[:2]}")
        for response, scores in zip(responses, rewards, strict=True):
            within = bool(((scores >= 0) & (scores <= 1)).all())
            _expect(within, f"the response {response!r:.80} scores {scores.tolist()}, which is not in [0, 1]")
        valid = statuses == Status.OK
        _expect(not (rewards.any(axis=2) & ~valid).any(), "an answer whose status is not ok scores above 0")
        for task, scores, ok in zip(tasks, rewards, valid, strict=True):
            self.vectors.append(np.where(env.active(task), scores[ok], np.nan))
        return batch

    @cached_property
    def trials(self) -> tuple[list[Any], list[str]]:
        """Tasks and responses of two answers each, the first of them known, changed at random, guessed or hostile."""
        source = random.Random(1)
        tasks, responses = [], []
        for index, task in enumerate(self.tasks):
            answers = self.known[index][-2:] or _guesses(source, self.env.prompt(task, 1))
            for text in [*answers, *(mutated(source, answer) for answer in answers), *source.sample(HOSTILE, 3)]:
                tasks.append(task)
                responses.append(format_answers([text, "another"]))
        return tasks, responses

    def echo(self, task: Any) -> NDArray[np.float32]:
        """Return the vectors (2, d) of a task's prompt, sent back as a response and as an answer."""
        prompt = self.env.prompt(task, 1)
        return self.score([task] * 2, [prompt, format_answers([prompt])], 1).rewards[:, 0]

    def score_each(self, task: Any, answers: Sequence[str]) -> RewardBatch:
        """Return the scores of answers to one task, each in a response of its own."""
        return self.score([task] * len(answers), [format_answers([answer]) for answer in answers], 1)


def _statements(it: Subject) -> None:
    env, names = it.env, it.env.objective_names
    _expect(all(isinstance(name, str) and name for name in names), f"an objective has no name: {names}")
    _expect(issubclass(env.task_type, Task), f"task_type {env.task_type!r} is not a Task")
    _expect(env.reward_space.shape == (len(names),), f"reward_space {env.reward_space} is not of shape ({len(names)},)")
    for task in it.tasks:
        active = env.active(task)
        _expect(active.shape == (len(names),) and active.dtype == np.bool_, f"active is {active!r}, not d booleans")
        _expect(bool(active.any()), "no objective is active")
        same = all(np.array_equal(active, again) for again in (env.active(task) for _ in range(REPEATS)))
        _expect(same, f"active differs from call to call: {active.tolist()} at first")
        weights = env.fixed_weights(task)
        _expect(bool((weights >= 0).all()) and abs(weights.sum() - 1) < TOLERANCE, f"fixed_weights is {weights}")


def _tasks_are_data(it: Subject) -> None:
    env, twin = it.env, copy.deepcopy(it.env)
    for index, task in enumerate(it.tasks):
        _expect(isinstance(task, env.task_type), f"task({index}) is a {type(task).__name__}")
        _expect(bool(task.model_config.get("frozen")), f"{type(task).__name__} is not frozen")
        again = type(task).model_validate_json(task.model_dump_json())
        _expect(again == task, f"task({index}) does not survive a round trip through JSON")
        _expect(again.content_hash() == task.content_hash(), f"task({index}) has another content hash after JSON")
        _expect(twin.task(index) == task, f"task({index}) of a copy of the environment is another task")
        env.reset(options={"task": env.reset(options={"index": index})[1]["task"]})
        _expect(env.current_task == task, f"info['task'] of index {index} does not give the task again")


def _splits_are_disjoint(it: Subject) -> None:
    if getattr(it.env, "rows", ()):
        raise CannotCheck("the tasks are rows of a data set")
    seen: dict[str, str] = {}
    for split in SPLITS:
        twin = copy.copy(it.env)
        twin.split = split
        for index in range(SPLIT_INSTANCES):
            other = seen.setdefault(twin.task(index).canonical, split)
            _expect(other == split, f"task({index}) of split {split} is also in split {other}")


def _prompts(it: Subject) -> None:
    env = it.env
    asked: dict[str, tuple[int, str]] = {}
    for index, task in enumerate([*it.tasks, env.task(it.instances)]):
        for m in sorted({1, 2, 3, 5, env.num_answers}):
            prompt = env.prompt(task, m)
            name = f"the prompt of task({index}) for {counted(m, 'answer')}"
            _expect(isinstance(prompt, str) and prompt != "", f"{name} is not a text, or empty")
            _expect(prompt == env.prompt(task, m), f"{name} differs from call to call")
            lacking = [tag for pair in answer_tags(m) for tag in pair if tag not in prompt]
            _expect(
                not (env.names_tags and lacking),
                f"{name} does not name {lacking}: name each tag, or set names_tags = False if the model knows them",
            )
            unwanted = [
                opening for n in (1, max(6, m + 1)) if n != m for opening, _ in answer_tags(n)[m if n > 1 else 0 :]
            ]
            found = [tag for tag in unwanted if tag in prompt]
            _expect(not found, f"{name} names {found}")
            other, content = asked.setdefault(prompt, (index, task.content_hash()))
            _expect(content == task.content_hash(), f"{name} is also that of task({other}), a different task")


def _front(it: Subject) -> None:
    known = 0
    for index, task in enumerate(it.tasks):
        try:
            front = it.env.front(task)
        except UnknownFront:
            continue
        known += 1
        _expect(len(front) > 0, f"the front of task({index}) is empty")
        vectors = np.array([point.vector for point in front])
        batch = it.score_each(task, [point.answer for point in front])
        for point, reward, status in zip(front, batch.rewards[:, 0], batch.status[:, 0], strict=True):
            _expect(status == Status.OK, f"a front answer of task({index}) is {Status(status).name.lower()}")
            _expect(
                np.allclose(reward, point.vector, atol=TOLERANCE),
                f"a front answer of task({index}) scores {reward.tolist()}, but {list(point.vector)} is declared",
            )
        rivals = _rivals(it, index)
        for answer, vector in zip(rivals, it.score_each(task, rivals).rewards[:, 0], strict=True):
            _expect(
                bool((vectors >= vector - TOLERANCE).all(axis=1).any()),
                f"the front of task({index}) is not complete: {answer!r:.80} scores {vector.tolist()}, which no point "
                "of the front matches or beats",
            )
    if not known:
        raise CannotCheck("the environment has no exact front")


def _rivals(it: Subject, index: int) -> list[str]:
    """Return answers that may lie beyond a front: those of base classes and of other tasks, and changed ones."""
    env, task, source = it.env, it.tasks[index], random.Random(index)
    rivals = demonstrations_of(env, task, index, RIVALS)
    generator = np.random.default_rng(index)
    for verb, arguments in (("front", ()), ("outcome_front", ()), ("demonstrations", (generator, RIVALS))):
        for cls in type(env).__mro__[1:]:
            if verb in vars(cls) and getattr(cls, verb) is not getattr(type(env), verb):
                rivals += _answers_from(getattr(cls, verb), env, task, *arguments)
    known = [*it.known[index], *rivals]
    others = [answer for other, answers in enumerate(it.known) if other != index for answer in answers[:2]]
    changed = [mutated(source, source.choice(known), [""]) for _ in range(RIVALS // 2)]
    for _ in range(RIVALS // 2):
        first, second = source.choice(known), source.choice(known)
        changed.append(first[: source.randint(0, len(first))] + second[source.randint(0, len(second)) :])
    # An environment that evaluates in batches is slow.
    if type(env).evaluate_many is VectorTextEnv.evaluate_many:
        words = list(dict.fromkeys(WORD.findall(env.prompt(task, 1))))
        changed += [one_word_replaced(source, source.choice(known), words) for _ in range(4 * RIVALS)] + others
        for answer in [*it.known[index][:2], *others]:
            ordered = sorted(WORD.findall(answer))
            for order in (ordered, ordered[::-1], WORD.findall(answer)[::-1]):
                left = iter(order)
                changed.append(WORD.sub(lambda _, left=left: next(left), answer))  # type: ignore[misc]  # the default
    return list(dict.fromkeys([*rivals, *changed]))


def _demonstrations_score(it: Subject) -> None:
    rewards = []
    for index, task in enumerate(it.tasks):
        answers = demonstrations_of(it.env, task, index)
        batch = it.score_each(task, answers)
        for answer, status in zip(answers, batch.status[:, 0], strict=True):
            name = Status(status).name.lower()
            _expect(status == Status.OK, f"a demonstration of task({index}) is {name}: {answer!r:.80}")
        rewards += [*batch.rewards]
    if not rewards:
        raise CannotCheck("the environment has no demonstrations")
    _expect(np.any(rewards), "no demonstration scores above 0")


def _bounds(it: Subject) -> None:
    source = random.Random(0)
    for index, task in enumerate(it.tasks):
        texts = list(HOSTILE if index else (*HOSTILE, *HUGE))
        texts += [mutated(source, answer) for answer in demonstrations_of(it.env, task, index) for _ in range(8)]
        responses = texts + [format_answers([text, text, source.choice(HOSTILE)]) for text in texts]
        for m in (1, 3):
            it.score([task] * len(responses), responses, m)


def _determinism(it: Subject) -> None:
    tasks, responses = it.trials
    it.env.reset(options={"index": it.instances})
    first = it.score(tasks, responses, 2)
    if not (first.status[:, 0] == Status.OK).any():
        raise CannotCheck(
            "there is neither a front nor a demonstration, and no text made of the prompt's words is valid"
        )
    backwards = it.score(tasks[::-1], responses[::-1], 2)
    batches = [
        ("a second time", it.score(tasks, responses, 2)),
        ("by a copy of the environment", it.score(tasks, responses, 2, copy.deepcopy(it.env))),
        ("in reverse order", RewardBatch(backwards.rewards[::-1], backwards.status[::-1])),
    ]
    if type(it.env).evaluate_many is VectorTextEnv.evaluate_many:
        batches += [("many times", it.score(tasks, responses, 2)) for _ in range(REPEATS)]
    else:
        single = copy.deepcopy(it.env)
        single.__class__ = type(type(it.env).__name__, (type(it.env),), {"evaluate_many": VectorTextEnv.evaluate_many})
        batches.append(("by evaluate instead of evaluate_many", it.score(tasks, responses, 2, single)))
    it.env.reset(options={"index": 0})
    batches.append(("during an episode of another task", it.score(tasks, responses, 2)))
    for kind, again in batches:
        same = (first.rewards == again.rewards).all(axis=(1, 2)) & (first.status == again.status).all(axis=1)
        if not same.all():
            raise CheckFailed(f"scored {kind}, the response {responses[int(np.argmin(same))]!r:.80} scores differently")


def _duplicates(it: Subject) -> None:
    tasks, responses = it.trials
    texts = [split_answers(response, 2)[0] for response in responses]
    statuses = it.score(tasks, [format_answers([text, text]) for text in texts], 2).status
    for text, (first, second) in zip(texts, statuses, strict=True):
        _expect(
            first != Status.OK or second == Status.DUPLICATE,
            f"the answer {text!r:.80} is no duplicate when it is given twice: equal texts need equal answers "
            "from parse, with equal hashes",
        )


def _echo(it: Subject) -> None:
    for index in range(max(it.instances, ECHOES)):
        task = it.env.task(index)
        weights = it.env.fixed_weights(task)
        try:
            best = it.env.optimum(task)
        except UnknownFront:
            known = demonstrations_of(it.env, task, index)
            best = max(it.score_each(task, known).rewards[:, 0] @ weights) if known else 1.0
        if best == 0 or max(it.echo(task) @ weights) < best - TOLERANCE:
            return
    raise CheckFailed(
        "each prompt, sent back, earns as much as the best answer that is known: take the answer out of the prompt"
    )


def _objectives_differ(it: Subject) -> None:
    source = random.Random(2)
    for task in it.tasks:
        for grid in it.env.fact_grids(task):
            outcomes = [grid.outcome(*map(source.choice, grid.axes)) for _ in range(GRID_OUTCOMES)]
            it.vectors.append(np.where(it.env.active(task), [*map(it.env.reward_vector, outcomes)], np.nan))
    vectors = np.concatenate(it.vectors)
    for first, second in combinations(range(it.env.reward_dim), 2):
        pair = vectors[:, [first, second]]
        pair = pair[~np.isnan(pair).any(axis=1)]
        names = it.env.objective_names
        _expect(
            (pair[:, 0] != pair[:, 1]).any() or len(np.unique(pair)) < 2,
            f"{names[first]!r} and {names[second]!r} are equal for each of {len(pair)} answers: remove one of them, or "
            "give demonstrations that tell them apart",
        )


def constant_objectives(it: Subject) -> tuple[str, ...]:
    """Return the objectives that are active somewhere and had one value for all answers that were scored."""
    vectors = np.concatenate([*it.vectors, np.empty((0, it.env.reward_dim))])
    columns = [np.unique(column[~np.isnan(column)]) for column in vectors.T]
    return tuple(name for name, values in zip(it.env.objective_names, columns, strict=True) if len(values) == 1)


def _episodes(it: Subject) -> None:
    env = it.env
    for index in range(it.instances):
        observation, info = env.reset(options={"index": index})
        task, m = env.current_task, env.num_answers
        _expect(observation in env.observation_space, f"the prompt of task({index}) is not in observation_space")
        missing = {"objectives", "active_objectives", "split", "index", "task"} - set(info)
        _expect(not missing, f"info of reset lacks {sorted(missing)}")
        response = _some_response(it, index)
        expected = it.score([task], [response], m).rewards[0]
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


def _nothing_is_shared(it: Subject) -> None:
    def episode(scribbling: bool) -> list[Any]:
        returned: tuple[Any, ...] = it.env.reset(options={"index": 0})
        kept = [copy.deepcopy(returned)]
        while len(kept) == 1 or not kept[-1][2]:
            if scribbling:
                _scribble(returned)
            returned = it.env.step(_some_response(it, 0))
            kept.append(copy.deepcopy(returned))
        if scribbling:
            _scribble(returned)
        return kept

    reference = episode(False)
    for changed in (episode(True), episode(False)):
        same = data_equivalence(changed, reference, exact=True)
        _expect(same, "writing into what reset and step return changes what they return later")


def _spec(it: Subject) -> None:
    if it.env.spec is None:
        raise CannotCheck("the environment was not made by gym.make")
    again = gym.make(EnvSpec.from_json(it.env.spec.to_json())).unwrapped
    _expect(type(again) is type(it.env), f"the spec makes a {type(again).__name__} after a round trip through JSON")
    first, second = it.env.reset(seed=5), again.reset(seed=5)
    _expect(data_equivalence(first, second, exact=True), "after a round trip of the spec reset(seed=5) differs")


CHECKS: dict[str, Callable[[Subject], None]] = {
    "objectives, weights and spaces": _statements,
    "tasks are frozen data, the same each time, and survive JSON": _tasks_are_data,
    "splits share no instance": _splits_are_disjoint,
    "prompts name the wanted tags and tell tasks apart": _prompts,
    "fronts are complete and their answers reach their vectors": _front,
    "demonstrations can be read and score": _demonstrations_score,
    "scores stay in bounds under empty, huge, Unicode and hostile text": _bounds,
    "scores are the same each time": _determinism,
    "an answer given twice is a duplicate": _duplicates,
    "prompts do not give the best answer away": _echo,
    "no two objectives are the same": _objectives_differ,
    "episodes return what score_batch gives": _episodes,
    "no mutable object is shared between calls": _nothing_is_shared,
    "the spec survives JSON": _spec,
}
"""The checks, by the name that a report gives them."""


# Helpers -------------------------------------------------------------------------------------------------------------


def _expect(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def _blame(env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], m: int, error: Exception) -> str:
    """Return which response cannot be scored, and whether ``parse`` or what follows it raises the error."""
    for task, response in zip(tasks, responses, strict=True):
        where = f"the response {response!r:.80}"
        for text in split_answers(response, m):
            try:
                if text is not None:
                    env.parse(text)
            except (Unparsable, *FAILURES):
                pass
            except Exception as own:
                return (
                    f"parse raises {type(own).__name__}: {own}, on {where}: raise Unparsable if a text is not an answer"
                )
        try:
            env.score_batch([task], [response], m)
        except Exception as own:
            return f"{where} raises {type(own).__name__}: {own}"
    return f"score_batch raises {type(error).__name__}: {error}"


def demonstrations_of(env: AnyEnv, task: Any, index: int, count: int = 2) -> list[str]:
    """Return some demonstrations; none if the environment has none."""
    try:
        answers = env.demonstrations(task, np.random.default_rng(index), count)
    except NotImplementedError:
        return []
    _expect(len(answers) == count, f"asked for {count} demonstrations of task({index}), got {len(answers)}")
    return answers


def _answers_from(method: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the answers of a front or of demonstrations; none if the method fails, as a base class's own may."""
    with contextlib.suppress(Exception):
        return [answer if isinstance(answer, str) else answer[1] for answer in method(*arguments)]
    return []


def _some_response(it: Subject, index: int) -> str:
    answers = it.known[index][-2:] or ["an answer"]
    return format_answers([answers[i % len(answers)] for i in range(it.env.num_answers)])


def _same_kind(word: str, words: Sequence[str]) -> list[str]:
    """Return the words that are numbers if ``word`` is one, capitalised if it is, or else neither."""
    return [other for other in words if (other.isdigit(), other[0].isupper()) == (word.isdigit(), word[0].isupper())]


def one_word_replaced(source: random.Random, text: str, words: Sequence[str]) -> str:
    """Return the text with one word replaced by one of ``words`` that looks alike."""
    found = list(WORD.finditer(text))
    if not found:
        return text
    word = source.choice(found)
    return text[: word.start()] + source.choice(_same_kind(word[0], words) or [""]) + text[word.end() :]


def _guesses(source: random.Random, prompt: str) -> list[str]:
    """Return texts of one to four words of one kind from the prompt, which may be answers."""
    words = WORD.findall(prompt) or ["a"]
    kinds = [_same_kind(source.choice(words), words) for _ in range(RIVALS)]
    return [" ".join(source.choices(kind, k=source.randint(1, 4))) for kind in kinds]


def mutated(source: random.Random, text: str, pieces: Sequence[str] = HOSTILE) -> str:
    """Return the text with a part taken out, doubled, or replaced by one of ``pieces``."""
    start, end = sorted(source.choices(range(len(text) + 1), k=2))
    piece = source.choice(["", text[start:end] * 2, source.choice(pieces)])
    return text[:start] + piece + text[end:]


def _scribble(data: Any) -> None:
    """Overwrite everything in ``data`` that can be written to."""
    if isinstance(data, dict | list | tuple):
        for value in data.values() if isinstance(data, dict) else data:
            _scribble(value)
        if not isinstance(data, tuple):
            data.clear()
    elif isinstance(data, np.ndarray) and data.flags.writeable:
        data.fill(0)
