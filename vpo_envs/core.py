"""The contract of every environment: tasks, objectives, outcomes, answer sets, scores.

An environment defines its objectives and overrides four verbs, each a pure function of its arguments:

========================  =========================================  ==================================================
verb                      takes                                      returns
========================  =========================================  ==================================================
``generate(rng)``         a random generator                         a :class:`Task`
``prompt(task, m)``       a task and the number of answers           the text that a model reads
``parse(text)``           the text inside one answer tag             an answer, or raises :class:`Unparsable`
``evaluate(task, a)``     a task and a parsed answer                 the outcome: the facts that objectives score
========================  =========================================  ==================================================

Everything else is inherited: episodes, answer sets, batched scoring, spaces and rendering.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from vpo_envs.errors import AnswerTimeout as AnswerTimeout
from vpo_envs.errors import ScorerFailure as ScorerFailure
from vpo_envs.errors import UnknownFront as UnknownFront
from vpo_envs.errors import Unparsable as Unparsable
from vpo_envs.pareto import FactGrid, falling_component, non_dominated
from vpo_envs.spaces import TextSpace
from vpo_envs.text import format_answers, split_answers
from vpo_envs.wording import counted

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

MAX_RESPONSE_CHARS = 1_000_000
"""Longest response in the action space; longer ones are still scored."""

MAX_ANSWERS = 1000
"""Most answers per response."""

MAX_STREAM = 2**32
"""Bound of ``data_seed`` and of an instance's index: larger numbers could share a NumPy seed sequence."""


