"""Mazes whose scorers fail in one way each."""

from __future__ import annotations

from typing import Any

from vpo_envs import MazeEnv
from vpo_envs.core import AnswerTimeout, ScorerFailure


class FaultyMaze(MazeEnv):
    """Its scorer fails on routes that begin upwards and times out on routes that begin to the left."""

    def evaluate(self, task: Any, answer: str) -> Any:
        if answer.startswith("U"):
            raise ScorerFailure("a judge that does not answer")
        if answer.startswith("L"):
            raise AnswerTimeout("too slow")
        return super().evaluate(task, answer)


class BrokenMaze(MazeEnv):
    """Its scorer raises an unexpected exception."""

    def evaluate(self, task: Any, answer: str) -> Any:
        raise ZeroDivisionError("a mistake")
