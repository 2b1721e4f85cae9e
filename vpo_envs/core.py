"""The contract of every environment: tasks, objectives, four verbs, and what is inherited.

An environment states its objectives and overrides four verbs, each a pure function of its arguments:

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from vpo_envs.common.threads import map_in_threads
from vpo_envs.common.wording import counted
from vpo_envs.contract.answers import FAILURES as FAILURES
from vpo_envs.contract.answers import Failure as Failure
from vpo_envs.contract.answers import Reason as Reason
from vpo_envs.contract.answers import Response, Scored, collect, score_responses
from vpo_envs.contract.answers import RewardBatch as RewardBatch
from vpo_envs.contract.answers import Status as Status
from vpo_envs.contract.arguments import check_whole, refuse_arguments
from vpo_envs.contract.episodes import MAX_ANSWERS, Episode, read_reset_options, read_task
from vpo_envs.contract.errors import AnswerTimeout as AnswerTimeout
from vpo_envs.contract.errors import ScorerFailure as ScorerFailure
from vpo_envs.contract.errors import UnknownFront as UnknownFront
from vpo_envs.contract.errors import Unparsable as Unparsable
from vpo_envs.contract.fronts import FrontPoint as FrontPoint
from vpo_envs.contract.fronts import changed_scoring
from vpo_envs.contract.spaces import MAX_RESPONSE_CHARS, TextSpace
from vpo_envs.contract.streams import MAX_STREAM, claim_namespace, stream
from vpo_envs.contract.streams import SPLITS as SPLITS
from vpo_envs.contract.streams import Split as Split
from vpo_envs.contract.streams import split_of_content as split_of_content
from vpo_envs.contract.turns import TakenTurn, Turns
from vpo_envs.pareto import FactGrid, falling_component, non_dominated
from vpo_envs.text import Call as Call
from vpo_envs.text import Prompt, format_answers, split_answers, with_reply


class Frozen(BaseModel):
    """Immutable data that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(Frozen):
    """A task of an environment: frozen data without behaviour. It survives a round trip through JSON."""

    def content_hash(self) -> str:
        """Return a hash of the content as 32 hexadecimal digits; equal tasks have equal hashes."""
        content = f"{type(self).__name__}:{self.model_dump_json()}"
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    @property
    def canonical(self) -> str:
        """A text that is equal for two tasks which differ only in an order, or in names that no answer holds.

        An environment says which orders these are: of numbers or paragraphs, but not of the sentences of a paragraph.
        No two splits share such a text. A sample of tasks counts as many tasks as it has different texts.
        """
        return self.model_dump_json()

    @property
    def split(self) -> Split:
        """The split that the task belongs to: a function of :attr:`canonical`, or of a part of it."""
        return split_of_content(self.canonical)


TaskT = TypeVar("TaskT", bound=Task)
AnswerT = TypeVar("AnswerT", bound=Hashable)
OutcomeT = TypeVar("OutcomeT")

Step = tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]
"""Observation, reward (d,), terminated, truncated and info."""


class Objective(NamedTuple):
    """One component of the reward vector."""

    name: str
    description: str
    score: Callable[[Any], float]
    """Maps an outcome to a number in [0, 1]; higher is better."""


