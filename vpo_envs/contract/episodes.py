"""The episodes of a text environment: one task, one response with m answers, or the answers one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vpo_envs.common.wording import counted
from vpo_envs.contract.answers import Reason, Status
from vpo_envs.contract.arguments import check_whole, refuse_arguments, refuse_scalar_copies
from vpo_envs.contract.streams import MAX_STREAM, SPLITS, Split
from vpo_envs.text import format_answers, split_answers

SAMPLE_CHARS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/_,.#\n"


class TextSpace(gym.spaces.Text):
    """All strings of at most ``max_length`` characters in any script.

    Gymnasium's ``Text`` checks every character against a set, which takes milliseconds for a response and cannot hold
    all of Unicode. Here membership depends on the length only, and samples are short and plain.
    """

    def __init__(self, max_length: int, seed: int | None = None) -> None:
        """Make the space of all strings with at most ``max_length`` characters."""
        super().__init__(max_length=max_length, min_length=0, charset=SAMPLE_CHARS, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random plain string of at most 64 characters."""
        if mask is not None or probability is not None:
            raise ValueError("TextSpace.sample takes no mask and no probability")
        length = int(self.np_random.integers(0, min(64, self.max_length) + 1))
        return "".join(SAMPLE_CHARS[i] for i in self.np_random.integers(0, len(SAMPLE_CHARS), size=length))

    def __eq__(self, other: object) -> bool:
        """Equal to text spaces of the same length."""
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    def __repr__(self) -> str:
        """``TextSpace(max_length)``."""
        return f"TextSpace({self.max_length})"


MAX_RESPONSE_CHARS = 1_000_000
"""Longest response in the action space; longer ones are still scored."""
MAX_ANSWERS = 1000
"""Most answers per response."""

Step = tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]


class Episodes(gym.Env[str, str]):
    """The settings, spaces and episodes of :class:`vpo_envs.core.VectorTextEnv`, which says what they mean."""

    # The contract defines them.
    active: Any
    objectives: Any
    objective_names: Any
    outcome_info: Any
    prompt: Any
    reward_dim: Any
    scalar_weights: Any
    score_answers: Any
    task: Any
    task_info: Any
    task_type: ClassVar[Any]

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
        refuse_scalar_copies()
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
        self._task: Any = None
        self._answers: list[str | None] = []
        self._seen: set[Any] = set()

    def _check_statements(self) -> None:
        """Raise an error if the class does not state what it must."""
        own = type(self).__name__
        for name, wanted in (("objectives", "a tuple of vpo_envs.Objective"), ("task_type", "a subclass of Task")):
            if not getattr(self, name, None):
                raise TypeError(f"{own} has no {name}: set the class attribute {name} to {wanted}")
        repeated = [name for i, name in enumerate(self.objective_names) if name in self.objective_names[:i]]
        if repeated:
            raise ValueError(f"{own} has two objectives named {repeated[0]!r}: rename one of them")
        if self.scalar_weights is not None and len(self.scalar_weights) != self.reward_dim:
            raise ValueError(
                f"scalar_weights of {own} need {counted(self.reward_dim, 'value')}, one per objective "
                f"({', '.join(self.objective_names)}); got {len(self.scalar_weights)}"
            )

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

    def step(self, action: str) -> Step:
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
        self, answers: list[str | None], vectors: list[tuple[float, ...]], statuses: list[Status], outcomes: list[Any]
    ) -> Step:
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
    def current_task(self) -> Any:
        """The task of the current episode."""
        if self._task is None:
            raise gym.error.ResetNeeded("call reset() first: there is no current task")
        return self._task

    def render(self) -> Any:
        """Return the prompt and the answers so far as text; environments with pictures override this."""
        return None if self.render_mode is None else self._observation()

    def _choose_task(self, options: dict[str, Any]) -> tuple[Any, int | None]:
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

    def _read_task(self, task: object) -> Any:
        if isinstance(task, Mapping):
            try:
                task = self.task_type.model_validate(task)
            except ValidationError as error:
                first = error.errors()[0]
                place = "".join(f"{part}: " for part in first["loc"])
                raise ValueError(f"options['task'] is not a {self.task_type.__name__}: {place}{first['msg']}") from None
        if not isinstance(task, self.task_type):
            raise ValueError(f"options['task'] must be a {self.task_type.__name__}, got {type(task).__name__}")
        return task

    def _observation(self) -> str:
        task = self.current_task
        text: str = self.prompt(task, self.num_answers)
        if not self._answers:
            return text
        return f"{text}\n{format_answers(self._answers, self.num_answers)}"

    def _info(self, task: Any) -> dict[str, Any]:
        return {"objectives": self.objective_names, "active_objectives": self.active(task)}
