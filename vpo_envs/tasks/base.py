"""What the tasks share: presets, knobs of their generators, and rows of data sets in place of generated tasks."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pkgutil import resolve_name
from typing import Any, ClassVar, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from envs_data.readers import HUB, OnBadRow, load_rows
from vpo_envs.common.wording import counted, did_you_mean
from vpo_envs.contract.arguments import check_whole
from vpo_envs.contract.streams import MAX_STREAM
from vpo_envs.core import AnswerT, Frozen, Objective, OutcomeT, TaskT, Unparsable, VectorTextEnv
from vpo_envs.tasks.generation import read_knobs

BUILTIN = "builtin"
MAX_REPEATS = 200
"""Demonstrations that are tried for each one that is wanted, until enough of them differ."""
MAX_DRAWS = 10_000
"""Tasks that are drawn before the knobs count as impossible."""
WHOLE = "whole:"


class TaskEnv(VectorTextEnv[TaskT, AnswerT, OutcomeT]):
    """A text environment with presets, whose tasks are drawn by a generator or read from rows of a data set.

    Rows are read once, at construction. ``task(i)`` is row ``i`` modulo their number, and :meth:`reset` draws one of
    them. The rows of one file are divided between the splits by their content: half for training, a quarter each for
    validation and test.

    Args:
        preset: ``"paper"`` for the task as it was published, ``"conflict"`` for generated tasks whose objectives cannot
            all be satisfied at once, ``"compact"`` for a version in a few words, for small models. Each task has some
            of them. The default is the class's first one; with rows of a data set it is ``"paper"``.
        difficulty: Knobs of the generator that replace the preset's, by name.
        source: ``"builtin"`` for generated tasks, the path of a file, or ``"hf:org/name[:config]"``, see
            :mod:`envs_data.readers`; or the rows themselves. A path with ``{split}`` names one file for each split, and
            ``"whole:path"`` takes all rows of a file whatever the split is.
        on_bad_row: ``"error"`` stops at the first bad row; ``"skip"`` leaves bad rows out and warns.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    presets: ClassVar[Mapping[str, Frozen | str | None]] = {"paper": None}
    """By preset the knobs of the generator, ``None`` without any; or, for a preset that another class has, that class
    as ``"module:Class"``. The first preset is the default."""

    harmless_arguments = VectorTextEnv.harmless_arguments | {"preset", "difficulty", "on_bad_row"}

    draw_advice: ClassVar[str] = "choose other knobs"
    """What to do if the generator's knobs allow no task."""

    example_row: ClassVar[Mapping[str, Any]] = {}
    """A row of the data sets that :meth:`read_row` of the class with the preset ``"paper"`` reads; empty if there are
    none."""

    def __new__(cls, *args: Any, preset: str | None = None, source: Any = BUILTIN, **options: Any) -> Self:
        """Make an environment of the class that has the preset: ``CodeEnv(preset="compact")`` is a CodeCompactEnv."""
        env_type = cls.class_of("paper" if preset is None and source != BUILTIN else preset)
        if issubclass(env_type, cls):
            return super().__new__(env_type)  # Python then calls its __init__ with the same arguments.
        env: Self = env_type(*args, preset=preset, source=source, **options)
        return env

    @classmethod
    def class_of(cls, preset: str | None) -> type[Any]:
        """Return the class that has a preset: this one, unless :attr:`presets` names another.

        Raises:
            ValueError: This is a subclass that inherits its presets, and another class has this one.
        """
        named = cls.presets.get(preset) if isinstance(preset, str) else None
        if not isinstance(named, str):
            return cls
        if "presets" not in vars(cls):
            raise ValueError(f"{cls.__name__} has no preset {preset!r}: subclass {named.replace(':', '.')} for it")
        env_type: type[Any] = resolve_name(named)
        return env_type

    def __init__(
        self,
        *,
        preset: str | None = None,
        difficulty: Mapping[str, Any] | None = None,
        source: str | Sequence[Mapping[str, Any]] = BUILTIN,
        on_bad_row: OnBadRow = "error",
        **options: Any,
    ) -> None:
        if preset is None:
            preset = next(iter(self.presets)) if source == BUILTIN else "paper"
        if preset not in self.presets:
            choices = f"{did_you_mean(str(preset), self.presets)}choose one of {', '.join(self.presets)}"
            raise ValueError(f"unknown preset {preset!r} of {type(self).__name__}: {choices}")
        if on_bad_row not in get_args(OnBadRow):
            raise ValueError(f"unknown on_bad_row {on_bad_row!r}: choose one of {', '.join(get_args(OnBadRow))}")
        self._check_source(source, preset)
        self.preset = preset
        self.source = source
        knobs = self.presets[preset]
        assert not isinstance(knobs, str)
        if difficulty is not None and knobs is None:
            raise ValueError(f"preset={preset!r} of {type(self).__name__} has no knobs, got difficulty={difficulty!r}")
        self.config: Any = None if knobs is None else read_knobs(knobs, difficulty)
        """The generator's configuration: the preset's with the knobs of ``difficulty`` replaced."""
        chooser: type[Any] = next(cls for cls in type(self).__mro__ if "choose_objectives" in vars(cls))
        # A subclass of the class that chooses by its arguments may state objectives of its own.
        if chooser is not TaskEnv and type(self).objectives is chooser.objectives:
            self.objectives = self.choose_objectives()
        super().__init__(**options)
        self.rows: tuple[TaskT, ...] = ()
        """The tasks of an external source; empty if tasks are generated."""
        self.skipped_rows = 0
        """Number of bad rows that were left out."""
        if source != BUILTIN:
            self._read_source(on_bad_row)

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return the objectives where they depend on the preset or on other arguments; they are known by now.

        Override it beside ``objectives``. It is not called for a subclass that states other ``objectives``.
        """
        return type(self).objectives

    def _check_source(self, source: object, preset: str) -> None:
        """Raise ``ValueError`` unless a source is one, and the environment and its preset can read it."""
        name = type(self).__name__
        if not isinstance(source, str | list | tuple) or not source:
            raise ValueError(f"source must be {BUILTIN!r}, a path, hf:org/name or rows, got {source!r}")
        if source == BUILTIN:
            return
        if type(self).read_row is TaskEnv.read_row and not self.example_row:
            raise ValueError(f"{name} reads no data set: source must be {BUILTIN!r}, got {source!r}")
        if preset != "paper":
            raise ValueError(
                f"preset={preset!r} of {name} needs source={BUILTIN!r}, since its tasks are generated; got "
                f"source={source!r}"
            )

    def _read_source(self, on_bad_row: OnBadRow) -> None:
        path = self.source
        if isinstance(path, str):
            path = path.removeprefix(WHOLE).replace("{split}", self.split)
        loaded = load_rows(path, self.read_row, split=self.split, on_bad_row=on_bad_row)
        self.rows, self.skipped_rows = loaded.rows, loaded.skipped
        # Unless the path takes the whole file or names one for each split, and data sets of the Hub have splits.
        divided = path == self.source and not (isinstance(path, str) and path.startswith(HUB))
        if divided:
            self.rows = tuple(row for row in loaded.rows if row.split == self.split)
        if loaded.skipped:
            rows = counted(loaded.skipped, "bad row")
            share = f", {len(self.rows)} of them for split {self.split!r}" if divided else ""
            message = f"skipped {rows} and kept {len(loaded.rows)}{share}; the first: {loaded.first_skipped}"
            warnings.warn(message, stacklevel=3)
        if not self.rows:
            path = path if isinstance(path, str) else "FILE"
            raise ValueError(
                f"{path} has no row for split {self.split!r}: its rows, {len(loaded.rows)} in all, are divided between "
                "the splits by their content; write {split} in the path to name one file for each split, or "
                f"{WHOLE}{path} to use all rows"
            )

    def _check_preset(self, fits: bool, what: str) -> None:
        """Raise ``ValueError`` unless a task, described by ``what``, fits the preset."""
        if not fits:
            other = "paper" if self.preset == "conflict" else "conflict"
            raise ValueError(f"{what} does not fit preset={self.preset!r}: make the environment with preset={other!r}")

    def read_row(self, raw: Mapping[str, Any]) -> TaskT:
        """Return the task that a raw row of a data set holds.

        Raises:
            BadRow: The row does not fit the schema. Pydantic's own error serves as well.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no data set")

    def draw(self, source: random.Random) -> TaskT | None:
        """Draw a task of any split; ``None`` if it cannot be completed, and another is drawn.

        Override it where tasks are generated. It may as well return ``None``, to save time, as soon as it is known that
        the task is of another split.
        """
        raise NotImplementedError(f"{type(self).__name__} draws no tasks: override draw, or generate")

    def generate(self, rng: np.random.Generator) -> TaskT:
        """Draw tasks until one is complete and, by its :attr:`~vpo_envs.Task.split`, of this environment's split.

        Raises:
            ValueError: The knobs seem to allow no task.
        """
        # Python's generator draws single numbers ten times faster than NumPy's.
        source = random.Random(int.from_bytes(rng.bytes(16)))
        for _ in range(MAX_DRAWS):
            task = self.draw(source)
            if task is not None and task.split == self.split:
                return task
        raise ValueError(
            f"{type(self).__name__} found no task in {MAX_DRAWS} tries for {self.config!r}: {self.draw_advice}"
        )

    def task(self, index: int) -> TaskT:
        """Return the ``index``-th task: generated, or row ``index`` modulo the number of rows."""
        if not self.rows:
            return super().task(index)
        check_whole("the index of a task", index, 0, MAX_STREAM)
        return self.rows[index % len(self.rows)]

    def draw_index(self) -> int:
        """Draw the index of a generated task, or that of a row."""
        return int(self.np_random.integers(len(self.rows))) if self.rows else super().draw_index()

    def different(self, task: TaskT, answers: Iterable[str], count: int) -> list[str]:
        """Return the first ``count`` of some answers that can be parsed and are no duplicates of each other.

        Raises:
            NotImplementedError: Too few of the answers differ.
        """
        chosen: dict[AnswerT, str] = {}
        for text in islice(answers, MAX_REPEATS * count):
            try:
                answer = self.parse(text)
            except Unparsable:
                continue
            if type(self).effective is not VectorTextEnv.effective:
                answer = self.effective(answer, self.evaluate(task, answer))
            chosen.setdefault(answer, text)
            if len(chosen) == count:
                return [*chosen.values()]
        raise NotImplementedError(f"{type(self).__name__} has {len(chosen)} different demonstrations, not {count}")


