"""Plain reward functions under the checks: their prompts with good answers, and what responses score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from envs_data.readers import load_rows
from vpo_envs.checking.subject import Case, Floats, Subject
from vpo_envs.functions.rewards import (
    Function,
    RewardFunctions,
    Row,
    good_responses,
    objectives_sentence,
    read_prompt_row,
    read_ranges,
)
from vpo_envs.text import as_text

MEASURED_ON = 64
"""Rows on which ranges are measured."""


class FunctionRewards(Subject):
    """The rewards of plain functions, called as :class:`vpo_envs.functions.rewards.RewardFunctions` says.

    ``ranges`` holds the lowest and highest reward, of all functions or by the name of the objective; ``None`` allows
    any reward.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        rows: Sequence[Row],
        ranges: Sequence[float] | Mapping[str, Sequence[float]] | None = (0.0, 1.0),
    ) -> None:
        super().__init__()
        self._rows = rows
        self._functions = RewardFunctions(functions, rows)
        self.names = self._functions.names
        free = [(-np.inf, np.inf)] * len(self.names)
        self.ranges = free if ranges is None else read_ranges(self.names, ranges)
        self.said_in_prompts = objectives_sentence(self._functions.described)
        """What a prompt for several answers says of the objectives."""
        self.waiting = self._functions.waiting
        """Functions that read what only a trainer has."""
        weights = np.full(len(self.names), 1 / len(self.names))
        self.cases = [
            Case(as_text(row["prompt"]), good_responses(row), good_responses(row), weights, None) for row in rows
        ]

    def respond(self, answer: str) -> str:
        """Return the answer itself."""
        return answer

    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        vectors, failures = self._functions([self._rows[case] for case in cases], responses)
        for number, name, fault in failures:
            self.errors.setdefault(name, f"{fault}, for the response {responses[number]!r:.80}")
        return vectors, np.ones(len(responses), dtype=bool)


def measured_ranges(functions: Mapping[str, Function], rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return the lowest and highest reward by objective, over good answers, good answers to other prompts, and poor
    answers."""
    subject = FunctionRewards(functions, rows[:MEASURED_ON], ranges=None)
    ranges = {row.objective: [float(f"{row.lowest:.6g}"), float(f"{row.highest:.6g}")] for row in subject.table()}
    for name in subject.waiting:
        raise ValueError(
            f"the range of {name} cannot be measured before a model is there ({subject.errors[name]}): give --range "
            f"{name}=LOW,HIGH"
        )
    return {name: [low, high] for name, (low, high) in ranges.items() if low < high}


def read_rows(source: str, columns: Mapping[str, str] | None = None) -> list[Row]:
    """Read prompts with good answers; the arguments are as for :func:`vpo_envs.functions.rewards.read_prompt_row`."""
    rows = list(load_rows(source, partial(read_prompt_row, columns=columns)).rows)
    if bad := [number for number, row in enumerate(rows, 1) if not good_responses(row)]:
        raise ValueError(
            f'row {bad[0]} of {source!r} has no good answer: a row is like {{"prompt": "2 + 2", "answer": "4"}}'
        )
    if len(rows) < 2:
        raise ValueError(f"{source!r} needs two rows or more, since answers are compared across prompts")
    return rows
