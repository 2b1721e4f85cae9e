"""What is checked: the rewards of an environment, or plain reward functions, behind one interface."""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from vpo_envs.checking.elsewhere import NotElsewhere, RaisedElsewhere, call_elsewhere
from vpo_envs.checking.texts import HOSTILE, HUGE, NOTHING, WORD, guesses, mutated, one_word_replaced
from vpo_envs.common.wording import counted, told
from vpo_envs.contract.errors import NothingToScoreWith
from vpo_envs.core import FAILURES, AnyEnv, RewardBatch, Status, UnknownFront, Unparsable, VectorTextEnv
from vpo_envs.text import bare_answer, format_answers, readable, split_answers

Floats = NDArray[np.float64]

SHIFTS = 4
"""Other tasks whose good answers are compared with a task's own."""
CHANGED = 6
"""Changed versions of each good answer."""
GOOD = 2
"""Good answers to each prompt, at most."""
ELSEWHERE = "in a process of another hash seed"
REPEATS = 20
"""Number of times that an answer is scored again where answers are evaluated one by one."""


class CheckFailed(Exception):
    """An environment or a reward function breaks its contract; the message says which part and how."""


class Case(NamedTuple):
    """A prompt and what is known about it."""

    prompt: str
    good: tuple[str, ...]
    """Answers that should score well; there may be none."""
    best: tuple[str, ...]
    """Known answers with the best scalar reward."""
    weights: Floats
    """Weights of the objectives in the scalar reward, (d,), summing to 1."""
    optimum: float | None
    """Best scalar reward, if an exact front states it."""


class Row(NamedTuple):
    """What one objective paid: its range over all valid answers, and the means over answers of three kinds."""

    objective: str
    lowest: float
    highest: float
    good: float
    others: float
    """Good answers to other prompts."""
    nothing: float


