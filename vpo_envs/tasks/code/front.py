"""Problems that can be read in several ways: every outcome that no program beats."""

from __future__ import annotations

import itertools
import json

from vpo_envs.tasks.code.scoring import CodeOutcome, Verdict
from vpo_envs.tasks.code.task import CodeTask


def best_outcomes(task: CodeTask, tier: str) -> list[tuple[CodeOutcome, str]]:
    """Every best outcome of a problem with readings, each with a program that attains it.

    A program's result depends on its input alone, so for each distinct input it passes the tests of one expected
    output; the choices are independent, and no choice beats another unless all tests of an input agree. The number of
    outcomes is the product of the numbers of distinct outputs of each input.
    """
    outputs: dict[str, list[str]] = {}
    for test in task.tests:
        known = outputs.setdefault(test.input, [])
        if test.output not in known:
            known.append(test.output)
    found = []
    for choice in itertools.product(*outputs.values()):
        chosen = dict(zip(outputs, choice, strict=True))
        verdicts: tuple[Verdict, ...] = tuple(
            ["passed" if chosen[test.input] == test.output else "wrong" for test in task.tests]
        )
        found.append((CodeOutcome(verdicts, tier), _lookup(task.entry, chosen)))
    return found


def _lookup(entry: str, chosen: dict[str, str]) -> str:
    """A function that gives for each input the chosen output."""
    table = {json.dumps(json.loads(given)): json.loads(wanted) for given, wanted in chosen.items()}
    return f"import json\n\nTABLE = {table!r}\n\n\ndef {entry}(*args):\n    return TABLE[json.dumps(list(args))]"
