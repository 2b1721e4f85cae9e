"""Programming problems as data: a statement, and tests that a program's behaviour is compared with."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from vpo_envs.core import Task

MAX_TESTS = 16
MAX_TEST_BYTES = 8192
"""Largest input or output of a test that is kept when a problem has more tests than it may."""

CodeKind = Literal["stdin", "call", "expression"]
Difficulty = Literal["easy", "medium", "hard"]


class CodeTest(Task):
    """One input and the output that it must give."""

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
    """How many of the first tests the prompt shows as examples."""
    entry: str = ""
    """The function, or the method of ``class Solution``, that tests call; empty for programs."""
    starter_code: str = ""
    setup: str = ""
    """Python that is run after the answer and before each test's call."""
    difficulty: str = ""
    solution: str = ""
    """A reference solution, where one is known."""
    readings: tuple[str, ...] = ()
    """Where the statement can be read in several ways: a solution for each reading. Equal inputs of several tests then
    ask for different outputs, and no program passes all tests."""

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
        """What ``test`` expects, as plain data."""
        if self.kind == "call":
            return json.loads(test.output)
        if self.kind == "expression":
            return ast.literal_eval(test.output)
        return test.output


def spread(sizes: Sequence[int], count: int = MAX_TESTS) -> list[int]:
    """Which tests to keep of too many: positions whose sizes are spread evenly from the smallest to the largest.

    Keeping the shortest ones would make a problem easier than it is.

    Returns:
        At most ``count`` positions, ascending.
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    if len(order) <= count:
        return sorted(order)
    return sorted(order[round(i * (len(order) - 1) / (count - 1))] for i in range(count))
