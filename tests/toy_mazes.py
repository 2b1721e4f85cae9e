"""Mazes whose scorers fail in one way each, in a module without torch, so that new processes import it quickly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vpo_envs import MazeEnv, Unparsable
from vpo_envs.core import AnswerTimeout, ScorerFailure


class FaultyMaze(MazeEnv):
    """Its scorer fails on routes that begin upwards and times out on routes that begin to the left."""

    def evaluate(self, task: Any, answer: str) -> Any:
        if answer.startswith("U"):
            raise ScorerFailure("a judge that does not answer")
        if answer.startswith("L"):
            raise AnswerTimeout("too slow")
        return super().evaluate(task, answer)


class DeadlyMaze(MazeEnv):
    """Its scorer's process dies on routes that begin upwards."""

    def evaluate(self, task: Any, answer: str) -> Any:
        if answer.startswith("U"):
            os._exit(1)
        return super().evaluate(task, answer)


class BrokenMaze(MazeEnv):
    """Its scorer raises an unexpected exception."""

    def evaluate(self, task: Any, answer: str) -> Any:
        raise ZeroDivisionError("a mistake")


class StubbornMaze(MazeEnv):
    """It can be pickled but not unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("not here")


class StrictMaze(MazeEnv):
    """Its test split accepts no answer."""

    def parse(self, text: str) -> str:
        if self.split == "test":
            raise Unparsable("no")
        return super().parse(text)


class PricedMaze(MazeEnv):
    """Its objectives are made by the constructor: gold is worth ``price`` of what it was."""

    def __init__(self, price: float, **kwargs: Any) -> None:
        dear = MazeEnv.objectives[1]
        cheap = dear._replace(score=lambda outcome: price * dear.score(outcome))
        self.objectives = (MazeEnv.objectives[0], cheap, *MazeEnv.objectives[2:])
        super().__init__(**kwargs)


class SigningMaze(MazeEnv):
    """Each process that scores leaves a file named by its process id in ``folder``."""

    def __init__(self, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def evaluate(self, task: Any, answer: str) -> Any:
        (self.folder / str(os.getpid())).touch()
        return super().evaluate(task, answer)