class Subject(ABC):
    """Reward vectors of responses to some prompts, and what answers of several kinds score."""

    names: tuple[str, ...]
    ranges: Sequence[tuple[float, float]]
    """The lowest and highest score that each objective may have."""
    cases: Sequence[Case]

    def __init__(self) -> None:
        self.seen: list[Floats] = []
        """The vectors of all valid answers so far, (n, d) each; NaN for objectives that are inactive or failed."""
        self.errors: dict[str, str] = {}
        """How scorers failed, by name; the first time of each."""
        self.outside: dict[str, str] = {}
        """For objectives outside the bounds the worst score with its response."""
        self.not_elsewhere = ""
        """Why nothing could be scored in another process; empty if it could."""
        self._excess: dict[str, float] = {}
        self._random = random.Random(0)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The lowest scores and the highest scores of :attr:`ranges`, each (d,)."""
        low, high = np.array(self.ranges).T
        return low, high

    def score(self, cases: Sequence[int], responses: Sequence[str]) -> Floats:
        """Return the vectors (n, d) of responses to the cases with these indices; NaN for what is not scored."""
        vectors, valid = self._score(cases, responses)
        self._note(vectors[valid], [text for text, ok in zip(responses, valid, strict=True) if ok])
        return vectors

    def _note(self, vectors: Floats, responses: Sequence[str]) -> None:
        """Keep valid vectors, and for each objective the one farthest out of bounds."""
        self.seen.append(vectors)
        low, high = self.bounds
        excess = np.nan_to_num(np.maximum(low - vectors, vectors - high), nan=-1.0, posinf=np.inf)
        for row, column in np.argwhere(excess > 1e-6):
            name, amount = self.names[column], float(excess[row, column])
            if amount > self._excess.get(name, 0.0):
                self._excess[name] = amount
                self.outside[name] = f"{name} gives {vectors[row, column]:.3g} for the response {responses[row]!r:.80}"

    @abstractmethod
    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors, as :meth:`score`, and which of them are of valid answers, (n,)."""

    @abstractmethod
    def respond(self, answer: str) -> str:
        """Return a response that holds an answer."""

    def each(self, make: Callable[[int], Sequence[str]], *, raw: bool = False) -> list[Floats]:
        """Score the answers, or with ``raw`` the whole responses, that ``make`` gives for each case: arrays (n, d)."""
        made = [make(case) for case in range(len(self.cases))]
        asked = [case for case, answers in enumerate(made) for _ in answers]
        texts = [text if raw else self.respond(text) for answers in made for text in answers]
        scores = self.score(asked, texts)
        return np.split(scores, np.cumsum([len(answers) for answers in made])[:-1])

    @cached_property
    def good(self) -> list[Floats]:
        """Scores of the good answers to each prompt."""
        return self.each(lambda case: self.cases[case].good)

    @cached_property
    def others(self) -> list[Floats]:
        """Scores of good answers to other prompts, each of which is used equally often."""
        cases, shifts = self.cases, range(1, min(SHIFTS, len(self.cases) - 1) + 1)
        return self.each(lambda case: [good for by in shifts for good in cases[(case + by) % len(cases)].good])

    @cached_property
    def changed(self) -> list[Floats]:
        """Scores of good answers that were changed at random."""

        def vary(case: int) -> Iterator[str]:
            words = WORD.findall(self.cases[case].prompt) or ["a"]
            for answer in self.cases[case].good:
                for _ in range(CHANGED // 2):
                    yield from (mutated(self._random, answer), one_word_replaced(self._random, answer, words))

        return self.each(lambda case: list(vary(case)))

    @cached_property
    def nothing(self) -> list[Floats]:
        """Scores of non-answers, as answers and as whole responses."""
        kinds = self.each(lambda case: NOTHING), self.each(lambda case: NOTHING, raw=True)
        return [np.concatenate(pair) for pair in zip(*kinds, strict=True)]

    def all(self) -> Floats:
        """Return the vectors of all valid answers so far, (n, d), and at least of good, borrowed and changed ones."""
        _ = self.good, self.others, self.changed, self.nothing
        return np.concatenate(self.seen)

    def scalar(self, case: int, vectors: Floats) -> Floats:
        """Return the scalar rewards (n,) of vectors (n, d), each objective scaled from its range to [0, 1]."""
        return np.asarray(np.nan_to_num(self.scaled(vectors)) @ self.cases[case].weights)

    def scaled(self, vectors: Floats) -> Floats:
        """Return vectors (..., d) with each objective scaled from its range to [0, 1], as training scales them."""
        low, high = self.bounds
        return (vectors - low) / (high - low)

    def best(self, case: int) -> float | None:
        """Return the best scalar reward that is known for a prompt."""
        optimum, good = self.cases[case].optimum, self.good[case]
        if optimum is not None:
            return optimum
        return float(self.scalar(case, good).max()) if len(good) else None

    def table(self) -> list[Row]:
        """Return one row for each objective."""
        means = [over_rows(np.nanmean, np.concatenate(kind)) for kind in (self.good, self.others, self.nothing)]
        everything = self.all()
        ends = [over_rows(end, everything) for end in (np.nanmin, np.nanmax)]
        return [Row(*row) for row in zip(self.names, *ends, *means, strict=True)]

    def count_valid(self, case: int, answers: Sequence[str]) -> int:
        """Return how many texts are valid answers to a prompt."""
        return int(self._score([case] * len(answers), [self.respond(text) for text in answers])[1].sum())

    def hostile(self) -> int:
        """Score empty, huge, broken and Unicode text, and return how many texts for each prompt."""
        cases = [case for case in range(len(self.cases)) for _ in HOSTILE]
        self.score(cases, [self.respond(text) for _ in self.cases for text in HOSTILE])
        return len(HOSTILE)

    def repetitions(self) -> Iterator[tuple[str, Sequence[str], Floats, Floats]]:
        """Yield how some responses were scored again, the responses, and their first and their new scores."""
        cases, responses = [], []
        for number, case in enumerate(self.cases):
            for answer in (*case.good, "0", case.prompt):
                cases.append(number)
                responses.append(self.respond(answer))
        first = self.score(cases, responses)
        for kind in ("a second time", "a third time"):
            yield kind, responses, first, self.score(cases, responses)
        yield "in reverse order", responses, first, self.score(cases[::-1], responses[::-1])[::-1]
        elsewhere, _ = self.call_elsewhere(self._score, cases, responses) or (first, None)
        yield ELSEWHERE, responses, first, elsewhere

    def call_elsewhere(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in a process of another hash seed; ``None`` if there is no such process."""
        self.not_elsewhere = ""
        try:
            return call_elsewhere(function, *arguments)
        except NotElsewhere as reason:
            self.not_elsewhere = str(reason)
        except RaisedElsewhere as error:
            raise CheckFailed(f"scored {ELSEWHERE}, it raises {error}") from None
        return None


class EnvSubject(Subject):
    """A text environment on its first tasks."""

    def __init__(self, env: AnyEnv, num_tasks: int) -> None:
        super().__init__()
        self.env, self.num_tasks, self.names = env, num_tasks, env.objective_names
        self.ranges = [(0.0, 1.0)] * len(self.names)

    @property
    def in_batches(self) -> bool:
        """Whether the environment evaluates answers in batches, which is slow."""
        return type(self.env).evaluate_many is not VectorTextEnv.evaluate_many

    @cached_property
    def tasks(self) -> list[Any]:
        """The first tasks of the environment's split."""
        return [self.env.task(index) for index in range(self.num_tasks)]

    @cached_property
    def cases(self) -> list[Case]:  # type: ignore[override]  # it is made when it is needed
        """The prompts of the tasks, with what is known about them."""
        return [self._case(index, task) for index, task in enumerate(self.tasks)]

    def _case(self, index: int, task: Any) -> Case:
        try:
            front, optimum = self.env.front(task), self.env.optimum(task)
        except UnknownFront:
            front, optimum = [], None
        weights = self.env.fixed_weights(task)
        best = [point.answer for point in front if optimum and weights @ point.vector > optimum - 1e-6]
        # A front follows the objectives, whatever their sign; demonstrations are good by themselves.
        good = self.demonstrations(index, GOOD) or [point.answer for point in front]
        chosen = random.Random(index).sample(good, min(GOOD, len(good)))
        return Case(self.env.prompt(task, 1), tuple(chosen), tuple(best or chosen), weights, optimum)

    @cached_property
    def known(self) -> list[list[str]]:
        """For each task the answers of its front and some demonstrations; empty where there are neither."""
        return [
            list(dict.fromkeys([*answers_from(self.env.front, task), *self.demonstrations(index)]))
            for index, task in enumerate(self.tasks)
        ]

    def demonstrations(self, index: int, count: int = 2) -> list[str]:
        """Return some demonstrations of a task; none if the environment has none."""
        try:
            answers = self.env.demonstrations(self.tasks[index], np.random.default_rng(index), count)
        except NotImplementedError:
            return []
        if len(answers) != count:
            raise CheckFailed(f"asked for {count} demonstrations of task({index}), got {len(answers)}")
        return answers

    def respond(self, answer: str) -> str:
        """Return the answer in its tag."""
        return format_answers([answer])

    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        tasks = [self.tasks[case] for case in cases]
        rewards, statuses = self._checked(tasks, responses, 1, self.env)
        active = np.array([self.env.active(task) for task in tasks], dtype=bool).reshape(-1, len(self.names))
        scored = active & (statuses != Status.INVALID)
        return np.where(scored, rewards[:, 0].astype(np.float64), np.nan), statuses[:, 0] == Status.OK

    def batch(self, tasks: Sequence[Any], responses: Sequence[str], m: int, env: AnyEnv | None = None) -> RewardBatch:
        """Return ``score_batch`` of responses with m answers after checking its shapes and statuses."""
        env = env or self.env
        rewards, statuses = batch = self._checked(tasks, responses, m, env)
        for task, response, scores, ok in zip(tasks, responses, rewards, statuses == Status.OK, strict=True):
            self._note(np.where(env.active(task), scores[ok], np.nan), [response] * int(ok.sum()))
        return batch

    def score_each(self, task: Any, answers: Sequence[str]) -> RewardBatch:
        """Return the scores of answers to one task, each in a response of its own."""
        return self.batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)

    def _checked(self, tasks: Sequence[Any], responses: Sequence[str], m: int, env: AnyEnv) -> RewardBatch:
        try:
            rewards, statuses = batch = env.score_batch(tasks, responses, m)
        except NothingToScoreWith:
            raise
        except Exception as error:
            raise _blamed(env, tasks, responses, m, error) from error
        shape = (len(tasks), m, env.reward_dim)
        expect(rewards.shape == shape, f"score_batch gives rewards of shape {rewards.shape}, not {shape}")
        expect(rewards.dtype == np.float32, f"score_batch gives rewards of {rewards.dtype}, not float32")
        expect(statuses.shape == shape[:2], f"score_batch gives statuses of shape {statuses.shape}, not {shape[:2]}")
        paid = rewards.any(axis=2) & (statuses != Status.OK)
        expect(not paid.any(), "an answer whose status is not ok scores above 0")
        return batch

    def hostile(self) -> int:
        """Score hostile texts as whole responses, and three answers at a time."""
        source = random.Random(0)
        for index, task in enumerate(self.tasks):
            texts = list(HOSTILE if index else (*HOSTILE, *HUGE))
            texts += [mutated(source, answer) for answer in self.demonstrations(index) for _ in range(8)]
            responses = texts + [format_answers([text, text, source.choice(HOSTILE)]) for text in texts]
            for m in (1, 3):
                self.batch([task] * len(responses), responses, m)
        return len(HOSTILE)

    @cached_property
    def trials(self) -> tuple[list[Any], list[str]]:
        """Tasks and responses of two answers each, the first of them known, changed at random, guessed or hostile."""
        source = random.Random(1)
        tasks, responses = [], []
        for index, task in enumerate(self.tasks):
            answers = self.known[index][-2:] or guesses(source, self.env.prompt(task, 1))
            for text in [*answers, *(mutated(source, answer) for answer in answers), *source.sample(HOSTILE, 3)]:
                tasks.append(task)
                responses.append(format_answers([text, "another"]))
        return tasks, responses

    def repetitions(self) -> Iterator[tuple[str, Sequence[str], Floats, Floats]]:
        """Yield the scores of the trials again: twice, by a copy, backwards, one by one, during another episode."""
        tasks, responses = self.trials

        def again(env: AnyEnv | None = None, step: int = 1) -> Floats:
            return _scores(self.batch(tasks[::step], responses[::step], 2, env))[::step]

        self.env.reset(options={"index": self.num_tasks})
        first = again()
        if not (first[:, len(self.names)] == Status.OK).any():
            return
        yield "a second time", responses, first, again()
        yield "by a copy of the environment", responses, first, again(copy.deepcopy(self.env))
        yield "in reverse order", responses, first, again(step=-1)
        if self.in_batches:
            single, env_type = copy.deepcopy(self.env), type(self.env)
            single.__class__ = type(env_type.__name__, (env_type,), {"evaluate_many": VectorTextEnv.evaluate_many})
            yield "by evaluate instead of evaluate_many", responses, first, again(single)
        else:
            for _ in range(REPEATS):
                yield "many times", responses, first, again()
        self.env.reset(options={"index": 0})
        yield "during an episode of another task", responses, first, again()
        yield ELSEWHERE, responses, first, self._elsewhere(first)

    def _elsewhere(self, first: Floats) -> Floats:
        """Return the scores of the trials in another process, after comparing its tasks with those of this one."""
        tasks, responses = self.trials
        observed = None
        for made_of in (*([] if self.env.spec is None else [self.env.spec.to_json()]), self.env):
            observed = observed or self.call_elsewhere(_observe, made_of, self.num_tasks, tasks, responses)
        if observed is None:
            return first
        facts, scores = observed
        for (name, here), (other, there) in zip(_facts(self.env, self.num_tasks), facts, strict=False):
            expect((name, here) == (other, there), f"{name}: {there!r:.80} {ELSEWHERE}, {here!r:.80} in this one")
        return np.asarray(scores)


def _observe(
    made_of: AnyEnv | str, num_tasks: int, tasks: Sequence[Any], responses: Sequence[str]
) -> tuple[list[tuple[str, str]], Floats]:
    """Return the facts about an environment, given by itself or by its spec, and the scores of responses."""
    try:
        env = gym.make(EnvSpec.from_json(made_of)).unwrapped if isinstance(made_of, str) else made_of
    except Exception as error:  # a class of a notebook or script is not found there
        raise NotElsewhere(told(error)) from None
    assert isinstance(env, VectorTextEnv)
    return _facts(env, num_tasks), _scores(env.score_batch(tasks, responses, 2))


def _scores(batch: RewardBatch) -> Floats:
    """Return the rewards and statuses of each response, (n, m·(d + 1))."""
    scores = np.concatenate([batch.rewards, batch.status[:, :, None]], axis=2)
    return np.asarray(scores.reshape(len(scores), -1), dtype=np.float64)


def _facts(env: AnyEnv, num_tasks: int) -> list[tuple[str, str]]:
    """Return what an environment says of its first tasks, each with its name."""
    facts = []
    for index in range(num_tasks):
        task = env.task(index)
        facts.append((f"task({index})", task.model_dump_json()))
        facts += [(f"the prompt of task({index}) for {counted(m, 'answer')}", env.prompt(task, m)) for m in (1, 3)]
        facts.append((f"active of task({index})", str(env.active(task).tolist())))
        with suppress(NotImplementedError):
            answers = env.demonstrations(task, np.random.default_rng(index), 2)
            facts.append((f"the demonstrations of task({index})", str(answers)))
        with suppress(UnknownFront):
            facts.append((f"the front of task({index})", str([tuple(point) for point in env.front(task)])))
    return facts


def over_rows(function: Callable[..., Floats], vectors: Floats) -> Floats:
    """Apply a NaN-aware function to each column (n, d); NaN for columns without a number."""
    present = ~np.isnan(vectors).all(axis=0) if len(vectors) else np.zeros(vectors.shape[1], dtype=bool)
    out = np.full(vectors.shape[1], np.nan)
    if present.any():
        out[present] = function(vectors[:, present], axis=0)
    return out


def expect(condition: bool | np.bool_, message: str) -> None:
    """Raise :class:`CheckFailed` unless a condition holds."""
    if not condition:
        raise CheckFailed(message)


def answers_from(method: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the answers of a front or of demonstrations; none if the method fails, as a base class's own may."""
    with suppress(Exception):
        return [answer if isinstance(answer, str) else answer[1] for answer in method(*arguments)]
    return []


class Broken(Exception):
    """The code under test raises an error, so that nothing else can be checked; the message says where."""


def _blamed(env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], m: int, error: Exception) -> Broken:
    """Return which response cannot be scored, and whether ``parse`` or what follows it raises the error."""
    for task, response in zip(tasks, responses, strict=True):
        where = f"the response {readable(response)!r:.80}"
        for text in split_answers(response, m):
            try:
                if text is not None:
                    env.parse(bare_answer(text))
            except (Unparsable, *FAILURES):
                pass
            except Exception as raised:
                return Broken(f"parse raises {told(raised)}, on {where}: raise Unparsable if a text is not an answer")
        try:
            env.score_batch([task], [response], m)
        except Exception as raised:
            return Broken(f"{where} raises {told(raised)}")
    return Broken(f"score_batch raises {told(error)}")