def check_whole(name: str, value: object, least: int, below: int | None = None) -> None:
    """Raise :class:`ValueError` unless ``value`` is an integer (not a ``bool``) from ``least`` to below ``below``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (below is not None and value >= below):  # type: ignore[operator]  # an integer
        bounds = f"of at least {least}" if below is None else f"from {least} to {below - 1}"
        raise ValueError(f"{name} must be an integer {bounds}, got {value!r}")


def refuse_arguments(made_of: type[Any], unknown: Mapping[str, Any]) -> None:
    """Raise :class:`ValueError` if a constructor was given arguments that it does not take."""
    if not unknown:
        return
    # A ValueError, since Gymnasium rewrites the message of a TypeError.
    first, accepted = next(iter(unknown)), ", ".join(argument_names(made_of))
    message = f"{made_of.__name__} takes no argument {first!r}: it takes {accepted}"
    raise ValueError(message)


def argument_names(made_of: type[Any]) -> list[str]:
    """Return the names of a constructor's keyword arguments, with those of its bases as far as it passes them on."""
    names: dict[str, None] = {}
    for cls in made_of.__mro__:
        if init := vars(cls).get("__init__"):
            parameters = list(inspect.signature(init).parameters.values())[1:]
            names |= {p.name: None for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            if all(p.kind is not p.VAR_KEYWORD for p in parameters):
                break
    return list(names)


class Frozen(BaseModel):
    """Immutable data that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(Frozen):
    """One instance: frozen data without behaviour. It survives a round trip through JSON."""

    def content_hash(self) -> str:
        """Return a hash of the content as 32 hexadecimal digits; equal instances have equal hashes."""
        content = f"{type(self).__name__}:{self.model_dump_json()}"
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    @property
    def canonical(self) -> str:
        """What is equal in two tasks that are the same but for an order or for names that no answer holds.

        No two splits share it, and a sample of tasks is as large as its number of different ones.
        """
        return self.model_dump_json()


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
    """Result of scoring one answer. Every status except ``OK`` comes with a zero vector."""

    OK = 0
    MISSING = 1
    """No complete tag at this position."""
    UNPARSABLE = 2
    """The tag does not hold an answer in the form that the prompt asks for."""
    DUPLICATE = 3
    """The same parsed answer as an earlier one of this response."""
    INVALID = 4
    """The scorer itself failed. The zero vector is not a score, and a trainer drops the rollout."""
    TIMED_OUT = 5
    """The answer exceeded the scorer's time limit."""


Failure = ScorerFailure | AnswerTimeout
FAILURES = (ScorerFailure, AnswerTimeout)


class Reason(str):
    """Why an answer has no outcome: the message with which it could not be parsed or scored."""


class _Scores(NamedTuple):
    rewards: NDArray[np.float32]
    """Reward vectors, shape (n, m, d), each entry in [0, 1]."""
    status: NDArray[np.int8]
    """:class:`Status` of each answer, shape (n, m)."""


class RewardBatch(_Scores):
    """Scores of n responses with m answers each, which unpack into ``rewards`` and ``status``."""

    failure: str
    """Why the scorer failed on the first answer that is ``INVALID``; empty if there is none."""

    def __new__(cls, rewards: NDArray[np.float32], status: NDArray[np.int8], failure: str = "") -> RewardBatch:
        """Return the scores."""
        batch = super().__new__(cls, rewards, status)
        batch.failure = failure
        return batch


class FrontPoint(NamedTuple):
    """A reward vector of the exact Pareto front and an answer that attains it."""

    vector: tuple[float, ...]
    answer: str


SCORING = ("parse", "evaluate", "evaluate_many", "feasible", "score_answers", "score_batch")
"""Methods that decide the rewards; a front computed by a class above one of them may be wrong."""
_namespaces: dict[int, str] = {}
"""Name and file of the class that each namespace belongs to."""
_executions: dict[str, object] = {}
"""Spec of the module that last made the class of each name without a stated namespace."""


class VectorTextEnv(gym.Env[str, str], ABC, Generic[TaskT, AnswerT, OutcomeT]):
    """A text environment with vector rewards: subclasses override ``generate``, ``prompt``, ``parse`` and ``evaluate``.

    One episode is one task. With ``num_answers=m`` the agent sends one response that holds m tagged answers, and the
    reward is the sum of their m reward vectors; ``info["reward_matrix"]`` has one row for each. With
    ``answers_as_steps=True`` the same answers are sent one step at a time, and the return is the same.

    ## Observation space

    Text: the prompt; with ``answers_as_steps=True`` also the answers so far.

    ## Starting state

    A random task of the split, or the one that ``reset(options={"index": i})`` or ``options={"task": task}`` names.

    ## Episode end

    After the one response, or after ``num_answers`` steps with ``answers_as_steps=True``.

    ## Information

    ``info["reward_matrix"]`` (m, d), ``status`` per answer, ``outcomes`` (the facts that the objectives look at) per
    answer, ``reasons`` per answer (why it could not be parsed or scored; empty if it could), and ``active_objectives``
    (d,).

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``. No instance is in two splits.
        num_answers: Answers per response, m, from 1 to 1,000.
        answers_as_steps: Send the answers one at a time: m steps, each observation the prompt and the answers so far.
        data_seed: Chooses the stream of instances: the i-th instance is a function of (split, data_seed, i).
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own form

    task_type: ClassVar[type[Task]]
    """The class of this environment's tasks."""
    namespace: ClassVar[int]
    """Number of this environment's random streams. By default it follows from the name of the class that defines
    ``generate``; a number stated in the class keeps the streams when that name changes, and the number of a base class
    keeps that class's streams."""
    objectives: tuple[Objective, ...]
    """The components of the reward vector, in order."""
    monotone_objectives: ClassVar[tuple[Objective, ...]] = ()
    """Objectives known to be monotone on :meth:`fact_grids`, which are not checked again."""
    scalar_weights: tuple[float, ...] | None = None
    """Fixed weights w* of the scalar reward that scalar methods train on; ``None`` means equal weights."""
    colour: bool = False
    """Whether ``render()`` may colour its text for a terminal; `vpo play` sets it."""
    names_tags: bool = True
    """Whether prompts name the answer tags; false for prompts made for a model that already knows them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Derive the namespace of a class with a generator from its name, and refuse one that another class has."""
        super().__init_subclass__(**kwargs)
        stated = vars(cls).get("namespace")
        if stated is None and "generate" not in vars(cls):
            return
        if stated is not None:
            check_whole(f"the namespace of {cls.__qualname__}", stated, 0, MAX_STREAM)
        if stated is not None and stated in [vars(base).get("namespace") for base in cls.__mro__[1:]]:
            return
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        # By its file, a module has one name whether it is run as a script or imported.
        place = ".".join(filter(None, [module.__package__, Path(file).stem])) if module and file else cls.__module__
        name = f"{place}.{cls.__qualname__}"
        if stated is None:
            # Each import or reload has a spec of its own; a notebook defines a class again in the same __main__.
            execution = getattr(module, "__spec__", None) if cls.__module__ != "__main__" else None
            if "<locals>" in name or (execution is not None and _executions.get(name) is execution):
                raise TypeError(
                    f"several classes can have the name {name}, so they would draw from the same random streams: give "
                    f"each a whole number of its own, from 0 to {MAX_STREAM - 1}, as the class attribute namespace"
                )
            _executions[name] = execution
            # The top bit keeps derived numbers apart from the small ones that people choose.
            digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
            cls.namespace = int.from_bytes(digest) | 1 << 31
        claimed = f"{name} ({Path(file).resolve()})" if file else name
        owner = _namespaces.setdefault(cls.namespace, claimed)
        if owner != claimed:
            raise TypeError(
                f"{owner} and {claimed} both have namespace {cls.namespace}, so they would draw from the same random "
                "streams: give one of them another number"
            )

    def __init__(
        self,
        *,
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        refuse_arguments(type(self), unknown)
        for name, wanted in (("objectives", "a tuple of vpo_envs.Objective"), ("task_type", "a subclass of Task")):
            if not getattr(self, name, None):
                raise TypeError(f"{type(self).__name__} has no {name}: set the class attribute {name} to {wanted}")
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        repeated = [name for i, name in enumerate(self.objective_names) if name in self.objective_names[:i]]
        if repeated:
            raise ValueError(f"{type(self).__name__} has two objectives named {repeated[0]!r}: rename one of them")
        check_whole("num_answers", num_answers, 1, MAX_ANSWERS + 1)
        check_whole("data_seed", data_seed, 0, MAX_STREAM)
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
                f"scalar_weights of {type(self).__name__} need {counted(self.reward_dim, 'value')}, one per objective "
                f"({', '.join(self.objective_names)}); got {len(self.scalar_weights)}"
            )
        self.observation_space = TextSpace(MAX_RESPONSE_CHARS * (1 + (num_answers if answers_as_steps else 1)))
        self.action_space = TextSpace(MAX_RESPONSE_CHARS)
        high = 1.0 if answers_as_steps else float(num_answers)
        self.reward_space = gym.spaces.Box(0.0, high, (self.reward_dim,), np.float32)
        self._task: TaskT | None = None
        self._answers: list[str | None] = []
        self._seen: set[AnswerT] = set()
        self._falling: dict[FactGrid, int | None] = {}

    # The four verbs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> TaskT:
        """Draw an instance of this environment's split: a function of the generator's state alone."""

    @abstractmethod
    def prompt(self, task: TaskT, num_answers: int) -> str:
        """Return the text that asks for ``num_answers`` answers to ``task`` and names exactly their tags."""

    def condition(self, prompt: str, weights: NDArray[np.floating], active: NDArray[np.bool_] | None = None) -> str:
        """Return a prompt of this environment with objective weights stated in it.

        Args:
            prompt: The prompt.
            weights: Weights in whole per cent, summing to 1, shape (d,).
            active: Which objectives count, shape (d,); all if ``None``.
        """
        lines = [
            f"- {objective.name}: {100 * float(weight):.4g} % ({objective.description})"
            for i, (objective, weight) in enumerate(zip(self.objectives, weights, strict=True))
            if active is None or active[i]
        ]
        return "\n".join(["Your response is judged by these goals, with these weights:", *lines, "", prompt])

    @abstractmethod
    def parse(self, text: str) -> AnswerT:
        """Parse the text inside one answer tag.

        Returns:
            A hashable answer; equal answers are duplicates of each other.

        Raises:
            Unparsable: The text is not an answer; the message is the reason.
        """

    @abstractmethod
    def evaluate(self, task: TaskT, answer: AnswerT) -> OutcomeT:
        """Return the facts about ``answer`` that the objectives score; may raise one of :data:`FAILURES`."""

    # Optional hooks ------------------------------------------------------------------------------------------------

    def canonical(self, answer: AnswerT, outcome: OutcomeT) -> AnswerT:
        """Return ``answer`` without the parts that did not affect its outcome; equal results are duplicates."""
        return answer

    def evaluate_many(self, pairs: Sequence[tuple[TaskT, AnswerT]]) -> Sequence[OutcomeT | Failure]:
        """Evaluate a batch of answers; override it to evaluate them in parallel.

        Args:
            pairs: Tasks with parsed answers; no pair occurs twice.

        Returns:
            For each pair its outcome, or the exception that :meth:`evaluate` raises for it.
        """
        return [self.try_evaluate(task, answer) for task, answer in pairs]

    def try_evaluate(self, task: TaskT, answer: AnswerT) -> OutcomeT | Failure:
        """Return the outcome of one answer, or the :class:`ScorerFailure` or :class:`AnswerTimeout` it raises."""
        try:
            return self.evaluate(task, answer)
        except FAILURES as failure:
            return failure

    def feasible(self, outcome: OutcomeT) -> bool:
        """Return whether an outcome earns anything at all; the reward vector of an infeasible one is zero."""
        return True

    def active(self, task: TaskT) -> NDArray[np.bool_]:
        """Return which objectives count for ``task``, shape (d,). An inactive one carries no weight anywhere."""
        return np.ones(self.reward_dim, dtype=bool)

    def outcome_front(self, task: TaskT) -> Sequence[tuple[OutcomeT, str]]:
        """Return every outcome that no other beats in every fact, each with an answer that attains it.

        :meth:`front` applies the objectives to them, which is exact for all objectives that are monotone in those
        facts; see :meth:`fact_grids`.

        Raises:
            UnknownFront: This environment has no exact solver.
        """
        raise UnknownFront(f"{type(self).__name__} has no exact Pareto front: use expected utility without regret")

    def fact_grids(self, task: TaskT) -> Sequence[FactGrid]:
        """Return the outcomes on which reward vectors must be monotone for :meth:`outcome_front` to give the front.

        Empty, the default, means that it gives the front of any objectives, as it does where it lists all outcomes.
        """
        return ()

    def demonstrations(self, task: TaskT, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return ``num_answers`` reasonable answers, without tags, for supervised warm starts."""
        raise NotImplementedError(f"{type(self).__name__} has no demonstrations")

    def task_info(self, task: TaskT) -> dict[str, Any]:
        """Return the task's public data as plain JSON values, for ``info["task"]``."""
        return task.model_dump(mode="json")

    # Instances -----------------------------------------------------------------------------------------------------

    def task(self, index: int) -> TaskT:
        """Return the ``index``-th instance, a pure function of (split, data_seed, index) and the other arguments."""
        check_whole("the index of a task", index, 0, MAX_STREAM)
        entropy = [self.namespace, SPLITS.index(self.split), self.data_seed, index]
        return self.generate(np.random.default_rng(np.random.SeedSequence(entropy)))

    # Scores --------------------------------------------------------------------------------------------------------

    @property
    def reward_dim(self) -> int:
        """Number of objectives, d."""
        return len(self.objectives)

    @property
    def criteria_env(self) -> VectorTextEnv[Any, Any, Any]:
        """The environment that evaluations measure: this one, or the one under a decomposition."""
        return self

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Names of the objectives in the order of the reward vector."""
        return tuple(objective.name for objective in self.objectives)

    def reward_vector(self, outcome: OutcomeT) -> tuple[float, ...]:
        """Return the reward vector of an outcome, shape (d,): the objectives, or zeros if it is not feasible."""
        if not self.feasible(outcome):
            return (0.0,) * len(self.objectives)
        return tuple([objective.score(outcome) for objective in self.objectives])

    def score_answers(
        self, task: TaskT, answers: Sequence[str | None], seen: set[AnswerT] | None = None
    ) -> tuple[list[tuple[float, ...]], list[Status], list[OutcomeT | Reason | None]]:
        """Score the answers of one response.

        Args:
            task: The instance.
            answers: The text inside each tag; ``None`` for a missing tag.
            seen: Parsed answers given before, whose repetitions are duplicates; the new ones are added.

        Returns:
            Reward vectors, statuses and outcomes, one for each answer; without an outcome there is the :class:`Reason`,
            or ``None`` where the status says it all.
        """
        seen = set() if seen is None else seen
        return self._score(task, answers, seen, self._evaluator([(task, answers, seen)]))

    def score_batch(
        self, tasks: Sequence[TaskT], responses: Sequence[str], num_answers: int | None = None
    ) -> RewardBatch:
        """Score responses without episodes; ``step`` uses the same code.

        Args:
            tasks: n instances, one per response.
            responses: n whole responses.
            num_answers: m; the environment's own if ``None``.

        Returns:
            Rewards (n, m, d) and statuses (n, m); ``failure`` says why the first ``INVALID`` answer has no score.

        Raises:
            ValueError: The numbers of tasks and responses differ, or m is below 1.
        """
        if len(tasks) != len(responses):
            raise ValueError(f"score_batch needs one task per response, got {len(tasks)} and {len(responses)}")
        m = self.num_answers if num_answers is None else num_answers
        check_whole("num_answers", m, 1, MAX_ANSWERS + 1)
        asked = zip(tasks, responses, strict=True)
        evaluate = self._evaluator((task, split_answers(text, m), set()) for task, text in asked)
        vectors: list[tuple[float, ...]] = []
        statuses: list[Status] = []
        failure = ""
        for task, text in zip(tasks, responses, strict=True):
            scored = self._score(task, split_answers(text, m), set(), evaluate)
            vectors += scored[0]
            statuses += scored[1]
            # Outcomes are not kept: with many of them alive the garbage collector would take a tenth of the time.
            if not failure and Status.INVALID in scored[1]:
                failure = str(scored[2][scored[1].index(Status.INVALID)])
        shape = (len(tasks), m)
        rewards = np.array(vectors, dtype=np.float32).reshape(*shape, self.reward_dim)
        # An array made from members of an enumeration takes ten times as long as one made from their bytes.
        return RewardBatch(rewards, np.frombuffer(bytearray(statuses), dtype=np.int8).reshape(shape), failure)

    def _evaluator(
        self, responses: Iterable[tuple[TaskT, Sequence[str | None], set[AnswerT]]]
    ) -> Callable[[TaskT, AnswerT], OutcomeT]:
        """Return the function that evaluates answers: ``evaluate``, or a lookup in the results of ``evaluate_many``."""
        if type(self).evaluate_many is VectorTextEnv.evaluate_many:
            return self.evaluate
        pairs: dict[tuple[int, AnswerT], tuple[TaskT, AnswerT]] = {}

        def collect(task: TaskT, answer: AnswerT) -> OutcomeT:
            pairs[id(task), answer] = task, answer
            raise ScorerFailure("not evaluated yet")

        for task, answers, seen in responses:
            self._score(task, answers, set(seen), collect)
        found = dict(zip(pairs, self.evaluate_many(list(pairs.values())) if pairs else (), strict=True))

        def look_up(task: TaskT, answer: AnswerT) -> OutcomeT:
            outcome = found[id(task), answer]
            if isinstance(outcome, FAILURES):
                raise outcome
            return outcome

        return look_up

    def _score(
        self,
        task: TaskT,
        answers: Sequence[str | None],
        seen: set[AnswerT],
        evaluate: Callable[[TaskT, AnswerT], OutcomeT],
    ) -> tuple[list[tuple[float, ...]], list[Status], list[OutcomeT | Reason | None]]:
        zero = (0.0,) * len(self.objectives)
        vectors: list[tuple[float, ...]] = []
        statuses: list[Status] = []
        outcomes: list[OutcomeT | Reason | None] = []
        parse, reward_vector = self.parse, self.reward_vector
        ok = Status.OK
        canonical = None if type(self).canonical is VectorTextEnv.canonical else self.canonical
        for text in answers:
            vector, status = zero, ok
            outcome: OutcomeT | Reason | None = None
            if text is None:
                status = Status.MISSING
            else:
                try:
                    answer = parse(text)
                    if answer in seen:
                        status = Status.DUPLICATE
                    else:
                        seen.add(answer)
                        outcome = found = evaluate(task, answer)
                        vector = reward_vector(found)
                        if canonical is not None and (shortest := canonical(answer, found)) != answer:
                            if shortest in seen:
                                vector, status, outcome = zero, Status.DUPLICATE, None
                            seen.add(shortest)
                except Unparsable as error:
                    status, outcome = Status.UNPARSABLE, Reason(error)
                except ScorerFailure as error:
                    status, outcome = Status.INVALID, Reason(error)
                except AnswerTimeout as error:
                    status, outcome = Status.TIMED_OUT, Reason(error)
            vectors.append(vector)
            statuses.append(status)
            outcomes.append(outcome)
        return vectors, statuses, outcomes

    def pareto_front(self, gamma: float = 1.0, *, task: TaskT | None = None) -> list[NDArray[np.float32]]:
        """Return the vectors (d,) of :meth:`front`, by default for the current task, in MO-Gymnasium's form.

        ``gamma`` has no effect, because an answer is scored in the step that gives it.
        """
        points = self.front(self.current_task if task is None else task)
        return [np.array(point.vector, dtype=np.float32) for point in points]

    def front(self, task: TaskT) -> list[FrontPoint]:
        """Return the exact Pareto front of ``task`` under this environment's objectives, each point with an answer.

        Raises:
            UnknownFront: There is no exact solver, a subclass changes what the solver relies on, or an answer of the
                front could not be scored.
        """
        self.check_solver(task)
        try:
            points = [FrontPoint(self.reward_vector(outcome), answer) for outcome, answer in self.outcome_front(task)]
        except FAILURES as error:
            raise UnknownFront(
                f"the front of this task of {type(self).__name__} is unknown, since an answer of it could not be "
                f"scored: {error}"
            ) from error
        keep = non_dominated(np.array([point.vector for point in points]))
        return [point for point, kept in zip(points, keep, strict=True) if kept]

    def check_scorers(self) -> None:
        """Raise :class:`vpo_envs.errors.NothingToScoreWith` if this environment lacks what scores its answers."""

    def check_solver(self, task: TaskT, verb: str = "outcome_front") -> None:
        """Raise :class:`UnknownFront` if this class changes what its inherited solver, ``verb``, relies on."""
        own = type(self)
        # How far down the class hierarchy each method is defined; 0 is this class itself.
        verbs = (verb, "reward_vector", *SCORING)
        age = {name: next(i for i, cls in enumerate(own.__mro__) if name in vars(cls)) for name in verbs}
        solver = own.__mro__[age[verb]].__name__
        if solver == VectorTextEnv.__name__:
            return
        for name in SCORING:
            if age[name] < age[verb]:
                raise UnknownFront(
                    f"{own.__name__} overrides {name}, so the front that {solver} computes may be wrong: override "
                    f"{verb} as well"
                )
        if age["reward_vector"] >= age[verb] and all(o in self.monotone_objectives for o in self.objectives):
            return
        for grid in self.fact_grids(task):
            if grid not in self._falling:
                self._falling[grid] = falling_component(self.reward_vector, grid)
            falling = self._falling[grid]
            if falling is not None:
                raise UnknownFront(
                    f"objective {self.objective_names[falling]!r} of {own.__name__} falls where an outcome gets better "
                    f"in one fact, so the front that {solver} computes may be wrong: override {verb}"
                )

    def optimum(self, task: TaskT) -> float:
        """Return the best scalar reward w*·r that any answer to ``task`` can get, from the exact front."""
        weights = self.fixed_weights(task)
        return float(max(np.dot(weights, point.vector) for point in self.front(task)))

    def fixed_weights(self, task: TaskT) -> NDArray[np.float64]:
        """Return the scalar weights w* over the task's active objectives, shape (d,), summing to 1."""
        weights = np.array(self.scalar_weights or [1.0] * self.reward_dim) * self.active(task)
        return np.asarray(weights / weights.sum())

    # Episodes ------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the draw of instances, as in every Gymnasium environment.
            options: ``{"index": i}`` selects the i-th instance, ``{"task": task}`` a given task or its JSON form; by
                default an instance is drawn.

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
            action: The whole response; with ``answers_as_steps`` the next answer in its own tag.

        Returns:
            Observation (the prompt and the answers so far), reward (d,) float32, terminated, truncated and ``info``
            with ``reward_matrix`` (answers of this step, d), ``status``, ``outcomes`` and ``reasons``.

        Raises:
            TypeError: The action is not a string.
            ResetNeeded: The episode is over, or none has begun.
        """
        answers = self.read_action(action)
        return self.finish_step(answers, *self.score_answers(self.current_task, answers, self._seen))

    def read_action(self, action: str) -> list[str | None]:
        """Return the text inside the tags that this step scores; see :meth:`step`."""
        if not isinstance(action, str):
            raise TypeError(f"an action of {type(self).__name__} is a response string, got {type(action).__name__}")
        if len(self._answers) >= self.num_answers:
            raise gym.error.ResetNeeded("this episode is over: call reset() before the next step()")
        answers = split_answers(action, self.num_answers)
        return [answers[len(self._answers)]] if self.answers_as_steps else answers

    def finish_step(
        self,
        answers: list[str | None],
        vectors: list[tuple[float, ...]],
        statuses: list[Status],
        outcomes: list[OutcomeT | Reason | None],
    ) -> tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]:
        """Return the result of :meth:`step` from the scores of its answers."""
        task = self.current_task
        self._answers += answers
        matrix = np.array(vectors, dtype=np.float32)
        info = {
            **self._info(task),
            "reward_matrix": matrix,
            "status": [status.name.lower() for status in statuses],
            "outcomes": [self.outcome_info(None if isinstance(one, Reason) else one) for one in outcomes],
            "reasons": [str(one) if isinstance(one, Reason) else "" for one in outcomes],
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
        """Return an outcome as plain JSON values, for ``info["outcomes"]``."""
        if outcome is None:
            return None
        if isinstance(outcome, tuple) and hasattr(outcome, "_asdict"):
            return dict(outcome._asdict())
        raise TypeError(f"override outcome_info for outcomes of type {type(outcome).__name__}")

    def render(self) -> Any:
        """Return the prompt and the answers so far as text; environments with pictures override this."""
        return None if self.render_mode is None else self._observation()

    def drawing(self, task: TaskT, answer: AnswerT | None = None) -> dict[str, Any] | None:
        """Return how a page draws a task, or an answer to it; ``None``, the default, means as text.

        A task is ``{"says": name, "board": rows}``, lines of symbols, and an answer ``{"says": words, "path": cells}``
        on that board, each cell a column and a row.
        """
        return None

    # Internals -----------------------------------------------------------------------------------------------------

    def _choose_task(self, options: dict[str, Any]) -> tuple[TaskT, int | None]:
        index, task = options.pop("index", None), options.pop("task", None)
        if index is not None and task is not None:
            raise ValueError("reset takes options 'index' or 'task', not both")
        if options:
            raise ValueError(f"unknown reset option {sorted(options)[0]!r}: the options are 'index' and 'task'")
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
