"""Environments that can tell what an attempt does on the examples of the prompt, before the next attempt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from vpo_envs.contract.turns import Turns
from vpo_envs.core import AnswerT, Call, OutcomeT, TaskT, Unparsable
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.text import answer_tags, bare_answer


class RefiningEnv(TaskEnv[TaskT, AnswerT, OutcomeT]):
    """A text environment that tells, if asked to, what each attempt does on the examples of its prompt.

    An attempt is an answer. With ``refine=True`` the reply to each answer of a response but the last is what it does on
    the examples that the prompt shows, never on those that score. The scores are the same.

    Args:
        refine: Whether the environment tells these results.
        **options: Those of :class:`vpo_envs.TaskEnv`.
    """

    harmless_arguments = TaskEnv.harmless_arguments | {"refine"}

    def __init__(self, *, refine: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if refine and self.answers_as_steps:
            raise ValueError("refine=True replies between the answers of one response: leave answers_as_steps out")
        self.refine = refine
        if refine:
            self.turn_tags, self.max_calls = attempts_before_last(self.num_answers), self.num_answers

    @abstractmethod
    def results(self, task: TaskT, answer: AnswerT) -> str | None:
        """Return what an answer does on the examples of the prompt; ``None`` if it shows none."""

    def feedback(self, task: TaskT, answer: str) -> str | None:
        """Return the :meth:`results` of an answer, or why it cannot be read."""
        try:
            return self.results(task, self.parse(bare_answer(answer)))
        except Unparsable as error:
            return str(error)

    def respond(self, task: TaskT, calls: Sequence[Call]) -> str | None:
        """Return the results of the last attempt."""
        return self.feedback(task, calls[-1].text)

    def turns(self, task: TaskT, num_answers: int | None = None) -> Turns | None:
        """Return turns that end with each answer but the last."""
        if not self.turn_tags:
            return None
        m = self.num_answers if num_answers is None else num_answers
        return Turns(attempts_before_last(m), m, partial(self.reply, task))


def attempts_before_last(num_answers: int) -> tuple[str, ...]:
    """Return the names of the tags of all answers but the last."""
    return tuple(opening.strip("<>") for opening, _ in answer_tags(num_answers)[:-1])
