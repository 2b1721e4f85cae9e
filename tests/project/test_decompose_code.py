"""`studies/decompose_code.py`: its programs, and what it measures on outcomes that are known."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from studies_by_path import load_study

from envs_data.code_problems import load_problems

SOURCE = """
def total(values):
    found = 0
    for value in values:
        if value > 0:
            found += value
    while found > 100:
        found -= 1
    return found
"""


@pytest.fixture(scope="module")
def study() -> Any:
    return load_study("decompose_code")


def results(source: str, values: list[list[int]]) -> list[int]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return [scope["total"](one) for one in values]


def test_mutants_differ_in_what_they_do_and_leave_loops_alone(study: Any) -> None:
    made = list(study.mutants(SOURCE))
    loop = ast.unparse(ast.parse(SOURCE).body[0].body[2])  # type: ignore[attr-defined]
    assert all(loop.replace("\n", "\n    ") in mutant for mutant in made)
    assert len(made) == len(set(made)) >= 5
    values = [[], [1, 2], [-3], [0, 5, -5], [7]]
    ran = {tuple(results(mutant, values)) for mutant in made if "found = 0" in mutant or "found = 1" in mutant}
    assert len(ran - {tuple(results(SOURCE, values))}) >= 3


def test_hybrids_follow_a_reading_on_every_input(study: Any) -> None:
    problem = next(one for one in load_problems("conflict") if one.entry == "shorten")
    readings = []
    for source in (*problem.readings, *study.hybrids(problem)):
        scope: dict[str, Any] = {}
        exec(source, scope)
        readings.append([scope["shorten"]("a title of some words"[:length], 7) for length in range(4, 20)])
    pure, mixed = readings[:3], readings[3:]
    assert len(mixed) == 12
    for outputs in mixed:
        assert all(output in allowed for output, *allowed in zip(outputs, *pure, strict=True))
    assert len({tuple(outputs) for outputs in mixed} - {tuple(outputs) for outputs in pure}) >= 4


def test_a_choice_by_readings_keeps_everything_where_each_program_follows_one(study: Any) -> None:
    # Three programs, each right under one reading of four inputs, and halves of them; twice, so that halves hold all.
    rights = np.tile(np.eye(3), 4)
    table = np.repeat(np.concatenate([rights, rights * (np.arange(12) < 6), rights * (np.arange(12) % 2)]), 6, axis=0)
    found = study.shares(table, np.tile(table, (2, 1)), np.repeat([0, 1], len(table)))
    # Programs that are worth the same by symmetry differ a little under weights that are spread evenly.
    assert found["one objective per reading (by hand)"] == pytest.approx(1.0, abs=1e-3)
    assert found["all tests"] == pytest.approx(1.0, abs=1e-3)
    assert found["best single program"] < found["mean of the tests (scalar)"] <= 1.0
    assert study.shares(np.ones((8, 12)), np.empty((0, 12)), np.empty(0, dtype=int)) is None