ChoiceT = TypeVar("ChoiceT")


def entry(field: str, position: int) -> Callable[[Any], float]:
    """Return the score that is one entry of a tuple in the outcome; unlike a lambda, it can be pickled."""
    return partial(_entry, field, position)


def _entry(field: str, position: int, outcome: Any) -> float:
    return float(getattr(outcome, field)[position])


def in_random_order(rng: np.random.Generator, choices: Sequence[ChoiceT]) -> list[ChoiceT]:
    """Return the choices in random order."""
    return [choices[i] for i in rng.permutation(len(choices))]


def of_each_kind(rng: np.random.Generator, vectors: NDArray[np.float64]) -> list[int]:
    """Return the indices of vectors (n, d), first one of each kind: best for an objective, or best on average.

    Of vectors that are equally good for an objective, the one with the best mean is taken. All kinds are equally
    likely, in random order. Then come the other vectors.
    """
    means = vectors.mean(axis=1)
    kinds = list(dict.fromkeys(int(np.lexsort((means, column))[-1]) for column in (*vectors.T, means)))
    others = [i for i in range(len(vectors)) if i not in kinds]
    return [*rng.permutation(kinds).tolist(), *rng.permutation(others).astype(int).tolist()]


def endless(draw: Callable[[], ChoiceT]) -> Iterator[ChoiceT]:
    """Yield the results of ``draw`` without end."""
    while True:
        yield draw()