class Turn(NamedTuple):
    """An action, read but without effect yet."""

    response: Response
    """The answers to score; none where the environment replies."""
    text: str
    """The response so far, with this action and the reply to it."""
    reply: str | None
    is_cut: bool
    """Whether the action makes one call too many."""


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
        split: ``"train"``, ``"validation"`` or ``"test"``. No task is in two splits.
        num_answers: Answers per response, m, from 1 to 1,000.
        answers_as_steps: Send the answers one at a time: m steps, each observation the prompt and the answers so far.
        data_seed: Chooses the stream of tasks: the i-th task is a function of (split, data_seed, i).
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own form

    task_type: ClassVar[type[Task]]
    """The class of this environment's tasks."""
    namespace: ClassVar[int]
    """Number of this environment's random streams. By default it follows from the name of the class that defines
    ``generate``. A number stated in the class keeps the streams when that name changes. The number of a base class
    keeps that class's streams."""
    objectives: tuple[Objective, ...]
    """The components of the reward vector, in order."""
    monotone_objectives: ClassVar[tuple[Objective, ...]] = ()
    """Objectives known to be monotone on :meth:`fact_grids`, which are not checked again."""
    scalar_weights: tuple[float, ...] | None = None
    """Fixed weights w* of the scalar reward that scalar methods train on; ``None`` means equal weights."""
    colour: bool = False
    """Whether ``render()`` may colour its text for a terminal; `vpo play` sets it."""
    harmless_arguments: ClassVar[frozenset[str]] = frozenset(
        {"split", "num_answers", "answers_as_steps", "data_seed", "render_mode"}
    )
    """Arguments that an untrusted sample file or run may choose. They name no limit, and nothing that the environment
    reads, runs or requests. All other arguments need ``--trust``."""
    runs_programs: ClassVar[bool] = False
    """Whether evaluating an answer runs a program in it. Programs of a saved file need ``--trust``."""
    turn_tags: tuple[str, ...] = ()
    """Names of the tags with which a model calls the environment in the middle of a response, as ``("open",)`` for
    ``<open>…</open>``. They are lower-case letters, digits and ``_``."""
    max_calls: int = 8
    """Most calls of a response; one more ends the episode."""
    names_tags: bool = True
    """Whether prompts name the answer tags; false for prompts made for a model that already knows them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a class with a generator random streams of its own."""
        super().__init_subclass__(**kwargs)
        claim_namespace(cls)

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
        self._check_statements()
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
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
        self.observation_space = TextSpace(MAX_RESPONSE_CHARS * (1 + (num_answers if answers_as_steps else 1)))
        self.action_space = TextSpace(MAX_RESPONSE_CHARS)
        high = 1.0 if answers_as_steps else float(num_answers)
        self.reward_space = gym.spaces.Box(0.0, high, (self.reward_dim,), np.float32)
        self._episode: Episode[TaskT] | None = None
        self._falling: dict[FactGrid, int | None] = {}
        """The first objective that falls on each grid; finding it takes long."""

    def _check_statements(self) -> None:
        """Raise an error if the class does not state what it must."""
        name = type(self).__name__
        for attribute, wanted in (("objectives", "a tuple of vpo_envs.Objective"), ("task_type", "a subclass of Task")):
            if not getattr(self, attribute, None):
                raise TypeError(f"{name} has no {attribute}: set the class attribute {attribute} to {wanted}")
        names = self.objective_names
        repeated = [objective for i, objective in enumerate(names) if objective in names[:i]]
        if repeated:
            raise ValueError(f"{name} has two objectives named {repeated[0]!r}: rename one of them")
        if self.scalar_weights is not None and len(self.scalar_weights) != self.reward_dim:
            raise ValueError(
                f"scalar_weights of {name} need {counted(self.reward_dim, 'value')}, one per objective "
                f"({', '.join(names)}); got {len(self.scalar_weights)}"
            )

    # The four verbs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> TaskT:
        """Draw a task of this environment's split: a function of the generator's state alone."""

    @abstractmethod
    def prompt(self, task: TaskT, num_answers: int) -> str:
        """Return the text that asks for ``num_answers`` answers to ``task`` and names exactly their tags."""

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

    def respond(self, task: TaskT, calls: Sequence[Call]) -> str | None:
        """Return the reply to the last call of a response so far; ``None`` if there is nothing to say.

        It is a pure function of its arguments. What it returns is read by the model, and is never an answer.
        """
        return None

    def evaluate_after(self, task: TaskT, answer: AnswerT, calls: Sequence[Call]) -> OutcomeT:
        """Return the facts about ``answer``, given the calls before it in its response that were replied to.

        By default the calls do not matter. Where a class overrides this, equal answers are duplicates of each other
        only after the same calls.
        """
        return self.evaluate(task, answer)

    def effective(self, answer: AnswerT, outcome: OutcomeT) -> AnswerT:
        """Return ``answer`` without the parts that did not affect its outcome; equal results are duplicates."""
        return answer

    def feedback(self, task: TaskT, answer: str) -> str | None:
        """Return what an answer does on the examples of the prompt; ``None``, the default, if that is not known.

        A search shows it to the model beside the answer that is to be improved. It must not reveal
        what the scores alone tell.
        """
        return None

    def evaluate_many(self, pairs: Sequence[tuple[TaskT, AnswerT]]) -> Sequence[OutcomeT | Failure]:
        """Evaluate tasks with parsed answers, no pair twice; override it to evaluate them in parallel.

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

    def check_scorers(self) -> None:
        """Raise a ValueError if what scores answers is missing or does not work; called before a model is loaded.

        :class:`~vpo_envs.contract.errors.NothingToScoreWith` says that nothing is there.
        """

    def set_trainer(
        self, encode: Callable[[Sequence[str]], list[list[int]]] | None, state: Callable[[], Any] | None = None
    ) -> None:
        """Give the environment the tokenizer and the trainer's state, once the model that answers is loaded.

        By default scores depend on neither of the two.

        Args:
            encode: Returns the token ids of texts; ``None`` without a tokenizer.
            state: Returns the ``transformers.TrainerState`` of the training; ``None`` without one.

        Raises:
            ValueError: What scores answers needs something that is not there.
        """

    def active(self, task: TaskT) -> NDArray[np.bool_]:
        """Return which objectives count for ``task``, shape (d,). An inactive objective has no weight anywhere."""
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
        """Return ``num_answers`` reasonable answers, without tags, for supervised warm starts.

        No two of them are the same answer, since a duplicate earns nothing.

        Raises:
            NotImplementedError: The environment has no demonstrations, the default, or too few that differ.
        """
        raise NotImplementedError(f"{type(self).__name__} has no demonstrations")

    def task_info(self, task: TaskT) -> dict[str, Any]:
        """Return the task's public data as plain JSON values, for ``info["task"]``."""
        return task.model_dump(mode="json")

    def outcome_info(self, outcome: OutcomeT | None) -> dict[str, Any] | None:
        """Return an outcome as plain JSON values, for ``info["outcomes"]``."""
        if outcome is None:
            return None
        if isinstance(outcome, tuple) and hasattr(outcome, "_asdict"):
            return dict(outcome._asdict())
        raise TypeError(f"override outcome_info for outcomes of type {type(outcome).__name__}")

    def why(self, task: TaskT, facts: Mapping[str, Any]) -> str:
        """Return in words what an answer lacks, from its ``info["outcomes"]``; empty if the rewards alone say it."""
        return ", ".join(f"not {name.replace('_', ' ')}" for name, fact in facts.items() if fact is False)

    def drawing(self, task: TaskT, answer: AnswerT | None = None) -> dict[str, Any] | None:
        """Return how a page draws a task, or an answer to it; ``None``, the default, means as text.

        A task is ``{"says": name, "board": rows}``, lines of symbols, and an answer ``{"says": words, "path": cells}``
        on that board, each cell a column and a row.
        """
        return None

    # Episodes ------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the draw of tasks, as in every Gymnasium environment.
            options: ``{"index": i}`` selects the i-th task, ``{"task": task}`` a given task or its JSON form; by
                default a task is drawn.

        Returns:
            The prompt, and ``info`` with ``objectives``, ``active_objectives``, ``split``, ``index`` and ``task``.
        """
        super().reset(seed=seed)
        index, given = read_reset_options(options or {})
        if given is not None:
            task: TaskT = read_task(given, self.task_type)  # type: ignore[assignment]  # a class variable has no TaskT
        else:
            index = self.draw_index() if index is None else index
            task = self.task(index)
        self._episode = Episode(task, self.prompt(task, self.num_answers), self.num_answers)
        info = {**self._info(task), "split": self.split, "index": index, "task": self.task_info(task)}
        return self._episode.observation(), info

    def step(self, action: str) -> Step:
        """Score a response, or reply to a call.

        Args:
            action: The whole response; with ``answers_as_steps`` the next answer in its own tag. If it holds a call to
                which the environment replies, what follows the call is ignored, and the next action goes on after the
                reply. A response that holds the replies already, as those of samplers do, is read whole.

        Returns:
            Observation (the prompt and the answers so far, or the reply), reward (d,) float32, terminated, truncated
            and ``info`` with ``reward_matrix`` (answers of this step, d), ``status``, ``outcomes`` and ``reasons``. A
            call earns nothing, and ``info`` lacks these; one more than :attr:`max_calls` truncates the episode.

        Raises:
            TypeError: The action is not a string.
            ResetNeeded: The episode is over, or none has begun.
        """
        turn = self.read_action(action)
        return self.finish_step(turn, next(self.score_responses([turn.response])))

    def read_action(self, action: str) -> Turn:
        """Read an action, which changes nothing yet; see :meth:`step`."""
        if not isinstance(action, str):
            raise TypeError(f"an action of {type(self).__name__} is a response string, got {type(action).__name__}")
        episode = self.episode
        if episode.is_over:
            raise gym.error.ResetNeeded("this episode is over: call reset() before the next step()")
        turns = self.turns(episode.task)
        turn = TakenTurn(action, len(action)) if turns is None else turns.read(episode.response, action)
        answers: list[str | None] = []
        if turn.reply is None:
            answers = split_answers(turn.response, self.num_answers)
            if self.answers_as_steps:
                answers = [answers[len(episode.answers)]]
        # A copy of what was seen, so that an error in a scorer changes nothing.
        to_score = Response(episode.task, answers, set(episode.seen))
        return Turn(to_score, "" if turns is None else turn.response, turn.reply, turn.is_cut)

    def finish_step(self, turn: Turn, scored: Scored) -> Step:
        """Return the result of :meth:`step` from the scores of its answers."""
        episode = self.episode
        vectors, statuses, outcomes = scored
        episode.answers += turn.response.answers
        episode.seen, episode.response, episode.was_cut = turn.response.seen, turn.text, turn.is_cut
        if turn.reply is not None:
            return turn.reply, np.zeros(self.reward_dim, np.float32), False, False, self._info(episode.task)
        matrix = np.array(vectors, dtype=np.float32)
        info = {
            **self._info(episode.task),
            "reward_matrix": matrix,
            "status": [status.name.lower() for status in statuses],
            "outcomes": [self.outcome_info(None if isinstance(facts, Reason) else facts) for facts in outcomes],
            "reasons": [str(facts) if isinstance(facts, Reason) else "" for facts in outcomes],
        }
        over = episode.is_over and not turn.is_cut
        return episode.observation(), matrix.sum(axis=0, dtype=np.float32), over, turn.is_cut, info

    def turns(self, task: TaskT, num_answers: int | None = None) -> Turns | None:
        """Return how responses to a task are interrupted by replies; ``None`` if the environment never replies.

        ``num_answers`` is m, where it is not the environment's own.
        """
        return Turns(self.turn_tags, self.max_calls, partial(self.reply, task)) if self.turn_tags else None

    def reply(self, task: TaskT, calls: Sequence[Call]) -> str | None:
        """Return what :meth:`respond` does; TypeError if it is neither a text nor ``None``."""
        reply: Any = self.respond(task, calls)
        if not isinstance(reply, str | None):
            raise TypeError(f"{type(self).__name__}.respond returned {reply!r:.80}: return a text or None")
        return reply

    @property
    def episode(self) -> Episode[TaskT]:
        """The current episode."""
        if self._episode is None:
            raise gym.error.ResetNeeded("call reset() first: there is no current task")
        return self._episode

    @property
    def current_task(self) -> TaskT:
        """The task of the current episode."""
        return self.episode.task

    def draw_index(self) -> int:
        """Draw the index of the task of an episode for which none is given."""
        return int(self.np_random.integers(2**31))

    def render(self) -> Any:
        """Return the prompt and the answers so far as text; environments with pictures override this."""
        return None if self.render_mode is None else self.episode.observation()

    def _info(self, task: TaskT) -> dict[str, Any]:
        return {"objectives": self.objective_names, "active_objectives": self.active(task)}

    def demonstrated(self, task: TaskT, rng: np.random.Generator, num_answers: int) -> str:
        """Return a response with the answers of :meth:`demonstrations` in their tags, and the replies to it."""
        response = format_answers(self.demonstrations(task, rng, num_answers), num_answers)
        turns = self.turns(task, num_answers)
        return response if turns is None else turns.play(response)

    def played(self, task: TaskT, calls: Sequence[Call], answer: str) -> str:
        """Return an answer after calls and the replies to them, as :func:`~vpo_envs.text.split_answers` does."""
        text = ""
        for number, call in enumerate(calls, 1):
            reply = self.reply(task, calls[:number])
            text = with_reply(f"{text}<{call.tag}>{call.text}</{call.tag}>", "" if reply is None else reply)
        return text + answer

    def chat_prompt(self, task: TaskT, num_answers: int) -> Prompt:
        """Return what a model is asked: the prompt, or the messages of a chat whose texts it holds."""
        return self.prompt(task, num_answers)

    # Tasks and scores ------------------------------------------------------------------------------------------

    def task(self, index: int) -> TaskT:
        """Return the ``index``-th task, a pure function of (split, data_seed, index) and the other arguments.

        Raises:
            ValueError: The index is no whole number of at least 0, or the arguments allow no task.
        """
        return self.generate(stream(self.namespace, self.split, self.data_seed, index))

    @property
    def reward_dim(self) -> int:
        """Number of objectives, d."""
        return len(self.objectives)

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Names of the objectives in the order of the reward vector."""
        return tuple(objective.name for objective in self.objectives)

    def reward_vector(self, outcome: OutcomeT) -> tuple[float, ...]:
        """Return the reward vector of an outcome, shape (d,): the objectives, or zeros if it is not feasible."""
        if not self.feasible(outcome):
            return (0.0,) * len(self.objectives)
        return tuple([objective.score(outcome) for objective in self.objectives])

    def score_answers(self, task: TaskT, answers: Sequence[str | None], seen: set[AnswerT] | None = None) -> Scored:
        """Score the answers of one response; the arguments are as for :class:`~vpo_envs.contract.answers.Response`.

        Returns:
            Reward vectors, statuses and outcomes, one for each answer; without an outcome there is the :class:`Reason`,
            or ``None`` where the status says it all.
        """
        return next(self.score_responses([Response(task, answers, set() if seen is None else seen)]))

    def score_batch(
        self, tasks: Sequence[TaskT], responses: Sequence[str], num_answers: int | None = None
    ) -> RewardBatch:
        """Score responses without episodes; ``step`` uses the same code.

        Args:
            tasks: n tasks, one per response.
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
        scored = self.score_responses(Response(task, split_answers(text, m), set()) for task, text in asked)
        return collect(scored, (len(tasks), m, self.reward_dim))

    def score_responses(self, responses: Iterable[Response]) -> Iterator[Scored]:
        """Score responses whose answers were taken out of their tags; the results come in the same order."""
        env_type = type(self)
        return score_responses(
            responses,
            parse=self.parse,
            evaluate=self.evaluate,
            # Without these two hooks answers are scored one by one as they come, which is faster.
            evaluate_many=None if env_type.evaluate_many is VectorTextEnv.evaluate_many else self.evaluate_many,
            evaluate_after=None if env_type.evaluate_after is VectorTextEnv.evaluate_after else self.evaluate_after,
            effective=None if env_type.effective is VectorTextEnv.effective else self.effective,
            reward_vector=self.reward_vector,
            zero=(0.0,) * self.reward_dim,
        )

    def fixed_weights(self, task: TaskT) -> NDArray[np.float64]:
        """Return the scalar weights w* over the task's active objectives, shape (d,), summing to 1."""
        weights = np.array(self.scalar_weights or [1.0] * self.reward_dim) * self.active(task)
        return np.asarray(weights / weights.sum())

    # Fronts --------------------------------------------------------------------------------------------------------

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

    def check_solver(self, task: TaskT) -> None:
        """Raise :class:`UnknownFront` if this class changes what its inherited solver relies on."""
        env_type = type(self)
        solver: type[Any] = next(cls for cls in env_type.__mro__ if "outcome_front" in vars(cls))
        if solver is VectorTextEnv:
            return
        advice = f"so the front that {solver.__name__} computes may be wrong: override outcome_front"
        changed = changed_scoring(env_type, solver)
        if changed is not None:
            raise UnknownFront(f"{env_type.__name__} overrides {changed}, {advice} as well")
        known = all(objective in self.monotone_objectives for objective in self.objectives)
        if known and env_type.reward_vector is solver.reward_vector:
            return
        for grid in self.fact_grids(task):
            if grid not in self._falling:
                self._falling[grid] = falling_component(self.reward_vector, grid)
            falling = self._falling[grid]
            if falling is not None:
                raise UnknownFront(
                    f"objective {self.objective_names[falling]!r} of {env_type.__name__} falls where an outcome gets "
                    f"better in one fact, {advice}"
                )

    def pareto_front(self, gamma: float = 1.0, *, task: TaskT | None = None) -> list[NDArray[np.float32]]:
        """Return the vectors (d,) of :meth:`front`, by default for the current task, in MO-Gymnasium's form.

        ``gamma`` has no effect, because an answer is scored in the step that gives it. Errors are those of
        :meth:`front`.
        """
        points = self.front(self.current_task if task is None else task)
        return [np.array(point.vector, dtype=np.float32) for point in points]

    def optimum(self, task: TaskT) -> float:
        """Return the best scalar reward w*·r that any answer to ``task`` can get; errors are those of :meth:`front`."""
        weights = self.fixed_weights(task)
        return float(max(np.dot(weights, point.vector) for point in self.front(task)))


