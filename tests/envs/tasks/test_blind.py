"""What 1, 3 and 30 answers earn that leave out the lines which they should rest on, as docs/blind.md lists it.

``python tests/envs/tasks/test_blind.py`` prints the page's tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from blind import (
    Rules,
    calls_by_type,
    chains,
    expressions,
    fixed_programs,
    numbers_of,
    pairs_of_a_line,
    programs,
    routes,
    solutions,
    texts,
    titles_to_last_relation,
    tools_for_needs,
    whole_chains,
)
from numpy.typing import NDArray

from vpo_envs.pareto import best_set_utility, set_utility, spread_weights
from vpo_envs.registration import env_type, text_env_ids
from vpo_envs.text import format_answers

PAGE = Path(__file__).parents[3] / "docs/blind.md"
SIZES = (1, 3, 30)
TESTED = 100
"""Test instances of each row."""
MARGIN = 0.03
LEARNED_MARGIN = 0.12
"""Of rules learned and tested on half as many instances: two standard errors of a mean of 50 shares whose standard
deviation is 0.4."""

PRESETS = ("paper", "conflict", "compact")
PARTS = {"parts": True, "steps": [3, 4]}


class Row(NamedTuple):
    """One row of the table."""

    env: str
    options: dict[str, Any]
    left_out: str
    """Lines that are not read."""
    answers: Callable[..., Any]
    """Of a task, guesses in random order; of training instances and their environment, :data:`Rules`."""
    learned: int = 0
    """Training instances from which rules are taken, and by which they are chosen; 0 for guesses."""


ROWS = [
    *(Row("vpo/Maze-v0", {"preset": preset}, "the grid", routes, 60) for preset in PRESETS),
    *(Row("vpo/Countdown-v0", {"preset": preset}, "the targets", expressions, 200) for preset in PRESETS),
    Row("vpo/GSM8K-v0", {"preset": "paper"}, "the words", solutions, 300),
    *(Row("vpo/Personas-v0", {"preset": preset}, "the checks", texts, 60) for preset in PRESETS[:2]),
    *(
        Row("vpo/MuSiQue-v0", {"preset": preset}, "all relations but the last", titles_to_last_relation)
        for preset in PRESETS[:2]
    ),
    Row("vpo/MuSiQue-v0", {"preset": "compact"}, "which line follows which", pairs_of_a_line),
    *(Row("vpo/EUREQA-v0", {"preset": preset}, "the clues", chains) for preset in PRESETS[:2]),
    Row("vpo/EUREQA-v0", {"preset": "conflict", "difficulty": {"decoys": 8}}, "the clues", chains),
    Row("vpo/EUREQA-v0", {"preset": "compact"}, "the witnesses", whole_chains),
    *(Row("vpo/Tools-v0", {"preset": preset}, "names and descriptions", calls_by_type) for preset in PRESETS[:2]),
    Row("vpo/Tools-v0", {"preset": "compact"}, "the tools' parameters", tools_for_needs),
    Row("vpo/Code-v0", {"preset": "compact"}, "the customers' lines", programs, 60),
    Row("vpo/Programs-v0", {"preset": "compact"}, "the examples", fixed_programs, 200),
    Row("vpo/Programs-v0", {"preset": "compact", "difficulty": PARTS}, "the examples", fixed_programs, 200),
]


# Measuring -----------------------------------------------------------------------------------------------------------


def points(env: Any, task: Any, answers: Sequence[str]) -> NDArray[np.float64]:
    """The reward vectors of answers, active objectives only, shape (n, d)."""
    scored = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers]).rewards[:, 0]
    return np.asarray(scored[:, env.active(task)], dtype=np.float64)


def best_rules(env: Any, rules: Rules, training: Sequence[Any]) -> list[int]:
    """Which rules to take, each the one that adds most to those before it on training instances."""
    vectors = [points(env, task, rules(task)) for task in training]
    utilities = np.stack([one @ spread_weights(one.shape[1], 60)[:60].T for one in vectors], axis=1)
    best, chosen = np.zeros(utilities.shape[1:]), list[int]()
    for _ in range(max(SIZES)):
        chosen.append(int(np.maximum(utilities, best).mean(axis=(1, 2)).argmax()))
        best = np.maximum(best, utilities[chosen[-1]])
    return chosen


def kind_of(task: Any) -> int:
    """How many numbers a word problem has; 0 for the other tasks that rules answer."""
    return len(numbers_of(task)) if hasattr(task, "question") else 0


def ordered(row: Row, tasks: Sequence[Any]) -> Iterator[list[str]]:
    """Each task's answers, best first as far as that is known without reading."""
    if not row.learned:
        for number, task in enumerate(tasks):
            known = list(dict.fromkeys(row.answers(task)))
            yield random.Random(number).sample(known, len(known))
        return
    env: Any = gym.make(row.env, **row.options).unwrapped
    training = [env.task(index) for index in range(row.learned)]
    chosen: dict[int, tuple[Rules, list[int]]] = {}
    for task in tasks:
        if (kind := kind_of(task)) not in chosen:
            alike = [one for one in training if kind_of(one) == kind]
            rules: Rules = row.answers(alike, env)
            chosen[kind] = rules, best_rules(env, rules, alike)
        rules, order = chosen[kind]
        listed = rules(task)
        yield [listed[index] for index in order]


