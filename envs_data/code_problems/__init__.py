"""The bundled programming problems: statements, inputs and solutions in TOML, expected outputs in JSON.

``easy.toml``, ``medium.toml`` and ``hard.toml`` hold problems with one meaning, ``conflict.toml`` problems that can be
read in three ways. ``expected.json`` holds the outputs of the reference solutions and which tests the wrong solutions
pass; ``examples/make_code_problems.py`` regenerates it and compares.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from envs_data.parsing import parse_json, parse_toml

Collection = Literal["paper", "conflict"]
FILES: dict[Collection, tuple[str, ...]] = {"paper": ("easy", "medium", "hard"), "conflict": ("conflict",)}


class CodeProblem(BaseModel):
    """One problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    difficulty: str
    kind: Literal["call", "stdin"]
    statement: str
    inputs: tuple[str, ...]
    """The arguments as a JSON array, or the text of standard input."""
    outputs: tuple[tuple[str, ...], ...] = ()
    """Outputs of the reference solution, or of each reading, one per input: JSON, or the text of standard output."""
    entry: str = ""
    """Name of the function that tests call."""
    starter: str = ""
    reference: str = ""
    wrong: tuple[str, ...] = ()
    """Two solutions with a likely mistake."""
    wrong_passes: tuple[str, ...] = ()
    """Results of each wrong solution: a ``1`` for each test that it passes, and a ``0`` for each other."""
    readings: tuple[str, ...] = ()
    """A solution for each reading."""


def read_problem_file(name: str) -> list[dict[str, Any]]:
    """Return the problems of one TOML file as they are, without expected outputs."""
    text = (files(__package__) / f"{name}.toml").read_text(encoding="utf-8")
    return [{"difficulty": name, **problem} for problem in parse_toml(text)["problem"]]


@functools.cache
def load_problems(collection: Collection) -> tuple[CodeProblem, ...]:
    """Return the problems with one meaning (``"paper"``) or with several readings (``"conflict"``)."""
    expected = parse_json((files(__package__) / "expected.json").read_text(encoding="utf-8"))
    return tuple(
        CodeProblem.model_validate({**raw, **expected[raw["title"]]})
        for name in FILES[collection]
        for raw in read_problem_file(name)
    )
