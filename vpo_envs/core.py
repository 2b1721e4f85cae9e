"""The contract of every environment: tasks, objectives, outcomes, answer sets, scores.

An environment overrides four verbs, each a pure function of its arguments, and states its objectives:

========================  =========================================  ==================================================
verb                      takes                                      gives
========================  =========================================  ==================================================
``generate(rng)``         a random generator                         a :class:`Task`
``prompt(task, m)``       a task, the number of answers wanted       the text that a model reads
``parse(text)``           what stands inside one answer tag          an answer, or raises :class:`Unparsable`
``evaluate(task, a)``     a task and a parsed answer                 the outcome: the facts that objectives look at
========================  =========================================  ==================================================

Everything else is inherited: episodes, answer sets, batched scoring, spaces and rendering.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from vpo_envs.pareto import non_dominated
from vpo_envs.spaces import TextSpace
from vpo_envs.text import condition_prompt, format_answers, split_answers

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

MAX_RESPONSE_CHARS = 1_000_000
"""Longest response that the action space holds; longer ones are still scored."""

MAX_STREAM = 2**32
"""Bound of ``data_seed`` and of an instance's index: a seed sequence keeps numbers apart only below it."""


class Task(BaseModel):
    """One instance: frozen data, apart from behaviour. It survives a round trip through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def content_hash(self) -> str:
        """Hash of the content, equal exactly for equal instances: 32 hexadecimal digits."""
        content = f"{type(self).__name__}:{self.model_dump_json()}"
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


TaskT = TypeVar("TaskT", bound=Task)
AnswerT = TypeVar("AnswerT", bound=Hashable)
OutcomeT = TypeVar("OutcomeT")


class Objective(NamedTuple):
    """One component of the reward vector."""

    name: str
    description: str
    score: Callable[[Any], float]
    """Maps an outcome to a number in [0, 1]; higher is better."""


class Status(IntEnum):
    """What became of one answer. Every status but ``OK`` goes with a zero vector."""

    OK = 0
    MISSING = 1
    """No complete tag at this position."""
    UNPARSABLE = 2
    """The tag holds no answer in the form that the prompt asks for."""
    DUPLICATE = 3
    """The same parsed answer as an earlier one of this response."""
    INVALID = 4
    """The scorer itself failed: this is not a score, and a trainer leaves the rollout out."""
    TIMED_OUT = 5
    """The answer ran out of the scorer's time limit."""


class Unparsable(ValueError):
    """Raised by ``parse`` when a text is not an answer; its message is the reason."""


class ScorerFailure(RuntimeError):
    """Raised by ``evaluate`` when the scorer itself failed; the answer becomes ``Status.INVALID``."""


class AnswerTimeout(RuntimeError):
    """Raised by ``evaluate`` when the answer used up its time; it becomes ``Status.TIMED_OUT``."""


class UnknownFront(NotImplementedError):
    """Raised where an environment cannot give the exact Pareto front."""


class RewardBatch(NamedTuple):
    """Scores of n responses with m answers each."""

    rewards: NDArray[np.float32]
    """Reward vectors, shape (n, m, d), each entry in [0, 1]."""
    status: NDArray[np.int8]
    """:class:`Status` of each answer, shape (n, m)."""


class FrontPoint(NamedTuple):
    """A reward vector of the exact Pareto front and an answer that attains it."""

    vector: tuple[float, ...]
    answer: str


