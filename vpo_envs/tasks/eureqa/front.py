"""The exact front: every combination of the names that some world gives."""

from __future__ import annotations

from itertools import product

from vpo_envs.tasks.eureqa.scoring import EUREQAOutcome, judge
from vpo_envs.tasks.eureqa.task import EUREQATask
from vpo_envs.tasks.eureqa.text import write_names
from vpo_envs.text import normalise_name

NOBODY = "unknown"


def all_outcomes(task: EUREQATask) -> list[tuple[EUREQAOutcome, str]]:
    """Return every possible outcome with an answer that has it: each entity is named as in some world, or wrongly."""
    choices = []
    for names in zip(*task.worlds, strict=True):
        different = {normalise_name(name): name for name in reversed(names)}
        wrong = NOBODY
        while normalise_name(wrong) in different:
            wrong += " one"
        choices.append([*reversed(different.values()), wrong])
    return [(judge(task, tuple(map(normalise_name, names))), write_names(names)) for names in product(*choices)]
