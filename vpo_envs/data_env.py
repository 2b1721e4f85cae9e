"""Environments whose tasks are either generated or read from a data set."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from envs_data.readers import HUB, OnBadRow, load_rows
from vpo_envs.core import MAX_STREAM, AnswerT, OutcomeT, TaskT, VectorTextEnv, check_whole
from vpo_envs.generation import split_of_content
from vpo_envs.wording import counted, did_you_mean

Mode = Literal["paper", "conflict"]
BUILTIN = "builtin"
WHOLE = "whole:"


class DataTextEnv(VectorTextEnv[TaskT, AnswerT, OutcomeT]):
    """A text environment that draws its tasks from its generator, or takes them from rows of a data set.

    Rows are read once, at construction. ``task(i)`` is row ``i`` modulo their number, and :meth:`reset` draws one of
    them. The rows of one file are divided between the splits by their content: half for training, a quarter each for
    validation and test.

    Args:
        source: ``"builtin"`` for generated tasks, the path of a file, or ``"hf:org/name[:config]"``; see
            :mod:`envs_data.readers`. A path with ``{split}`` names one file for each split, and ``"whole:path"`` takes
            all rows of a file whatever the split is.
        mode: ``"paper"`` for the objectives of the paper, ``"conflict"`` for generated tasks whose objectives cannot
            all be satisfied at once.
        on_bad_row: ``"error"`` stops at the first bad row; ``"skip"`` leaves bad rows out and warns.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("paper",)
    """The modes that this environment has."""

    def __init__(
        self, *, source: str = BUILTIN, mode: Mode = "paper", on_bad_row: OnBadRow = "error", **options: Any
    ) -> None:
        if mode not in self.modes:
            choices = f"{did_you_mean(str(mode), self.modes)}choose one of {', '.join(self.modes)}"
            raise ValueError(f"unknown mode {mode!r} of {type(self).__name__}: {choices}")
        if on_bad_row not in get_args(OnBadRow):
            raise ValueError(f"unknown on_bad_row {on_bad_row!r}: choose one of {', '.join(get_args(OnBadRow))}")
        if not isinstance(source, str) or not source:
            raise ValueError(f"source must be {BUILTIN!r}, a path or hf:org/name, got {source!r}")
        if mode == "conflict" and source != BUILTIN:
            raise ValueError(
                f"mode='conflict' of {type(self).__name__} needs source={BUILTIN!r}, whose objectives conflict by "
                f"construction; got source={source!r}"
            )
        super().__init__(**options)
        self.source = source
        self.mode: Mode = mode
        self.rows: tuple[TaskT, ...] = ()
        """The tasks of an external source; empty if tasks are generated."""
        self.skipped_rows = 0
        """Number of bad rows that were left out."""
        if source != BUILTIN:
            self._read_source(on_bad_row)

    def _read_source(self, on_bad_row: OnBadRow) -> None:
        path = self.source.removeprefix(WHOLE).replace("{split}", self.split)
        loaded = load_rows(path, self.read_row, split=self.split, on_bad_row=on_bad_row)
        self.rows, self.skipped_rows = loaded.rows, loaded.skipped
        divided = path == self.source and not path.startswith(HUB)
        if divided:
            self.rows = tuple(row for row in loaded.rows if split_of_content(row.content_hash()) == self.split)
        if loaded.skipped:
            rows = counted(loaded.skipped, "bad row")
            share = f", {len(self.rows)} of them for split {self.split!r}" if divided else ""
            message = f"skipped {rows} and kept {len(loaded.rows)}{share}; the first: {loaded.first_skipped}"
            warnings.warn(message, stacklevel=4)
        if not self.rows:
            raise ValueError(
                f"{path} has no row for split {self.split!r}: its rows, {len(loaded.rows)} in all, are divided between "
                "the splits by their content; write {split} in the path to name one file for each split, or "
                f"{WHOLE}{path} to use all rows"
            )

    def _check_mode(self, mode: Mode, what: str) -> None:
        """Raise ``ValueError`` unless this environment has the mode that a task is for; ``what`` describes the task."""
        if mode != self.mode:
            raise ValueError(f"{what} does not fit mode={self.mode!r}: make the environment with mode={mode!r}")

    @abstractmethod
    def read_row(self, raw: Mapping[str, Any]) -> TaskT:
        """Return the task that a raw row of a data set holds.

        Raises:
            BadRow: The row does not fit the schema. Pydantic's own error serves as well.
        """

    def task(self, index: int) -> TaskT:
        """Return the ``index``-th task: generated, or row ``index`` modulo the number of rows."""
        if not self.rows:
            return super().task(index)
        check_whole("the index of a task", index, 0, MAX_STREAM)
        return self.rows[index % len(self.rows)]

    def _choose_task(self, options: dict[str, Any]) -> tuple[TaskT, int | None]:
        if self.rows and not options:
            options["index"] = int(self.np_random.integers(len(self.rows)))
        return super()._choose_task(options)
