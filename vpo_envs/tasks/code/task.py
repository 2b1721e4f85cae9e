"""Programming problems as data: a statement and tests."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from vpo_envs.core import Task

MAX_TESTS = 16
MAX_TEST_BYTES = 8192
"""Maximum bytes of the input or output of a test that is read from a data set."""

CodeKind = Literal["stdin", "call", "expression"]
Difficulty = Literal["easy", "medium", "hard"]


class CodeTest(Task):
    """One input and the expected output."""

    input: str
    """``"stdin"``: the text of standard input; ``"call"``: the arguments as a JSON array; ``"expression"``: Python."""
    output: str
    """``"stdin"``: standard output; ``"call"``: the value as JSON; ``"expression"``: the value as a Python literal."""


class CodeTask(Task):
    """A programming problem."""

    title: str
    statement: str = Field(min_length=1)
    kind: CodeKind
    tests: tuple[CodeTest, ...] = Field(min_length=1, max_length=MAX_TESTS)
    shown: int = Field(default=0, ge=0)
    """Number of tests, from the first, that the prompt shows as examples and that count nevertheless, as in MBPP."""
    entry: str = ""
    """The function, or the method of ``class Solution``, that tests call; empty for programs."""
    starter_code: str = ""
    setup: str = ""
    """Python that runs after the answer and before each test's call."""
    difficulty: str = ""
    solution: str = ""
    """A reference solution; empty if none is known."""
    readings: tuple[str, ...] = ()
    """A solution for each reading of a statement that has several. Tests with equal inputs then expect different
    outputs, so no program passes all of them."""

    @model_validator(mode="after")
    def _check(self) -> CodeTask:
        if self.kind == "call" and not self.entry.isidentifier():
            raise ValueError(f"entry must be the name of a function, got {self.entry!r}")
        for number, test in enumerate(self.tests, start=1):
            try:
                if self.kind == "call" and not isinstance(json.loads(test.input), list):
                    raise ValueError("the input is not a JSON array of arguments")
                self.expected(test)
            except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
                raise ValueError(f"test {number}: {error or type(error).__name__}") from None
        return self

    def expected(self, test: CodeTest) -> object:
        """Return what ``test`` expects as plain data."""
        if self.kind == "call":
            return json.loads(test.output)
        if self.kind == "expression":
            return ast.literal_eval(test.output)
        return test.output


def spread(sizes: Sequence[int], count: int = MAX_TESTS) -> list[int]:
    """Choose at most ``count`` tests whose sizes are spread evenly from the smallest to the largest.

    Keeping the smallest tests would make a problem easier than it is.

    Returns:
        Positions of the tests, ascending.
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    if len(order) <= count:
        return sorted(order)
    return sorted(order[round(i * (len(order) - 1) / (count - 1))] for i in range(count))
