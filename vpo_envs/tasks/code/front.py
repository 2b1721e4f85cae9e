"""The exact front of a problem whose statement can be read in several ways."""

from __future__ import annotations

import itertools
import json

from vpo_envs.tasks.code.scoring import CodeOutcome, Verdict, outcome_of
from vpo_envs.tasks.code.task import CodeTask


def best_outcomes(task: CodeTask) -> list[tuple[CodeOutcome, str]]:
    """Return every best outcome of a problem with readings, each with a program that attains it.

    A program's result depends on its input alone, so for each distinct input it passes the tests that expect one and
    the same output. The choices for different inputs are independent, and none beats another, so the number of outcomes
    is the product of the numbers of distinct outputs of each input.
    """
    outputs: dict[str, list[str]] = {}
    for test in task.tests:
        known = outputs.setdefault(test.input, [])
        if test.output not in known:
            known.append(test.output)
    found = []
    for choice in itertools.product(*outputs.values()):
        chosen = dict(zip(outputs, choice, strict=True))
        verdicts: list[Verdict] = ["passed" if chosen[test.input] == test.output else "wrong" for test in task.tests]
        found.append((outcome_of(task, verdicts), _lookup(task.entry, chosen)))
    return found


def _lookup(entry: str, chosen: dict[str, str]) -> str:
    """Return the source of a function that looks up the chosen output of each input."""
    table = {json.dumps(json.loads(given)): json.loads(wanted) for given, wanted in chosen.items()}
    return f"import json\n\nTABLE = {table!r}\n\n\ndef {entry}(*args):\n    return TABLE[json.dumps(list(args))]"