class VectorTextEnv(gym.Env[str, str], ABC, Generic[TaskT, AnswerT, OutcomeT]):
    """A text environment with vector rewards; see the module's table for the verbs to override.

    One episode is one task. With ``num_answers=m`` the agent sends one response that holds m tagged answers and the
    reward is the sum of their m reward vectors; ``info["reward_matrix"]`` holds them apart. With
    ``answers_as_steps=True`` the same answers are sent one step at a time, and the return is the same.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``. No instance is in two splits.
        num_answers: How many answers one response holds, m >= 1.
        answers_as_steps: Send the answers one at a time: m steps, each observation the prompt and the answers so far.
        data_seed: Chooses the stream of instances: the i-th instance is a function of (split, data_seed, i).
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own form

    task_type: ClassVar[type[Task]]
    """The class of this environment's tasks."""
    namespace: ClassVar[int]
    """Number of this environment's random streams; no two environments share one."""
    objectives: tuple[Objective, ...]
    """The components of the reward vector, in order."""
    scalar_weights: tuple[float, ...] | None = None
    """The task's fixed weights w*, of the reward that scalar methods train on; ``None`` means equal weights."""

    def __init__(
        self,
        *,
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        if num_answers < 1:
            raise ValueError(f"num_answers must be at least 1, got {num_answers}")
        if not 0 <= data_seed < MAX_STREAM:
            raise ValueError(f"data_seed must be a number from 0 to {MAX_STREAM - 1}, got {data_seed}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = ", ".join(self.metadata["render_modes"])
            raise ValueError(f"unknown render_mode {render_mode!r}: choose None or one of {modes}")
        self.split: Split = split
        self.num_answers = num_answers
        self.answers_as_steps = answers_as_steps
        self.data_seed = data_seed
        self.render_mode = render_mode
        if self.scalar_weights is not None and len(self.scalar_weights) != self.reward_dim:
            raise ValueError(
                f"scalar_weights of {type(self).__name__} need {self.reward_dim} values, one per objective "
                f"({', '.join(self.objective_names)}); got {len(self.scalar_weights)}"
            )
        # An observation is the prompt and, after a step, the answers so far.
        self.observation_space = TextSpace(MAX_RESPONSE_CHARS * (1 + (num_answers if answers_as_steps else 1)))
        self.action_space = TextSpace(MAX_RESPONSE_CHARS)
        high = 1.0 if answers_as_steps else float(num_answers)
        self.reward_space = gym.spaces.Box(0.0, high, (self.reward_dim,), np.float32)
        self._task: TaskT | None = None
        self._answers: list[str | None] = []
        self._seen: set[AnswerT] = set()

    # The four verbs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> TaskT:
        """Draw an instance of this environment's split: a function of the generator's state alone."""

    @abstractmethod
    def prompt(self, task: TaskT, num_answers: int) -> str:
        """The text that asks for ``num_answers`` answers to ``task``, naming exactly the tags that are wanted."""

    def condition(self, prompt: str, weights: NDArray[np.floating], active: NDArray[np.bool_] | None = None) -> str:
        """A prompt of this environment with a weighting of the objectives stated in it.

        Args:
            prompt: The prompt.
            weights: Weights in whole per cent, summing to 1, shape (d,).
            active: Which objectives count, shape (d,); all where ``None``.
        """
        counted = [
            (o, float(w))
            for i, (o, w) in enumerate(zip(self.objectives, weights, strict=True))
            if active is None or active[i]
        ]
        return condition_prompt(
            prompt, [o.name for o, _ in counted], [o.description for o, _ in counted], [w for _, w in counted]
        )

    @abstractmethod
    def parse(self, text: str) -> AnswerT:
        """Read what stands inside one answer tag.

        Returns:
            A hashable answer; equal answers are duplicates of each other.

        Raises:
            Unparsable: The text is not an answer; the message is the reason.
        """

    @abstractmethod
    def evaluate(self, task: TaskT, answer: AnswerT) -> OutcomeT:
        """The facts about ``answer`` that the objectives look at.

        Raises:
            ScorerFailure: The scorer itself failed.
            AnswerTimeout: The answer used up its time.
        """

    def feasible(self, outcome: OutcomeT) -> bool:
        """Whether an outcome earns anything at all; where it does not, the whole vector is zero."""
        return True

    # What an environment may know besides --------------------------------------------------------------------------

    def active(self, task: TaskT) -> NDArray[np.bool_]:
        """Which objectives count for ``task``, shape (d,). An inactive one carries no weight anywhere."""
        return np.ones(self.reward_dim, dtype=bool)

    def outcome_front(self, task: TaskT) -> Sequence[tuple[OutcomeT, str]]:
        """All outcomes that no other outcome beats in every fact, each with an answer that attains it.

        :meth:`pareto_front` applies the objectives to them, which is right for every decomposition that is monotone in
        those facts.

        Raises:
            UnknownFront: This environment has no exact solver.
        """
        raise UnknownFront(f"{type(self).__name__} knows no exact Pareto front: use expected utility without regret")

    def demonstrations(self, task: TaskT, rng: np.random.Generator, num_answers: int) -> list[str]:
        """``num_answers`` reasonable answers (what stands inside the tags), for supervised warm starts."""
        raise NotImplementedError(f"{type(self).__name__} has no demonstrations")

    def task_info(self, task: TaskT) -> dict[str, Any]:
        """The task's public data, as plain JSON values, for ``info["task"]``."""
        return task.model_dump(mode="json")

    # Instances -----------------------------------------------------------------------------------------------------

    def task(self, index: int) -> TaskT:
        """The ``index``-th instance: a pure function of (split, data_seed, index) and the constructor's arguments."""
        if not isinstance(index, (int, np.integer)) or not 0 <= index < MAX_STREAM:
            raise ValueError(f"a task's index is a whole number from 0 to {MAX_STREAM - 1}, got {index!r}")
        entropy = [self.namespace, SPLITS.index(self.split), self.data_seed, index]
        return self.generate(np.random.default_rng(np.random.SeedSequence(entropy)))

    # Scores --------------------------------------------------------------------------------------------------------

    @property
    def reward_dim(self) -> int:
        """Number of objectives, d."""
        return len(self.objectives)

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Names of the objectives, in the order of the reward vector."""
        return tuple(objective.name for objective in self.objectives)

    def reward_vector(self, outcome: OutcomeT) -> tuple[float, ...]:
        """The objectives applied to an outcome, shape (d,); all zero where it is not feasible."""
        if not self.feasible(outcome):
            return (0.0,) * len(self.objectives)
        return tuple([objective.score(outcome) for objective in self.objectives])

    def score_answers(
        self, task: TaskT, answers: Sequence[str | None], seen: set[AnswerT] | None = None
    ) -> tuple[list[tuple[float, ...]], list[Status], list[OutcomeT | None]]:
        """Score the answers of one response, in order.

        Args:
            task: The instance that was asked.
            answers: What stands inside each tag; ``None`` where a tag is missing.
            seen: Parsed answers that came before, of which a repetition is a duplicate; the new ones are added.

        Returns:
            Reward vectors, statuses and outcomes, one for each answer; the outcome is ``None`` where there is none.
        """
        zero = (0.0,) * len(self.objectives)
        vectors: list[tuple[float, ...]] = []
        statuses: list[Status] = []
        outcomes: list[OutcomeT | None] = []
        seen = set() if seen is None else seen
        scorers = [objective.score for objective in self.objectives]
        feasible = self.feasible
        for text in answers:
            vector, outcome = zero, None
            if text is None:
                status = Status.MISSING
            else:
                try:
                    answer = self.parse(text)
                    if answer in seen:
                        status = Status.DUPLICATE
                    else:
                        seen.add(answer)
                        outcome = self.evaluate(task, answer)
                        if feasible(outcome):
                            vector = tuple([score(outcome) for score in scorers])
                        status = Status.OK
                except Unparsable:
                    status = Status.UNPARSABLE
                except ScorerFailure:
                    status = Status.INVALID
                except AnswerTimeout:
                    status = Status.TIMED_OUT
            vectors.append(vector)
            statuses.append(status)
            outcomes.append(outcome)
        return vectors, statuses, outcomes

    def score_batch(
        self, tasks: Sequence[TaskT], responses: Sequence[str], num_answers: int | None = None
    ) -> RewardBatch:
        """Score responses without episodes; ``step`` goes through the same code.

        Args:
            tasks: n instances, one per response.
            responses: n whole responses.
            num_answers: m; the environment's own where ``None``.

        Returns:
            Rewards (n, m, d) and statuses (n, m).

        Raises:
            ValueError: Not as many tasks as responses, or m below 1.
        """
        if len(tasks) != len(responses):
            raise ValueError(f"score_batch needs one task per response, got {len(tasks)} and {len(responses)}")
        m = self.num_answers if num_answers is None else num_answers
        if m < 1:
            raise ValueError(f"num_answers must be at least 1, got {m}")
        vectors: list[tuple[float, ...]] = []
        statuses: list[Status] = []
        for task, response in zip(tasks, responses, strict=True):
            scored = self.score_answers(task, split_answers(response, m))
            vectors += scored[0]
            statuses += scored[1]
        shape = (len(tasks), m)
        rewards = np.array(vectors, dtype=np.float32).reshape(*shape, self.reward_dim)
        return RewardBatch(rewards, np.array(statuses, dtype=np.int8).reshape(shape))

    def pareto_front(self, gamma: float = 1.0, *, task: TaskT | None = None) -> list[NDArray[np.float32]]:
        """The exact Pareto front of ``task`` (the current one where ``None``): the reward vectors of single answers.

        Args:
            gamma: MO-Gymnasium's discount. An answer is scored in the step that gives it, so it changes nothing.
            task: An instance.

        Returns:
            Vectors of shape (d,).

        Raises:
            UnknownFront: This environment has no exact solver.
        """
        return [
            np.array(point.vector, dtype=np.float32)
            for point in self.front(self.current_task if task is None else task)
        ]

    def front(self, task: TaskT) -> list[FrontPoint]:
        """The exact Pareto front of ``task`` under this environment's objectives, each point with an answer."""
        points = [FrontPoint(self.reward_vector(outcome), answer) for outcome, answer in self.outcome_front(task)]
        keep = non_dominated(np.array([point.vector for point in points]))
        return [point for point, kept in zip(points, keep, strict=True) if kept]

    def optimum(self, task: TaskT) -> float:
        """The best scalar reward w*·r that any answer to ``task`` can get, from the exact front."""
        weights = self.fixed_weights(task)
        return float(max(np.dot(weights, point.vector) for point in self.front(task)))

    def fixed_weights(self, task: TaskT) -> NDArray[np.float64]:
        """The task's scalar weights w* over its active objectives, shape (d,), summing to 1."""
        weights = (
            np.ones(self.reward_dim) if self.scalar_weights is None else np.array(self.scalar_weights, dtype=float)
        )
        weights = weights * self.active(task)
        return np.asarray(weights / weights.sum())

    # Episodes ------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the draw of instances, as in every Gymnasium environment.
            options: ``{"index": i}`` takes the i-th instance, ``{"task": task}`` a given one (a task, or its JSON
                form); otherwise an instance is drawn.

        Returns:
            The prompt, and ``info`` with ``objectives``, ``active_objectives``, ``split``, ``index`` and ``task``.
        """
        super().reset(seed=seed)
        self._task, index = self._choose_task(dict(options or {}))
        self._answers = []
        self._seen = set()
        info = {**self._info(self._task), "split": self.split, "index": index, "task": self.task_info(self._task)}
        return self._observation(), info

    def step(self, action: str) -> tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]:
        """Score a response.

        Args:
            action: The whole response; with ``answers_as_steps`` the next answer, in its own tag.

        Returns:
            Observation (the prompt and the answers so far), reward (d,) float32, terminated, truncated and ``info``
            with ``reward_matrix`` (answers of this step, d), ``status`` and ``outcomes``.

        Raises:
            TypeError: The action is not a string.
            ResetNeeded: The episode is over, or none has begun.
        """
        answers = self.read_action(action)
        return self.finish_step(answers, *self.score_answers(self.current_task, answers, self._seen))

    def read_action(self, action: str) -> list[str | None]:
        """The first half of :meth:`step`: what stands inside the tags that this step looks at.

        Raises:
            TypeError: The action is not a string.
            ResetNeeded: The episode is over.
        """
        if not isinstance(action, str):
            raise TypeError(
                f"an action of {type(self).__name__} is a string, the response; got {type(action).__name__}"
            )
        if len(self._answers) >= self.num_answers:
            raise gym.error.ResetNeeded("this episode is over: call reset() before the next step()")
        answers = split_answers(action, self.num_answers)
        return [answers[len(self._answers)]] if self.answers_as_steps else answers

    def finish_step(
        self,
        answers: list[str | None],
        vectors: list[tuple[float, ...]],
        statuses: list[Status],
        outcomes: list[OutcomeT | None],
    ) -> tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]:
        """The second half of :meth:`step`: what it returns, given the scores of the answers."""
        task = self.current_task
        self._answers += answers
        matrix = np.array(vectors, dtype=np.float32)
        info = {
            **self._info(task),
            "reward_matrix": matrix,
            "status": [status.name.lower() for status in statuses],
            "outcomes": [self.outcome_info(outcome) for outcome in outcomes],
        }
        terminated = len(self._answers) >= self.num_answers
        return self._observation(), matrix.sum(axis=0, dtype=np.float32), terminated, False, info

    @property
    def current_task(self) -> TaskT:
        """The task of the current episode."""
        if self._task is None:
            raise gym.error.ResetNeeded("call reset() first: there is no current task")
        return self._task

    def outcome_info(self, outcome: OutcomeT | None) -> dict[str, Any] | None:
        """An outcome as plain JSON values, for ``info["outcomes"]``."""
        if outcome is None:
            return None
        if isinstance(outcome, tuple) and hasattr(outcome, "_asdict"):
            return dict(outcome._asdict())
        raise TypeError(f"override outcome_info for outcomes of type {type(outcome).__name__}")

    def render(self) -> Any:
        """The prompt and the answers so far as text; environments with pictures override this."""
        return None if self.render_mode is None else self._observation()

    # Inside --------------------------------------------------------------------------------------------------------

    def _choose_task(self, options: dict[str, Any]) -> tuple[TaskT, int | None]:
        index, task = options.pop("index", None), options.pop("task", None)
        if index is not None and task is not None:
            raise ValueError("reset takes options 'index' or 'task', not both")
        if options:
            raise ValueError(f"unknown reset option {sorted(options)[0]!r}: this environment knows 'index' and 'task'")
        if task is not None:
            return self._read_task(task), None
        if index is None:
            index = int(self.np_random.integers(2**31))
        return self.task(index), index

    def _read_task(self, task: object) -> TaskT:
        if isinstance(task, Mapping):
            try:
                task = self.task_type.model_validate(task)
            except ValidationError as error:
                first = error.errors()[0]
                place = "".join(f"{part}: " for part in first["loc"])
                raise ValueError(f"options['task'] is not a {self.task_type.__name__}: {place}{first['msg']}") from None
        if not isinstance(task, self.task_type):
            raise ValueError(f"options['task'] must be a {self.task_type.__name__}, got {type(task).__name__}")
        return task  # type: ignore[return-value]  # task_type is TaskT's class, which a type checker cannot see

    def _observation(self) -> str:
        task = self.current_task
        text = self.prompt(task, self.num_answers)
        if not self._answers:
            return text
        return f"{text}\n{format_answers(self._answers, self.num_answers)}"

    def _info(self, task: TaskT) -> dict[str, Any]:
        return {"objectives": self.objective_names, "active_objectives": self.active(task)}
