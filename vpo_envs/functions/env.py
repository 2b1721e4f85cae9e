"""Prompts of one's own with reward functions of one's own, as an environment."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from vpo_envs.common.imports import FUNCTIONS_ID
from vpo_envs.core import Failure, Frozen, Objective, ScorerFailure, Task, Unparsable
from vpo_envs.functions.rewards import (
    Encode,
    Function,
    RewardFunctions,
    Row,
    Trainer,
    by_name,
    find_functions,
    good_responses,
    load_functions,
    objectives_sentence,
    read_prompt_row,
    read_ranges,
)
from vpo_envs.tasks.base import BUILTIN, TaskEnv, in_random_order
from vpo_envs.text import Prompt, answer_tags, as_messages, as_text, several_answers

TAGS = ("<answer>", "</answer>")
SYSTEM = ("system", "developer")
"""Roles whose messages ask nothing."""
TRIED_ROWS = 8
"""Rows whose good answers are tried before a training."""
POOR = (
    "I do not know.",
    "0",
    "no no no no no no no no no no",
    "The weather was fine on that day, and many went for a walk.",
)
"""Answers that hardly any prompt asks for."""


class ChatMessage(Frozen):
    """A message of a chat."""

    role: str
    content: str


class PromptTask(Task):
    """A row of prompts."""

    prompt: str | tuple[ChatMessage, ...] = Field(min_length=1)
    """A text, or the messages of a chat."""
    fields: dict[str, JsonValue]
    """The other fields of the row, for the reward functions."""

    @property
    def asked(self) -> Prompt:
        """The prompt as plain data."""
        return self.prompt if isinstance(self.prompt, str) else [message.model_dump() for message in self.prompt]

    @property
    def canonical(self) -> str:
        """The prompt, of a chat without what the system says."""
        return as_text([message for message in as_messages(self.asked) if message["role"] not in SYSTEM])

    @property
    def row(self) -> Row:
        """The row as the reward functions are given it."""
        return {**self.fields, "prompt": self.asked}


class RewardsOutcome(NamedTuple):
    """What the reward functions gave for an answer; 0 where they give ``None`` for the row."""

    rewards: tuple[float, ...]


class FunctionsEnv(TaskEnv[PromptTask, str, RewardsOutcome]):
    """Answer the prompts of a file; each objective is a reward function.

    ## Description

    The prompts are rows of a file, with any other fields that the functions need. Rows with the same prompt are in the
    same split. A response holds its answers in tags, and the functions are given what stands inside a tag. Where the
    good response of a row is itself inside ``<answer>`` tags, they are given the answer in these tags.

    ## Rewards

    One objective for each function, or for each name of the mapping that it returns; see
    :class:`~vpo_envs.functions.rewards.RewardFunctions` for how they are called. ``ranges`` are scaled to [0, 1], and a
    reward beyond its range counts as the nearer end, with a warning. An objective is inactive for a row whose good
    answer it gives ``None``. An answer for which a function raises an error, or gives no finite number, is invalid,
    which is no score; the reason names the function, the prompt and the answer. No front is known.

    Before a training or an evaluation, :meth:`check_scorers` tries the functions on a few answers.

    Args:
        source: The file, or the rows themselves; see :class:`vpo_envs.TaskEnv`.
        rewards: ``MODULE:NAME`` or ``FILE.py:NAME,NAME`` of a module that was imported by ``--import`` or
            :func:`vpo_envs.from_functions`; or functions, as a list or by name.
        columns: The fields of the file that have other names there, such as ``{"prompt": "question"}``.
        ranges: Lowest and highest reward, of all functions or by the name of the objective; (0, 1) by default.
        check_rewards: Whether :meth:`check_scorers` tries the functions.
        name_objectives: Whether prompts for several answers name the objectives, each with the first line of its
            function's docstring.
        **options: Those of :class:`vpo_envs.TaskEnv`.
    """

    task_type = PromptTask
    namespace = 27
    harmless_arguments = TaskEnv.harmless_arguments | {"columns", "ranges", "check_rewards", "name_objectives"}
    example_row: ClassVar[dict[str, Any]] = {"prompt": "What is 12 + 30?", "answer": "42"}
    objectives: tuple[Objective, ...] = (Objective("reward", "The reward function that is named", float),)

    def __init__(
        self,
        *,
        source: str | Sequence[Mapping[str, Any]] = BUILTIN,
        rewards: str | Mapping[str, Function] | Sequence[Function] = (),
        columns: Mapping[str, str] | None = None,
        ranges: Sequence[float] | Mapping[str, Sequence[float]] = (0.0, 1.0),
        check_rewards: bool = True,
        name_objectives: bool = True,
        **options: Any,
    ) -> None:
        if source == BUILTIN or not rewards:
            raise ValueError(
                f"{FUNCTIONS_ID} needs prompts and rewards: give --prompts FILE.jsonl --rewards FILE.py:NAME, or in "
                "Python use vpo_envs.from_functions"
            )
        functions = find_functions(rewards) if isinstance(rewards, str) else by_name(rewards)
        if not isinstance(columns, Mapping | None):
            raise ValueError(f"columns must be a mapping such as {{'prompt': 'question'}}, got {columns!r}")
        self._columns = columns
        self._check_rewards, self._name_objectives = check_rewards, name_objectives
        super().__init__(source=source, **options)
        self.functions = RewardFunctions(functions, [task.row for task in self.rows])
        names = self.functions.names
        self.ranges = read_ranges(names, ranges)
        """Lowest and highest reward of each objective."""
        self.objectives = tuple(
            Objective(name, text or f"Reward function {name}", partial(_scaled, number, *self.ranges[number]))
            for number, (name, text) in enumerate(self.functions.described.items())
        )
        self._check_statements()
        self.reward_space = gym.spaces.Box(0.0, float(self.reward_space.high.max()), (len(names),), np.float32)
        good = good_responses(self.rows[0].row)
        self._in_tags = bool(good) and good[0].startswith(TAGS[0]) and good[0].endswith(TAGS[1])
        self._active: dict[str, NDArray[np.bool_]] = {}
        self._warned: set[str] = set()

    def read_row(self, raw: Mapping[str, Any]) -> PromptTask:
        """Return the task of a row."""
        row = read_prompt_row(raw, self._columns)
        return PromptTask(prompt=row.pop("prompt"), fields=row)

    def draw(self, source: random.Random) -> PromptTask:
        """Fail: tasks are rows."""
        raise NotImplementedError(f"{FUNCTIONS_ID} generates no tasks: they are rows of its file")

    def prompt(self, task: PromptTask, num_answers: int) -> str:
        """Return the prompt of the row, of a chat its texts, and the tags to fill in, unless it names them itself."""
        return as_text(self.chat_prompt(task, num_answers))

    def chat_prompt(self, task: PromptTask, num_answers: int) -> Prompt:
        """Return the prompt or the chat of the row; the tags to fill in stand at its end."""
        if num_answers == 1 and all(tag in as_text(task.asked) for tag in TAGS):
            return task.asked
        tags = "\n".join(f"{opening} your answer {closing}" for opening, closing in answer_tags(num_answers))
        if num_answers == 1:
            request = f"Answer between these tags:\n{tags}"
        else:
            said = f" {objectives_sentence(self.functions.described)}" if self._name_objectives else ""
            request = f"{several_answers(num_answers)}{said} Use these tags:\n{tags}"
        if isinstance(task.asked, str):
            return f"{task.asked}\n\n{request}"
        *earlier, last = as_messages(task.asked)
        return [*earlier, {**last, "content": f"{last['content']}\n\n{request}"}]

    def parse(self, text: str) -> str:
        """Return the answer without blanks at its ends."""
        if not (text := text.strip()):
            raise Unparsable("the answer is empty")
        return text

    def evaluate(self, task: PromptTask, answer: str) -> RewardsOutcome:
        """Score one answer."""
        (outcome,) = FunctionsEnv.evaluate_many(self, [(task, answer)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def evaluate_many(self, pairs: Sequence[tuple[PromptTask, str]]) -> list[RewardsOutcome | Failure]:
        """Score answers, each function with one call where it takes lists."""
        texts = [answer.join(TAGS) if self._in_tags else answer for _, answer in pairs]
        scores, failures = self.functions([task.row for task, _ in pairs], texts)
        failed: dict[int, ScorerFailure] = {}
        for number, name, fault in failures:
            task, answer = pairs[number]
            message = f"gives {fault}, for the answer {answer!r:.80} to the prompt {task.prompt!r:.80}"
            failed.setdefault(number, ScorerFailure(f"the reward function {name} {message}"))
        return [failed.get(number) or self._outcome(vector, *pairs[number]) for number, vector in enumerate(scores)]

    def check_scorers(self) -> None:
        """Try the functions on the good answers of a few rows and on poor ones.

        With ``check_rewards=False`` nothing is tried. A function that reads ``completion_ids`` or ``trainer_state`` is
        tried once :meth:`set_trainer` says what there is.

        Raises:
            ValueError: A function fails for an answer, gives no answer a number, gives a good one a number outside its
                range, or gives all answers the same though good ones are among them.
        """
        if not self._check_rewards:
            return
        rows = [task.row for task in self.rows[:TRIED_ROWS]]
        good = [(row, text) for row in rows for text in good_responses(row)]
        answered = [row for row in rows if good_responses(row)]
        to_others = [(row, good_responses(other)[0]) for other, row in pairwise(answered)]
        poor = [(row, text.join(TAGS) if self._in_tags else text) for row in rows[:2] for text in POOR]
        pairs = [*good, *to_others, *poor]
        scores, failures = self.functions([row for row, _ in pairs], [text for _, text in pairs])
        way_out = """or leave out this check with --env-kwargs '{"check_rewards": false}'"""
        waiting = self.functions.waiting
        for number, name, fault in failures:
            if name in waiting:
                continue
            row, text = pairs[number]
            raise ValueError(
                f"the reward function {name} gives {fault}, for the answer {text!r:.60} to the prompt "
                f"{row['prompt']!r:.60}: mend it, {way_out}"
            )
        for name, (low, high), column in zip(self.objective_names, self.ranges, scores.T, strict=True):
            if name in waiting:
                continue
            given = column[~np.isnan(column)]
            if not len(given) and not self._gives_a_number(name):
                raise ValueError(
                    f"the reward {name} is None for every answer, also the good one of each row: a forgotten return? "
                    f"Mend it, {way_out}"
                )
            # What a poor answer earns below the range counts as its end: a penalty that has no end is usual.
            for (_, text), reward in zip(good or pairs, column, strict=False):
                if not (low - 1e-9 <= reward <= high + 1e-9 or np.isnan(reward)):
                    raise ValueError(
                        f"the reward {name} is {reward:.4g} for the answer {text!r:.60}, outside its range {low:g} to "
                        f"{high:g}: give --range {name}=LOW,HIGH, or --range measured"
                    )
            texts = {text for (_, text), reward in zip(pairs, column, strict=True) if not np.isnan(reward)}
            if good and len(texts) > 1 and given.min() == given.max():
                raise ValueError(
                    f"the reward {name} is {given[0]:.4g} for all {len(texts)} answers that were tried, good ones and "
                    f"poor ones: it cannot tell answers apart. Mend it, {way_out}"
                )

    def set_trainer(self, encode: Encode | None, state: Callable[[], Any] | None = None) -> None:
        """Give functions in TRL's signature ``completion_ids`` and ``trainer_state``, and try those that waited.

        Raises:
            ValueError: A function that waited reads what is not there, or teaches nothing, see :meth:`check_scorers`.
        """
        self.functions.trainer = Trainer(encode, state)
        if self.functions.waiting:
            self.functions.waiting = set()
            self._active.clear()
            self.check_scorers()

    def _gives_a_number(self, name: str) -> bool:
        """Return whether an objective gives a number to the good answer of any row, or else to its prompt."""
        column = self.objective_names.index(name)
        for first in range(0, len(self.rows), 64):
            rows = [task.row for task in self.rows[first : first + 64]]
            scores, _ = self.functions(rows, [(*good_responses(row), row["prompt"])[0] for row in rows])
            if not np.isnan(scores[:, column]).all():
                return True
        return False

    def active(self, task: PromptTask) -> NDArray[np.bool_]:
        """Return which functions give the row's good answer a number, shape (d,)."""
        key = task.content_hash()
        if key not in self._active:
            self._active[key] = self._active_for(task.row)
        return self._active[key].copy()

    def _active_for(self, row: Row) -> NDArray[np.bool_]:
        """Return which functions give a row's good answer a number; all where there is none, or a function fails."""
        everything = np.ones(self.reward_dim, dtype=bool)
        good = good_responses(row)
        if not good:
            return everything
        scores, failures = self.functions([row], [good[0]])
        scored = ~np.isnan(scores[0])
        return scored if scored.any() and not failures else everything

    def demonstrations(self, task: PromptTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the good answers of the row in random order, and again from the start where the row has no more."""
        good = [text.removeprefix(TAGS[0]).removesuffix(TAGS[1]) for text in good_responses(task.row)]
        if not good:
            raise NotImplementedError(f"the prompt {task.prompt!r:.60} has no answer, response or responses")
        return [*islice(cycle(in_random_order(rng, good)), num_answers)]

    def _outcome(self, vector: NDArray[np.float64], task: PromptTask, answer: str) -> RewardsOutcome:
        for objective, reward, (low, high) in zip(self.objectives, vector, self.ranges, strict=True):
            if not low - 1e-9 <= reward <= high + 1e-9 and reward == reward and objective.name not in self._warned:
                self._warned.add(objective.name)
                warnings.warn(
                    f"{objective.name} gives {reward:.4g} for the answer {answer!r:.60}, outside its range "
                    f"{low:g} to {high:g}, and counts as the nearer end: declare or measure its range with --range",
                    stacklevel=2,
                )
        return RewardsOutcome(tuple(float(reward) for reward in np.nan_to_num(vector)))


def from_functions(
    prompts: str | Path | Sequence[Mapping[str, Any]],
    rewards: str | Function | Mapping[str, Function] | Sequence[Function],
    **options: Any,
) -> FunctionsEnv:
    """Return the environment of prompts and reward functions.

    Args:
        prompts: A file, such as JSON Lines with a ``prompt`` and an ``answer`` each, or the rows themselves.
        rewards: Functions, or ``FILE.py:NAME,NAME`` to import them.
        **options: The other arguments of :class:`FunctionsEnv`.

    Raises:
        ValueError: The rows cannot be read, or a function does not fit them.
    """
    for what, given in (("prompts", prompts), ("reward functions", rewards)):
        if isinstance(given, list | tuple | dict | str) and not given:
            raise ValueError(f"there are no {what}: give one or more")
    source = str(prompts) if isinstance(prompts, str | Path) else prompts
    if callable(rewards):
        rewards = [rewards]
    if isinstance(rewards, str):
        load_functions(rewards)
        if isinstance(source, str):
            # By its id, so that what is sampled from it states where it comes from.
            made: Any = gym.make(FUNCTIONS_ID, source=source, rewards=rewards, **options).unwrapped
            assert isinstance(made, FunctionsEnv)
            return made
    return FunctionsEnv(source=source, rewards=rewards, **options)


def _scaled(number: int, low: float, high: float, outcome: RewardsOutcome) -> float:
    return min(1.0, max(0.0, (outcome.rewards[number] - low) / (high - low)))