AnyEnv = VectorTextEnv[Any, Any, Any]
"""An environment whose types do not matter."""


def turns_of(env: AnyEnv, tasks: Sequence[Any], num_answers: Sequence[int]) -> list[Turns] | None:
    """Return how an environment replies in responses of so many answers to each task; ``None`` if it never does."""
    turns = [env.turns(task, m) for task, m in zip(tasks, num_answers, strict=True)]
    return [turn for turn in turns if turn is not None] or None


def check_never_replies(env: AnyEnv, name: str, user: str, way_out: str) -> None:
    """Raise a ValueError if an environment replies to calls, since ``user`` gets a response in one piece."""
    if env.turn_tags:
        raise ValueError(f"{name} replies in the middle of a response, which {user} cannot do: {way_out}")


CHUNKS_PER_THREAD = 4
"""Parts per thread that a batch is cut into, so that one part with slow answers does not hold up the others."""


def score_batch(
    env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], num_answers: int | None = None, *, threads: int = 0
) -> RewardBatch:
    """Score responses as :meth:`~vpo_envs.VectorTextEnv.score_batch` of ``env`` does, which raises its errors.

    With several ``threads`` the scores are the same; they are for scorers that wait for a subprocess or a server.
    """
    if not threads or len(tasks) != len(responses) or not tasks:
        return env.score_batch(tasks, responses, num_answers)
    size = -(-len(tasks) // (CHUNKS_PER_THREAD * threads))
    chunks = [slice(at, at + size) for at in range(0, len(tasks), size)]
    parts = map_in_threads(
        lambda part: env.score_batch(tasks[part], responses[part], num_answers), chunks, threads, "scorer"
    )
    rewards, status = (np.concatenate(part) for part in zip(*parts, strict=True))
    return RewardBatch(rewards, status, next((part.failure for part in parts if part.failure), ""))
