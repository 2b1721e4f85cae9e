"""Derivations: lines checked by hand and by rank, shortest ones against a search, and what cheating earns."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpo_envs import DerivationEnv, DerivationTask, Objective, Status, UnknownFront, Unparsable
from vpo_envs.pareto import worths
from vpo_envs.tasks.derivation.generator import KNOWN
from vpo_envs.tasks.derivation.solutions import KINDS
from vpo_envs.tasks.derivation.task import Equation, cancel, is_general, reduced, unknowns_of
from vpo_envs.tasks.derivation.text import read_derivation, write_equation
from vpo_envs.text import format_answers

ENV = DerivationEnv()
SMALL = {"coefficients": 3, "solutions": 3}
TWO = DerivationTask(equations=((2, 3, 12), (5, -2, 11)))  # x = 3, y = 2
LINES = "eliminate 1 2: 19 y = 38\nisolate 3: y = 2\nsubstitute 4 1: x = 3"


def vectors(env: DerivationEnv, task: DerivationTask, answers: list[str]) -> list[tuple[float, ...]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return [tuple(vector) for vector in batch.rewards[:, 0].round(6).tolist()]


# --- reading and checking lines ---


@pytest.mark.parametrize(
    ("answer", "right", "solved"),
    [
        (LINES, 3, True),
        ("eliminate 1 2 : - 38 y = - 76 ; eliminate 2 1 : 2 x = 6 ; isolate 4 : x = 3 ; isolate 3 : y = 2", 4, True),
        ("eliminate 1 2: y = 2; eliminate 1 2: x = 3", 2, True),
        (
            "isolate 1: x = 6 - 3/2 y\nsubstitute 3 2: 30 - 15/2 y - 2y = 11\nisolate 4: y = 2\nsubstitute 5 3: x = 3",
            4,
            True,
        ),
        ("isolate 1: x = 6 − 1.5 y", None, False),
        ("eliminate 1 2: 19 y = 38\nsubstitute 3 1: x = 3", 1, False),  # y is not alone in line 3
        ("eliminate 1 2: 19 y = 38\nisolate 3: y = 2\neliminate 4 1: x = 3", 2, False),  # a value is put in
        ("eliminate 1 2: y = 2\neliminate 1 2: x = 4", 1, False),
        ("eliminate 1 2: y = 2", 1, False),
        ("eliminate 1 2: y = 2\neliminate 1 2: 3 = x", 2, False),
        ("eliminate 1 3: y = 2", 0, False),
        ("eliminate 1 1: y = 2", 0, False),
        ("isolate 1: 2 x + 3 y = 12", 0, False),
        ("isolate 1: x = 6 - 3 y", 0, False),
        ("eliminate 1 2: 7 x + y = 23", 0, False),  # it follows, but nothing is gone
        ("eliminate 1 2: z = 1", 0, False),
    ],
)
def test_lines_follow_from_the_lines_and_by_the_method_that_they_name(
    answer: str, right: int | None, solved: bool
) -> None:
    if right is None:
        with pytest.raises(Unparsable):
            read_derivation(answer)
        return
    outcome = ENV.evaluate(TWO, read_derivation(answer))
    assert (outcome.right, outcome.solved) == (right, solved)
    assert any(vectors(ENV, TWO, [answer])[0]) <= solved


@pytest.mark.parametrize(
    ("answer", "vector"),
    [
        ("eliminate 1 2: y = 2; eliminate 1 2: x = 3", (1, 1, 0)),
        ("eliminate 1 2: y = 2; substitute 3 1: x = 3", (1, 0, 0)),
        (LINES, (0, 0, 0)),
        ("isolate 1: x = 6 - 3/2 y; substitute 3 2: y = 2; substitute 4 3: x = 3", (0, 0, 1)),
        ("eliminate 1 2: y = 2; eliminate 1 2: x = 3; " * 2 + "isolate 1: x = 6 - 3/2 y", (0, 0.2, 0)),
    ],
)
def test_scores(answer: str, vector: tuple[float, ...]) -> None:
    assert vectors(ENV, TWO, [answer]) == [pytest.approx(vector, abs=1e-6)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a derivation has 1 to 16 lines, got 0"),
        ("isolate 1: x = 1\n" * 17, "a derivation has 1 to 16 lines, got 17"),
        ("x = 3", "'x = 3' is not a method, line numbers, a colon and an equation"),
        ("guess 1: x = 3", "is not a method"),
        ("eliminate 1: x = 3", "eliminate names 2 of the earlier lines"),
        ("isolate 1 2: x = 3", "isolate names 1 of the earlier lines"),
        ("isolate 1: x + 3", "one equals sign"),
        ("isolate 1: x = 3 = y", "one equals sign"),
        ("isolate 1: x = ", "is not a sum of terms"),
        ("isolate 1: x = 2 3", "is not a sum of terms"),
        ("isolate 1: x = 3 ** 2", "is not a sum of terms"),
        ("isolate 1: x = (3)", "is not a sum of terms"),
        ("isolate 1: x = ٣", "is not a sum of terms"),
        ("isolate 1: x = 1/0", "1/0 divides by zero"),
        ("isolate 1: 3 = 3", "the equation has no unknown"),
        ("isolate 1: x - x = 3", "the equation has no unknown"),
        ("isolate 1: x = " + "9" * 100_000, "a derivation has at most 4,000 characters, got 100,015"),
        ("isolate 1: x = " + "9" * 1000, "is not a sum of terms"),
    ],
)
def test_what_is_not_a_derivation_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(Unparsable) as error:
        read_derivation(text)
    assert reason in str(error.value)


@given(st.text(st.sampled_from("eliminate substitute isolate 0123456789:+-/=xyz;\n") | st.characters(), max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_and_scored_within_bounds(text: str) -> None:
    batch = ENV.score_batch([TWO] * 2, [format_answers([text]), text])
    assert ((batch.rewards >= 0) & (batch.rewards <= 1)).all()
    assert set(batch.status[0].tolist()) <= {Status.OK, Status.UNPARSABLE, Status.MISSING}


def test_every_accepted_line_is_in_the_span_of_the_lines_that_it_names() -> None:
    env, rng = DerivationEnv(difficulty=SMALL), np.random.default_rng(0)
    for index in range(20):
        task = env.task(index)
        for answer in env.demonstrations(task, rng, 8):
            lines = [list(map(Fraction, equation)) for equation in task.equations]
            solution = np.linalg.solve(*np.hsplit(np.array(task.equations, dtype=float), [3])).ravel()
            for step in env.parse(answer):
                parents = [lines[number - 1] for number in step.parents]
                lines.append(list(map(Fraction, step.equation)))
                rank = np.linalg.matrix_rank(np.array(parents, dtype=float))
                assert np.linalg.matrix_rank(np.array([*parents, lines[-1]], dtype=float)) == rank
                assert np.dot(step.equation[:-1], solution) == pytest.approx(step.equation[-1])


# --- the front ---

Line = tuple[Equation, int]


def moves(lines: frozenset[Line], methods: set[str]) -> Iterator[Line]:
    """Every line that follows from some lines by one of the methods, in every form that matters."""
    made: set[tuple[Equation, bool]] = set()
    for (one, alone), (other, _) in itertools.permutations(lines, 2):
        if "substitute" in methods and alone >= 0 and other[alone]:
            made.add((cancel(one, other, alone), False))
        if "eliminate" in methods and min(len(unknowns_of(one)), len(unknowns_of(other))) > 1:
            made |= {(cancel(one, other, v), False) for v in set(unknowns_of(one)) & set(unknowns_of(other))}
    if "isolate" in methods:
        made |= {(one, True) for one, _ in lines}
    for equation, isolates in made:
        left = unknowns_of(equation)
        if len(left) == 1 or "substitute" in methods:  # Otherwise it makes no difference which unknown stands alone.
            yield from ((equation, v) for v in left)
        if len(left) > 1 and not isolates:
            yield equation, -1


def can_solve(task: DerivationTask, methods: set[str], limit: int) -> bool:
    """Whether some derivation of at most ``limit`` lines gives all values, by trying all of them."""
    level = {frozenset((equation, -1) for equation in task.equations)}
    for left in range(limit, 0, -1):
        longer = set()
        for lines in level:
            known = sum(len(unknowns_of(equation)) == 1 for equation, _ in lines)
            for line in moves(lines, methods):
                value = len(unknowns_of(line[0])) == 1
                if line in lines or not any(line[0]) or len(task.equations) - known - value >= left:
                    continue
                if known + value == len(task.equations):
                    return True
                longer.add(lines | {line})
        level = longer
    return False


@pytest.mark.slow
def test_no_derivation_is_shorter_than_those_of_the_front() -> None:
    task = DerivationEnv(difficulty=SMALL).task(0)
    # That six lines do is what scores of 1 for few lines say.
    assert not can_solve(task, {"eliminate", "isolate", "substitute"}, 5)
    for methods, fewest in (({"eliminate"}, 7), ({"isolate", "substitute"}, 7)):
        assert not can_solve(task, methods, fewest - 1)
        assert can_solve(task, methods, fewest)


def test_with_two_unknowns_no_derivation_is_shorter_than_those_of_the_front() -> None:
    assert not can_solve(TWO, {"eliminate", "isolate", "substitute"}, 1)
    assert not can_solve(TWO, {"isolate", "substitute"}, 2)
    assert sorted(point.vector for point in ENV.front(TWO)) == [(0, 0, 1), (1, 1, 0)]


def test_every_instance_needs_a_set_and_a_vector() -> None:
    for preset in ("conflict", "embedded"):
        env = DerivationEnv(preset=preset)
        for index in range(20):
            task = env.task(index)
            points = np.array(vectors(env, task, [point.answer for point in env.front(task)]))
            assert sorted(map(tuple, points)) == [
                (0, 0, 1),
                (0, 1, 0),
                pytest.approx((1, 0, 1 / 3), abs=1e-6),
                pytest.approx((1, 1 / 3, 0), abs=1e-6),
            ]
            of_set, of_vector = worths(points)
            assert of_set >= 1.3
            assert of_vector >= 1.15


class Short(DerivationEnv):
    objectives = (Objective("short", "One over the lines", lambda outcome: 1 / outcome.lines),)


def test_fronts_that_are_not_proven_are_refused() -> None:
    with pytest.raises(UnknownFront, match="scores derivations in its own way"):
        Short().front(TWO)
    special = DerivationTask(equations=((1, 1, 1, 6), (1, 1, 2, 9), (1, 2, 1, 8)))
    assert not is_general(special)  # x and y cancel together, so z takes one line
    assert can_solve(special, {"eliminate"}, 5)
    with pytest.raises(UnknownFront, match="cancels by accident"):
        ENV.front(special)


def test_a_system_with_a_late_accident_is_not_general() -> None:
    # In lines 1 and 6, which takes two steps itself, y and z cancel together.
    task = DerivationTask(equations=((-1, 3, -3, 0), (-3, 2, -3, -5), (2, 2, -1, 6)))
    answer = (
        "eliminate 1 2: 7 y - 6 z = 5; eliminate 1 2: 2 x + y = 5; eliminate 3 5: y - z = 1; "
        "eliminate 1 6: x = 3; eliminate 4 6: z = -2; eliminate 4 6: y = -1"
    )
    assert vectors(ENV, task, [answer]) == [(1, 1, 0)]
    assert not is_general(task)
    with pytest.raises(UnknownFront, match="cancels by accident"):
        ENV.front(task)


def test_six_eliminations_solve_no_generated_system() -> None:
    env = DerivationEnv(difficulty=SMALL, split="test")
    assert not any(can_solve(env.task(index), {"eliminate"}, 6) for index in range(4))


def test_the_embedded_preset_has_one_left_side_and_tells_small_models_the_solution() -> None:
    env = DerivationEnv(preset="embedded", prompt_style="compact")
    tasks = [env.task(index) for index in range(40)]
    assert {frozenset(equation[:-1] for equation in task.equations) for task in tasks} == {frozenset(KNOWN)}
    assert len({tuple(equation[:-1] for equation in task.equations) for task in tasks}) == 6
    for task in tasks:
        *equations, values, _ = env.prompt(task, 3).splitlines()
        solution = list(map(int, values.split()[1:]))
        assert max(map(abs, solution)) <= 2
        for row, line in zip(task.equations, equations, strict=True):
            assert np.dot(row[:-1], solution) == row[-1]
            assert read_derivation(f"isolate {line}")[0].equation == reduced(row)
        # Its demonstrations use the equations in their own order, so that each kind is one text.
        texts = {tuple(sorted(env.demonstrations(task, np.random.default_rng(seed), len(KINDS)))) for seed in range(3)}
        assert len(texts) == 1


# --- instances ---


def test_the_number_of_a_line_may_be_written_as_what_each_unknown_contributes() -> None:
    values = [Fraction(1), Fraction(0), Fraction(-2)]
    for equation, alone, text in [
        ((0, 3, -2, 4), -1, "3 y - 2 z = +0 +4"),
        ((1, 2, 1, -1), 0, "x = - 2 y - z +1 +0 -2"),
        ((0, 0, 1, -2), 2, "z = -2"),
        ((0, 3, -2, 4), 1, "y = 2/3 z +0 +4/3"),
    ]:
        assert write_equation(equation, alone, values) == text
        assert read_derivation(f"isolate 1: {text}")[0].equation == equation


@pytest.mark.parametrize("preset", ["conflict", "easy", "embedded"])
def test_demonstrations_are_right_and_of_each_kind_evenly(preset: str) -> None:
    env, rng = DerivationEnv(preset=preset, prompt_style="compact"), np.random.default_rng(0)
    firsts: Counter[tuple[float, ...]] = Counter()
    for index in range(60):
        task = env.task(index)
        answers = env.demonstrations(task, rng, len(KINDS))
        scored = vectors(env, task, answers)
        assert {tuple(np.float32(point.vector).round(6).tolist()) for point in env.front(task)} <= set(scored)
        firsts[scored[0]] += 1
        assert all(re.fullmatch(r"\w+|[=:;]|[+-]?(\d+(/\d+)?)?[xyz]?", word) for word in answers[0].split())
    assert min(firsts.values()) >= 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "paper"}, "unknown derivation preset 'paper': choose one of conflict, easy, embedded"),
        ({"prompt_style": "short"}, "unknown prompt_style 'short'"),
        ({"difficulty": {"unknowns": 4}}, "unknowns=4"),
        ({"difficulty": {"size": 4}}, "coefficients"),
        ({"difficulty": {"left_sides": [[[1, 2], [3, 1]]]}}, "left_sides need 3 rows of as many coefficients"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DerivationEnv(**arguments)


def test_knobs_without_systems_are_named() -> None:
    with pytest.raises(ValueError, match="no system found in 10000 tries"):
        DerivationEnv(difficulty={"coefficients": 1}).task(0)


@pytest.mark.parametrize(
    ("equations", "message"),
    [
        ([[1, 2]], "a system has 2 or 3 equations"),
        ([[1, 2, 3], [1, 2]], "a system has 2 or 3 equations"),
        ([[1, 2, 3], [2, 4, 6]], "exactly one solution"),
        ([[1, 2, 300], [2, 1, 6]], "at most 100"),
    ],
)
def test_bad_tasks_are_named(equations: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ENV.reset(options={"task": {"equations": equations}})


# --- what cheating earns ---


def test_answers_that_do_not_derive_the_values_earn_nothing() -> None:
    env = DerivationEnv(split="validation")
    for index in range(50):
        task = env.task(index)
        good = env.front(task)[2].answer.splitlines()
        solution = np.linalg.solve(*np.hsplit(np.array(task.equations, dtype=float), [3])).ravel().round().astype(int)
        stated = [f"{name} = {value}" for name, value in zip("xyz", solution, strict=True)]
        cheats = [
            env.prompt(task, 1),
            "\n".join(stated),
            "\n".join(f"eliminate 1 2 : {text}" for text in stated),
            "\n".join(f"isolate {i} : {text}" for i, text in enumerate(stated, start=1)),
            "\n".join(good[:-1]),
            "\n".join([*good[:-1], stated[0].replace("=", "= 1 +")]),
            "\n".join(good[3:]),
            env.front(env.task(index + 1))[0].answer,
        ]
        assert not np.any(vectors(env, task, cheats))
