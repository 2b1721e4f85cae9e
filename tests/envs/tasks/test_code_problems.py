"""The bundled problems: references pass, wrong solutions get exactly their vectors, readings conflict."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any

import numpy as np
import pytest

from envs_data.code_problems import CodeProblem, load_problems
from vpo_envs import CodeEnv
from vpo_envs.core import Split
from vpo_envs.pareto import non_dominated
from vpo_envs.sandbox import same_output
from vpo_envs.sandbox.zygote import PRELUDE
from vpo_envs.tasks.code.generate import SHOWN, builtin_tasks, problem_task
from vpo_envs.tasks.code.task import CodeOutcome, CodeTask, outcome_of

PAPER = load_problems("paper")
CONFLICT = load_problems("conflict")
HELD_OUT: tuple[Split, ...] = ("validation", "test")


def judged(task: CodeTask, program: Callable[..., Any]) -> CodeOutcome:
    """The verdicts on a Python function of the arguments, or of standard input."""

    def right(given: str, wanted: str) -> bool:
        with suppress(ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
            if task.kind == "stdin":
                return same_output(str(program(given)).encode(), wanted)
            return json.dumps(program(*json.loads(given))) == json.dumps(json.loads(wanted))
        return False

    return outcome_of(task, ["passed" if right(test.input, test.output) else "wrong" for test in task.tests])


def run_here(task: CodeTask, source: str) -> CodeOutcome:
    """The verdicts on one of our own programs, which needs no sandbox."""
    code = compile(source, task.title, "exec")
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    if task.kind == "call":
        exec(code, names)
        return judged(task, lambda *given: names[task.entry](*given))

    def printed(given: str) -> str:
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), suppress(SystemExit):
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
            exec(code, {**names, "__name__": "__main__"})
        return out.getvalue()

    return judged(task, printed)


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], CodeOutcome]:
    """Every solution of every problem, run once."""
    return {
        (problem.title, source.strip()): run_here(problem_task(problem), source)
        for problem in (*PAPER, *CONFLICT)
        for source in (problem.reference, *problem.wrong, *problem.readings)
        if source
    }


def test_there_are_enough_of_each_difficulty() -> None:
    counts = Counter(problem.difficulty for problem in PAPER)
    assert sum(counts.values()) >= 60
    assert set(counts) == {"easy", "medium", "hard"}
    assert min(counts.values()) >= 20
    assert len({problem.title for problem in (*PAPER, *CONFLICT)}) == len(PAPER) + len(CONFLICT)
    assert {problem.kind for problem in PAPER} == {"call", "stdin"}
    assert len(CONFLICT) >= 12


@pytest.mark.parametrize("problem", PAPER, ids=lambda problem: problem.title)
def test_a_problem_is_whole(problem: CodeProblem) -> None:
    assert 6 <= len(problem.inputs) <= 16
    assert len(set(problem.inputs)) == len(problem.inputs)
    assert len(problem.outputs) == len(problem.inputs)
    assert len({outputs[0] for outputs in problem.outputs}) >= 2
    assert len(problem.wrong) == len(problem.wrong_passes) == 2
    assert len(problem.statement.split()) >= 15
    for marks in problem.wrong_passes:
        assert re.fullmatch("[01]+", marks)
        assert len(marks) == len(problem.inputs)
        assert "0" in marks[SHOWN:]


def test_every_reference_passes_every_test(outcomes: dict[tuple[str, str], CodeOutcome]) -> None:
    failed = {problem.title for problem in PAPER if not all(outcomes[problem.title, problem.reference.strip()].passed)}
    assert failed == set()


def test_every_wrong_solution_gets_exactly_its_vector(outcomes: dict[tuple[str, str], CodeOutcome]) -> None:
    for problem in PAPER:
        for source, marks in zip(problem.wrong, problem.wrong_passes, strict=True):
            passed = outcomes[problem.title, source.strip()].passed
            assert "".join(map(str, map(int, passed))) == marks[SHOWN:], problem.title


def test_most_wrong_solutions_pass_something(outcomes: dict[tuple[str, str], CodeOutcome]) -> None:
    marks = [marks for problem in PAPER for marks in problem.wrong_passes]
    assert sum("1" in each for each in marks) >= 0.9 * len(marks)


# Answers worked out by hand, or by a shorter way than the reference's.
BY_HAND = {
    ("Tram tickets", "[3, 5]"): 28,
    ("Second best score", "[[2, 9, 9]]"): 2,
    ("Digit ladder", "[19]"): 4,
    ("Stairs of bricks", "[20]"): 5,
    ("Leap years between", "[2021, 2030]"): 2,
    ("Parking meter", "[100, 63]"): [20, 10, 5, 2],
    ("Ferry queue", "[[4, 5, 4, 5], 9]"): 2,
    ("Shortest cover", '["xyzzyx", "xx"]'): 6,
    ("Balanced brackets with wildcards", '["?("]'): False,
    ("Best day to sell honey", "[[1, 5, 2, 8], 1]"): 8,
    ("Water in the yard", "[[4, 1, 2, 1, 3]]"): 5,
    ("Knight on a small board", "[8, [0, 0], [7, 7]]"): 6,
    ("Cheapest garlands", "[[[2, 3], [3, 4]], 4]"): 6,
    ("Roman sums", '["XLIX", "I"]'): "L",
    ("Tiling a corridor", "[6]"): 41,
    ("Fewest coins back and forth", "[[1, 5, 10], 9]"): 2,
    ("Castle walls", "[[6, 2, 5, 4, 5, 1, 6]]"): 12,
    ("Weighing sand", "[[3, 5], 4]"): 6,
    ("Secret sharing", "[[7, 11, 13], [6, 10, 12]]"): 1000,
    ("Courier with a deadline", "[[[0, 4, 10], [1, 2, 6], [3, 5, 6]]]"): 12,
}


@pytest.mark.parametrize(("title", "given"), BY_HAND)
def test_outputs_are_what_a_person_finds(title: str, given: str) -> None:
    problem = next(problem for problem in PAPER if problem.title == title)
    assert json.loads(problem.outputs[problem.inputs.index(given)][0]) == BY_HAND[title, given]


# --- blind programs ---


def earned(task: CodeTask, program: Callable[..., Any]) -> float:
    """The share of a task's reward that a Python function of the arguments, or of standard input, earns."""
    outcome = judged(task, program)
    return sum(CodeEnv().reward_vector(outcome)) / len(task.tests)


