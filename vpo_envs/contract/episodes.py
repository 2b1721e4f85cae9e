"""The state of an episode: its task and the answers so far; and the options of ``reset``, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from vpo_envs.text import format_answers, readable

MAX_ANSWERS = 1000
"""Most answers per response."""

TaskT = TypeVar("TaskT", bound=BaseModel)


class Episode(Generic[TaskT]):
    """One task, and the answers to it so far."""

    def __init__(self, task: TaskT, prompt: str, num_answers: int) -> None:
        self.task = task
        self.prompt = prompt
        self.num_answers = num_answers
        """Answers after which the episode is over."""
        self.answers: list[str | None] = []
        """The text inside each tag so far; ``None`` for a missing tag."""
        self.seen: set[Any] = set()
        """The parsed answers so far, whose repetitions are duplicates."""
        self.response = ""
        """What the agent has written in earlier turns, with the replies of the environment."""
        self.was_cut = False
        """Whether a call too many has ended the episode."""

    @property
    def is_over(self) -> bool:
        """Whether all answers have been given, or a call too many was made."""
        return self.was_cut or len(self.answers) >= self.num_answers

    def observation(self) -> str:
        """Return the prompt and the answers so far."""
        if not self.answers:
            return self.prompt
        return f"{self.prompt}\n{readable(format_answers(self.answers, self.num_answers))}"


def read_reset_options(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the options ``index`` and ``task`` of ``reset``; ``None`` for one that is not given."""
    unknown = sorted(options.keys() - {"index", "task"})
    index, task = options.get("index"), options.get("task")
    if index is not None and task is not None:
        raise ValueError("reset takes options 'index' or 'task', not both")
    if unknown:
        raise ValueError(f"unknown reset option {unknown[0]!r}: the options are 'index' and 'task'")
    return index, task


def read_task(task: object, task_type: type[TaskT]) -> TaskT:
    """Return a task that is given as such or in its JSON form."""
    if isinstance(task, Mapping):
        try:
            task = task_type.model_validate(task)
        except ValidationError as error:
            first = error.errors()[0]
            field = "".join(f"{part}: " for part in first["loc"])
            raise ValueError(f"options['task'] is not a {task_type.__name__}: {field}{first['msg']}") from None
    if not isinstance(task, task_type):
        raise ValueError(f"options['task'] must be a {task_type.__name__}, got {type(task).__name__}")
    return task
