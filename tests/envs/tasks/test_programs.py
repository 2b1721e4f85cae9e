"""Programs behind examples: the two languages agree, the split is of functions, and only hidden examples pay."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import gymnasium as gym
import pytest

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import SPLITS, VectorTextEnv
from vpo_envs.tasks.language import LISTS, TEXTS, all_functions, behaviour, python, run
from vpo_envs.tasks.programs.compact import ProgramTask
from vpo_envs.tasks.programs.generate import draw_value
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]
PARTS = {"parts": True, "steps": [2, 4]}
KNOBS = [{}, {"steps": [1, 4], "examples": 2}, {"distractors": 3, "steps": [4, 4]}, PARTS]


def made(preset: str = "compact", **options: Any) -> Env:
    env = gym.make("vpo/Programs-v0", preset=preset, **options).unwrapped
    assert isinstance(env, VectorTextEnv)
    return env


def vectors(env: Env, task: Any, *answers: str) -> list[list[float]]:
    return [env.score_batch([task], [format_answers([one])], 1).rewards[0, 0].tolist() for one in answers]


def as_python(source: str, value: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope["f"](value)


@pytest.mark.parametrize("texts", [False, True], ids=["lists", "texts"])
def test_a_step_does_the_same_in_python(texts: bool) -> None:
    steps, source = (TEXTS if texts else LISTS), random.Random(0)
    for _ in range(300):
        program = source.choices(list(steps), k=source.randint(1, 4))
        value = draw_value(source, texts)
        found = as_python(python(steps, program), value if texts else list(value))
        assert found == (run(steps, program, value) if texts else list(run(steps, program, value)))


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_program_is_right_on_every_example_and_no_step_of_it_is_spare(knobs: dict[str, Any]) -> None:
    env = made(difficulty=knobs)
    for index in range(60):
        task: ProgramTask = env.task(index)
        assert all(run(LISTS, task.program, value) == output for value, output in task.shown + task.hidden)
        inputs = [value for value, _ in task.shown + task.hidden]
        assert len(set(inputs)) == len(inputs) == 2 * env.reward_dim
        for i in range(len(task.program)):
            without = task.program[:i] + task.program[i + 1 :]
            assert any(run(LISTS, without, value) != output for value, output in task.shown)
        assert vectors(env, task, " ".join(task.program)) == [[1.0] * env.reward_dim]
        assert [point.vector for point in env.front(task)] == [(1.0,) * env.reward_dim]


@pytest.mark.parametrize("knobs", [{}, {"steps": [4, 4]}, {**PARTS, "steps": [3, 4]}], ids=str)
def test_no_other_program_is_right_on_all_hidden_examples(knobs: dict[str, Any]) -> None:
    lists = [tuple(random.Random(i).choices(range(-9, 10), k=7)) for i in range(40)]
    programs = [program for count in (1, 2, 3, 4) for program in itertools.product(LISTS, repeat=count)]

    def impostors(env: Env) -> int:
        found = 0
        for task in map(env.task, range(12)):
            fit = [one for one in programs if all(run(LISTS, one, value) == output for value, output in task.hidden)]
            found += any(run(LISTS, one, value) != run(LISTS, task.program, value) for one in fit for value in lists)
        return found

    assert impostors(made(difficulty=knobs)) == 0
    assert impostors(made(difficulty={**knobs, "decisive": False})) > 0


def test_only_hidden_examples_pay() -> None:
    env = made("paper")
    for index in range(4):
        task = env.task(index)
        shown = [line.partition(": f(")[2].partition(") gives ") for line in env.prompt(task, 1).splitlines()]
        table = {given: wanted for given, _, wanted in shown if wanted}
        assert len(table) == 4
        lookup = f"def f(x):\n    return {{{', '.join(f'{g!r}: {w}' for g, w in table.items())}}}.get(repr(x))"
        assert vectors(env, task, lookup, task.solution) == [[0.0] * 4, [1.0] * 4]
        assert all(as_python(task.solution, eval(given)) == eval(wanted) for given, wanted in table.items())


def test_one_right_example_of_four_earns_a_quarter() -> None:
    env = made("paper")
    task = env.task(0)
    first = task.tests[0]
    constant = f"def f(x):\n    return {json.loads(first.output)!r}"
    assert sum(vectors(env, task, constant)[0]) == sum(test.output == first.output for test in task.tests)


def test_parts_of_a_program_are_right_on_their_examples() -> None:
    env = made(difficulty=PARTS)
    for index in range(60):
        task: ProgramTask = env.task(index)
        first, second = " ".join(task.program[: task.cut]), " ".join(task.program[task.cut :])
        assert vectors(env, task, first, second) == [[1, 1, 0, 0], [0, 0, 1, 0]]


def test_no_function_is_in_two_splits_under_two_names() -> None:
    functions: dict[str, set[str]] = {split: set() for split in SPLITS}
    lists = [tuple(random.Random(i).choices(range(-9, 10), k=7)) for i in range(40)]
    for split in SPLITS:
        env = made(split=split, difficulty={"steps": [1, 3]})
        for index in range(150):
            program = env.task(index).program
            functions[split].add(repr([run(LISTS, program, one) for one in lists]))
    for one, other in itertools.combinations(SPLITS, 2):
        assert not functions[one] & functions[other]


def test_a_program_of_three_steps_is_no_function_of_two() -> None:
    lists = [tuple(random.Random(i).choices(range(-9, 10), k=7)) for i in range(40)]
    short = {
        repr([run(LISTS, program, one) for one in lists])
        for count in range(3)
        for program in itertools.product(LISTS, repeat=count)
    }
    assert sum(len(one.program) < 3 for one in all_functions(False).values()) == len(short)
    for task in map(made().task, range(60)):
        assert repr([run(LISTS, task.program, one) for one in lists]) not in short


@pytest.mark.parametrize("texts", [False, True], ids=["lists", "texts"])
def test_every_program_is_one_of_all_functions_whose_parent_lacks_the_last_step(texts: bool) -> None:
    steps, functions, source = (TEXTS if texts else LISTS), all_functions(texts), random.Random(1)
    known = list(functions.values())
    for _ in range(200):
        program = source.choices(list(steps), k=source.randint(1, 4))
        found = functions[behaviour(steps, program)]
        assert behaviour(steps, found.program) == behaviour(steps, program)
        assert len(found.program) <= len(program)
        assert known[found.parent].program == found.program[:-1]


def test_distractors_are_another_function_that_the_answer_is_not_judged_by() -> None:
    plain, other = (made(difficulty={"distractors": count}) for count in (0, 4))
    task: ProgramTask = other.task(3)
    assert [line.split()[0] for line in other.prompt(task, 1).splitlines()] == ["f"] * 4 + ["g"] * 4 + ["answers"]
    assert task.others
    assert not plain.task(3).others
    assert vectors(other, task, " ".join(task.program)) == [[1.0] * 4]
    in_python = made("paper", difficulty={"distractors": 2})
    examples = [line for line in in_python.prompt(in_python.task(3), 1).splitlines() if line.startswith("Example")]
    assert [line.split()[2][:2] for line in examples] == ["f("] * 4 + ["g("] * 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("reverse flip", "'flip' is not a step: the steps are reverse, double, negate"),
        ("reverse double sort head even", "a program has at most 4 steps, got 5"),
        ("", "the answer has no words"),
    ],
)
def test_what_is_no_program_is_said(text: str, reason: str) -> None:
    env = made()
    env.reset(seed=0)
    _, reward, _, _, info = env.step(format_answers([text]))
    assert info["status"] == ["unparsable"]
    assert info["reasons"][0].startswith(reason)
    assert not reward.any()


@pytest.mark.parametrize(
    ("difficulty", "message"),
    [
        ({"parts": True, "examples": 3}, "parts=true needs examples=4, got 3"),
        ({"parts": True, "steps": [1, 3]}, r"parts=true needs programs of two steps or more, got steps=\(1, 3\)"),
        ({"steps": [3, 5]}, "a range is two ascending numbers from 1 to 4"),
        ({"steps": 3}, r"difficulty steps=3: must be a list of two, such as \[1, 2\]; the knobs are steps"),
        ({"steps": [3]}, r"difficulty steps=\[3\]: must be a list of two"),
        ({"steps": [1, 2, 3]}, r"difficulty steps=\[1, 2, 3\]: must be a list of two"),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "compact"])
def test_bad_knobs_are_one_sentence(preset: str, difficulty: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(preset, difficulty=difficulty)