BLIND: tuple[Callable[..., Any], ...] = (
    *(
        lambda *a: a[0],
        lambda *a: a[-1],
        lambda *a: list(a),
        lambda *a: a[0][0],
        lambda *a: a[0][-1],
        lambda *a: [a[0]],
    ),
    *(lambda *a: len(a[0]), lambda *a: len(a[0]) - 1, lambda *a: len(a[0]) // 2, lambda *a: len(set(a[0]))),
    *(lambda *a: sum(a[0]), lambda *a: max(a[0]), lambda *a: min(a[0]), lambda *a: int(bool(a[0]))),
    *(lambda *a: sorted(a[0]), lambda *a: a[0][::-1], lambda *a: sorted(set(a[0])), lambda *a: bool(a[0])),
    *(lambda *a: a[0].split()[0], lambda *a: a[0].split()[-1], lambda *a: len(a[0].split())),
)
"""What one can write without reading the statement."""


@pytest.mark.parametrize("collection", ["paper", "conflict"])
def test_a_program_that_gives_one_result_whatever_the_input_earns_nothing(collection: str) -> None:
    for problem in PAPER if collection == "paper" else CONFLICT:
        task = problem_task(problem)
        for result in {"", *(output for outputs in problem.outputs for output in outputs)}:
            constant = result if task.kind == "stdin" or not result else json.loads(result)
            assert earned(task, lambda *_, constant=constant: constant) == 0, (problem.title, result)


def test_the_best_program_that_does_not_read_the_statement_earns_five_per_cent() -> None:
    """docs/code.md states these numbers."""
    rewards = np.array([[earned(problem_task(problem), program) for problem in PAPER] for program in BLIND])
    assert rewards.mean(axis=1).max() == pytest.approx(0.05, abs=0.005)
    # Even if for each problem a person chose the best of them:
    assert rewards.max(axis=0).mean() == pytest.approx(0.20, abs=0.01)


def test_the_examples_of_a_prompt_are_no_tests() -> None:
    for problem in PAPER:
        task = problem_task(problem)
        assert [test.input for test in task.tests] == list(problem.inputs[SHOWN:])
        table = dict(zip(problem.inputs[:SHOWN], problem.outputs[:SHOWN], strict=True))

        def copied(*arguments: Any, table: dict[str, Any] = table, kind: str = task.kind) -> Any:
            wanted = table[arguments[0] if kind == "stdin" else json.dumps(list(arguments))][0]
            return wanted if kind == "stdin" else json.loads(wanted)

        assert earned(task, copied) == 0


# --- readings ---


@pytest.mark.parametrize("problem", CONFLICT, ids=lambda problem: problem.title)
def test_three_readings_want_three_outputs_of_every_input(problem: CodeProblem) -> None:
    assert len(problem.readings) == 3
    assert all(len(set(outputs)) == 3 for outputs in problem.outputs)
    assert all(len(set(of_reading)) > 1 for of_reading in zip(*problem.outputs, strict=True))


def test_each_reading_passes_its_own_tests_and_no_others(outcomes: dict[tuple[str, str], CodeOutcome]) -> None:
    for problem in CONFLICT:
        for i, source in enumerate(problem.readings):
            wanted = tuple(j % 3 == i for j in range(3 * len(problem.inputs)))
            assert outcomes[problem.title, source.strip()].passed == wanted, problem.title


@pytest.mark.parametrize("problem", CONFLICT, ids=lambda problem: problem.title)
def test_conflict_is_certified_on_each_problem(problem: CodeProblem) -> None:
    env, task = CodeEnv(preset="conflict"), problem_task(problem)
    front = np.array([point.vector for point in env.front(task)])
    active = env.active(task)
    # By brute force: for each input the output of a reading, or none of them.
    tests = [(test.input, test.output) for test in task.tests]
    reached = []
    for choice in itertools.product(*[(*outputs, None) for outputs in problem.outputs]):
        given = dict(zip(problem.inputs, choice, strict=True))
        verdicts = ["passed" if given[shown] == wanted else "wrong" for shown, wanted in tests]
        reached.append(env.reward_vector(outcome_of(task, verdicts)))  # type: ignore[arg-type]  # two of the verdicts
    points = np.unique(np.array(reached), axis=0)
    assert points[non_dominated(points)].tolist() == np.unique(front, axis=0).tolist()
    assert not (front[:, active] == 1).all(axis=1).any()
    weights = np.random.default_rng(0).dirichlet(np.ones(active.sum()), size=20_000)
    utility = weights @ front[:, active].T
    pure = [[float(j % 3 == i) for j in range(active.sum())] for i in range(3)]
    best_three = (weights @ np.array(pure).T).max(axis=1).mean()
    assert best_three - utility.mean(axis=0).max() >= 0.05


Row = tuple[str, str, Callable[..., Any], Callable[[Callable[..., Any]], bool]]
UNTESTED: tuple[Row, ...] = (
    (
        "Halve the list",
        "No item belongs to both.",
        lambda items: [items[: (len(items) + 1) // 2], items[len(items) // 2 :]],
        lambda halve: all(set(one).isdisjoint(other) for one, other in map(halve, ([1, 2, 3], [7]))),
    ),
    (
        "Average temperature",
        "a sensor reported; they may all be different.",
        lambda readings: float(Counter(readings).most_common(1)[0][0]),
        lambda average: average([1, 2, 9]) == average([9, 2, 1]),
    ),
    (
        "Shorten the title",
        "The result is plain ASCII and begins as the title does.",
        lambda title, limit: title[: limit - 1] + "\u2026",
        lambda shorten: shorten("The long road", 9).isascii(),
    ),
    (
        "Shorten the title",
        "The result is plain ASCII and begins as the title does.",
        lambda title, limit: title[-limit:],
        lambda shorten: shorten("The long road", 9).startswith("The"),
    ),
    (
        "Days between",
        "Both days are treated alike.",
        lambda first, last: last - first,
        lambda days: days(1, 5) in (3, 5),
    ),
    (
        "Remove the repeats",
        "Where a number stays, its first occurrence stays.",
        lambda items: list(dict.fromkeys(items[::-1]))[::-1],
        lambda no_repeats: no_repeats([1, 2, 1]) != [2, 1],
    ),
    (
        "Largest number",
        "Count from 0 if you return the first place.",
        lambda numbers: numbers.index(max(numbers)) + 1,
        lambda largest: largest([3, 9, 1, 9]) != 2,
    ),
    *(
        (
            "Split the text",
            "A value keeps its blanks only if no value is left out.",
            program,
            lambda split: all(len(split(text)) == 3 or " b" not in split(text) for text in ("a, b,", "a, b, ")),
        )
        for program in (
            lambda text: [part for part in text.split(",") if part],
            lambda text: [part for part in text.split(",") if part.strip()],
        )
    ),
)
"""Natural readings without tests: the title, what the statement says against them, a program, and what that demands."""


@pytest.mark.parametrize(("title", "said", "program", "obeyed_by"), UNTESTED)
def test_a_statement_excludes_natural_readings_without_tests(
    title: str, said: str, program: Callable[..., Any], obeyed_by: Callable[[Callable[..., Any]], bool]
) -> None:
    problem = next(problem for problem in CONFLICT if problem.title == title)
    assert said in " ".join(problem.statement.split())
    assert earned(problem_task(problem), program) == 0
    assert not obeyed_by(program)
    for source in problem.readings:
        names: dict[str, Any] = {}
        exec(PRELUDE, names)
        exec(source, names)
        assert obeyed_by(names[problem.entry])


# --- splits ---


def test_a_problem_with_readings_stays_in_its_split() -> None:
    """A split follows from the words of the statement, so who rewords one must keep its problem where it was."""
    held_out = {split: {task.title for task in builtin_tasks(split, "conflict")} for split in HELD_OUT}
    assert held_out["validation"] == {"Days between", "Share the sweets"}
    assert held_out["test"] == {"Average temperature", "Largest number", "Split the text"}


@pytest.mark.parametrize("preset", ["paper", "conflict"])
def test_splits_share_no_problem_and_hold_all(preset: str) -> None:
    parts = [builtin_tasks(split, preset) for split in ("train", "validation", "test")]  # type: ignore[arg-type]  # parametrized
    titles = [task.title for part in parts for task in part]
    assert len(set(titles)) == len(titles) == len(PAPER if preset == "paper" else CONFLICT)
    if preset == "paper":
        for part in parts:
            assert {task.difficulty for task in part} == {"easy", "medium", "hard"}
