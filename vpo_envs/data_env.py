"""Environments whose tasks are generated, or read from a data set: the same class for both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
from pydantic import BaseModel

from envs_data.readers import OnBadRow, load_rows
from vpo_envs.core import MAX_STREAM, AnswerT, OutcomeT, Split, TaskT, VectorTextEnv

Mode = Literal["paper", "conflict"]
BUILTIN = "builtin"
ConfigT = TypeVar("ConfigT", bound=BaseModel)


class DataTextEnv(VectorTextEnv[TaskT, AnswerT, OutcomeT]):
    """A text environment that draws its tasks from its generator, or takes them from rows of a data set.

    Rows are read once, at construction; ``task(i)`` is row ``i`` modulo their number and :meth:`reset` draws one of
    them. A file is one split by itself, so name a file of its own for each split, or write ``{split}`` in the path.

    Args:
        source: ``"builtin"`` for generated tasks, the path of a file, or ``"hf:org/name[:config]"``; see
            :mod:`envs_data.readers`. In a path, ``{split}`` stands for the split's name.
        mode: ``"paper"`` for the decomposition of the paper, ``"conflict"`` for generated tasks whose objectives
            cannot all be had at one time.
        on_bad_row: ``"error"`` stops at the first bad row, ``"skip"`` leaves bad rows out and counts them.
        split: ``"train"``, ``"validation"`` or ``"test"``; of a Hugging Face data set, the split that is loaded.
        num_answers: How many answers one response holds.
        answers_as_steps: Send the answers one at a time.
        data_seed: Which stream of generated tasks.
        render_mode: ``None`` or ``"ansi"``.
    """

    conflict_from_rows: ClassVar[bool] = False
    """Whether ``mode="conflict"`` can be had from rows of a data set."""

    def __init__(
        self,
        *,
        source: str = BUILTIN,
        mode: Mode = "paper",
        on_bad_row: OnBadRow = "error",
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"unknown mode {mode!r}: choose one of {', '.join(get_args(Mode))}")
        if on_bad_row not in get_args(OnBadRow):
            raise ValueError(f"unknown on_bad_row {on_bad_row!r}: choose one of {', '.join(get_args(OnBadRow))}")
        if not isinstance(source, str) or not source:
            raise ValueError(f"source must be {BUILTIN!r}, a path or hf:org/name, got {source!r}")
        if mode == "conflict" and source != BUILTIN and not self.conflict_from_rows:
            raise ValueError(
                f"mode='conflict' of {type(self).__name__} needs source={BUILTIN!r}, whose tasks are made to conflict; "
                f"got source={source!r}"
            )
        super().__init__(
            split=split,
            num_answers=num_answers,
            answers_as_steps=answers_as_steps,
            data_seed=data_seed,
            render_mode=render_mode,
        )
        self.source = source
        self.mode: Mode = mode
        self.rows: tuple[TaskT, ...] = ()
        """The tasks of an external source; empty where tasks are generated."""
        self.skipped_rows = 0
        """How many bad rows were left out."""
        if source != BUILTIN:
            loaded = load_rows(source.replace("{split}", split), self.read_row, split=split, on_bad_row=on_bad_row)
            self.rows, self.skipped_rows = loaded.rows, loaded.skipped

    @abstractmethod
    def read_row(self, raw: Mapping[str, Any]) -> TaskT:
        """The task that a raw row of a data set holds.

        Raises:
            BadRow: The row does not fit the schema; it names the field. Pydantic's own error serves as well.
        """

    def task(self, index: int) -> TaskT:
        """The ``index``-th task: generated, or row ``index`` modulo the number of rows."""
        if not self.rows:
            return super().task(index)
        if not isinstance(index, (int, np.integer)) or not 0 <= index < MAX_STREAM:
            raise ValueError(f"a task's index is a whole number from 0 to {MAX_STREAM - 1}, got {index!r}")
        return self.rows[index % len(self.rows)]

    def _choose_task(self, options: dict[str, Any]) -> tuple[TaskT, int | None]:
        if self.rows and not options:
            options["index"] = int(self.np_random.integers(len(self.rows)))
        return super()._choose_task(options)