def measured(row: Row, tested: int = TESTED) -> list[float]:
    """The utility of the first 1, 3 and 30 answers, as a share of that of the front's best 1, best 3 and all."""
    env: Any = gym.make(row.env, split="test", **row.options).unwrapped
    tasks = [env.task(index) for index in range(tested)]
    earned, possible = [], []
    for task, answers in zip(tasks, ordered(row, tasks), strict=True):
        found = points(env, task, answers[: max(SIZES)])
        weights = spread_weights(found.shape[1], 1 << 10)
        front = np.array([point.vector for point in env.front(task)])[:, env.active(task)]
        earned.append([set_utility(found[:size], weights) for size in SIZES])
        possible.append([*(best_set_utility(front, size, weights) for size in SIZES[:2]), set_utility(front, weights)])
    return list(np.mean(earned, axis=0) / np.mean(possible, axis=0))


def name_of(row: Row) -> str:
    """The first cells of a row in the table."""
    knobs = "".join(f", `{name}` {value}" for name, value in row.options.get("difficulty", {}).items())
    return f"| `{row.env}` | `{row.options['preset']}`{knobs} | {row.left_out} |"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_page_says_what_blind_answers_earn(row: Row) -> None:
    [line] = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(name_of(row))]
    stated = [float(cell) for cell in line.removeprefix(name_of(row)).strip(" |").split("|")]
    if row.learned:
        fewer = row._replace(learned=row.learned // 2)
        assert measured(fewer, TESTED // 2) == pytest.approx(stated, abs=LEARNED_MARGIN)
    else:
        assert measured(row) == pytest.approx(stated, abs=MARGIN)


def test_three_fixed_expressions_earn_at_most_half_on_compact_countdown() -> None:
    [row] = [row for row in ROWS if row.answers is expressions and row.options["preset"] == "compact"]
    assert max(measured(row, TESTED // 2)[:2]) <= 0.5


def distinct(env_id: str, preset: str) -> tuple[int, int]:
    """How many of the first 200 and 1,000 test instances differ in their canonical content."""
    env: Any = gym.make(env_id, preset=preset, split="test").unwrapped
    contents = [env.task(index).canonical for index in range(1000)]
    return len(set(contents[:200])), len(set(contents))


COUNTED = [("vpo/Code-v0", "paper"), ("vpo/Code-v0", "compact"), ("vpo/Tools-v0", "paper")]


@pytest.mark.parametrize(("env_id", "preset"), COUNTED)
def test_the_page_says_how_many_tasks_a_test_set_holds(env_id: str, preset: str) -> None:
    cells = " | ".join(map(str, distinct(env_id, preset)))
    assert f"| `{env_id}` | `{preset}` | {cells} |" in PAGE.read_text("utf-8").splitlines()


if __name__ == "__main__":
    print("| id | preset | not read | 1 | 3 | 30 |\n|---|---|---|---|---|---|")
    for row in ROWS:
        print(name_of(row), " | ".join(f"{share:.2f}" for share in measured(row)), "|", flush=True)
    print("\n| id | preset | of 200 | of 1,000 |\n|---|---|---|---|")
    for env_id in text_env_ids():
        for preset in env_type(env_id).presets:
            if (counts := distinct(env_id, preset)) != (200, 1000):
                print(f"| `{env_id}` | `{preset}` |", " | ".join(map(str, counts)), "|", flush=True)
