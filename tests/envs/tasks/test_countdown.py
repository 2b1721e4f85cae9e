"""Countdown: expressions against another evaluator, fronts against all expressions, and what cheating earns."""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpo_envs import CountdownEnv, CountdownTask, Objective, Status, UnknownFront, Unparsable
from vpo_envs.tasks.countdown import generate
from vpo_envs.tasks.countdown.task import MAX_CHARS, read_expression
from vpo_envs.text import format_answers

TASK = CountdownTask(numbers=(2, 3, 7, 8), targets=(20, 28, 37))
PRESETS = pytest.mark.parametrize("preset", ["conflict", "paper", "compact"])


def vectors(env: CountdownEnv, task: CountdownTask, answers: list[str]) -> list[tuple[float, ...]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return [tuple(vector) for vector in batch.rewards[:, 0].round(6).tolist()]


# --- reading expressions ---


def expressions(largest: int, leaves: int) -> st.SearchStrategy[str]:
    return st.recursive(
        st.integers(0, largest).map(str),
        lambda inner: (
            st.tuples(inner, st.sampled_from([" + ", "-", " * ", "/"]), inner).map("".join)
            | inner.map(lambda text: f"( {text})")
        ),
        max_leaves=leaves,
    )


EXPRESSIONS = expressions(30, 12)


def exactly(node: ast.expr, steps: list[Fraction]) -> Fraction:
    """The value of a Python expression in fractions; ``steps`` receives every intermediate result."""
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return Fraction(node.value)
    assert isinstance(node, ast.BinOp)
    left, right = exactly(node.left, steps), exactly(node.right, steps)
    match node.op:
        case ast.Add():
            value = left + right
        case ast.Sub():
            value = left - right
        case ast.Mult():
            value = left * right
        case _:
            value = left / right
    steps.append(value)
    return value


@given(EXPRESSIONS)
@settings(max_examples=200, deadline=None)
def test_values_are_those_of_pythons_own_grammar_in_fractions(text: str) -> None:
    steps: list[Fraction] = []
    try:
        value = exactly(ast.parse(text, mode="eval").body, steps)
    except ZeroDivisionError:
        with pytest.raises(Unparsable, match="nothing can be divided by it"):
            read_expression(text)
        return
    read = read_expression(text)
    assert (read.numerator, read.denominator) == (value.numerator, value.denominator)
    assert read.whole == all(step.denominator == 1 for step in steps)
    assert Counter(read.numbers) == Counter(map(int, text.translate(str.maketrans("+-*/()", "      ")).split()))
    assert read_expression(read.key)[:-1] == read[:-1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2+3", " ( 3 )+2", True),
        ("2×3÷8−7", "3 * 2 / 8 - 7", True),
        ("(2 + 3) * (7 + 8)", "(8 + 7) * (3 + 2)", True),
        ("2 - 3", "3 - 2", False),
        ("8 / 2", "2 / 8", False),
        ("8 - (3 - 2)", "8 - 3 - 2", False),
        ("02 + 3", "2 + 3", True),
        ("2 + 3 + 7", "7 + 3 + 2", True),
        ("2 + (3 + 7)", "7 + 2 + 3", True),
        ("2 * 3 * 7", "3 * (7 * 2)", True),
        ("8 - 2 - 3", "8 - 3 - 2", True),
        ("8 - (2 + 3)", "8 - 3 - 2", True),
        ("8 - (2 - 3)", "3 + 8 - 2", True),
        ("8 / 2 / 3", "8 / (3 * 2)", True),
        ("8 / (2 / 3)", "3 * 8 / 2", True),
        ("7 / 3 * 2", "2 * 7 / 3", True),
        ("8 * (2 + 3) - 7", "8 * 2 + 3 - 7", False),
        ("(8 - 2) * 3", "8 - 2 * 3", False),
        ("2 * 3", "2 + 3", False),
    ],
)
def test_exchanged_operands_of_a_sum_or_product_are_the_same_answer(one: str, other: str, same: bool) -> None:
    assert (read_expression(one).key == read_expression(other).key) is same
    status = CountdownEnv().score_batch([TASK], [format_answers([one, other])], 2).status
    assert status.tolist() == [[Status.OK, Status.DUPLICATE if same else Status.OK]]


def test_where_fractions_are_forbidden_an_order_that_avoids_them_is_another_answer() -> None:
    task = TASK.model_copy(update={"integers": True})
    batch = CountdownEnv().score_batch([task], [format_answers(["3 / 2 * 8", "3 * 8 / 2", "8 * 3 / 2"])], 3)
    assert batch.status.tolist() == [[Status.OK, Status.OK, Status.DUPLICATE]]


def shuffled(node: ast.expr, source: random.Random) -> str:
    """The same expression with the operands of every sum and product in another order."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.BinOp)
    adds = isinstance(node.op, ast.Add | ast.Sub)
    ahead, behind = terms(node, adds)
    source.shuffle(ahead)
    source.shuffle(behind)
    first, *rest = [shuffled(part, source) for part in ahead]
    signs = [("+" if adds else "*", text) for text in rest]
    signs += [("-" if adds else "/", shuffled(part, source)) for part in behind]
    source.shuffle(signs)
    return f"({first}{''.join(sign + text for sign, text in signs)})"


def terms(node: ast.expr, adds: bool) -> tuple[list[ast.expr], list[ast.expr]]:
    """The parts that are added and subtracted, or multiplied and divided by, down to parts of another kind."""
    kinds = (ast.Add, ast.Sub) if adds else (ast.Mult, ast.Div)
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, kinds)):
        return [node], []
    ahead, behind = terms(node.left, adds)
    more, less = terms(node.right, adds)
    if isinstance(node.op, ast.Sub | ast.Div):
        more, less = less, more
    return ahead + more, behind + less


@given(EXPRESSIONS, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_every_order_of_the_operands_is_one_expression(text: str, seed: int) -> None:
    with suppress(Unparsable):
        assert read_expression(shuffled(ast.parse(text, mode="eval").body, random.Random(seed))).key == (
            read_expression(text).key
        )


@given(expressions(2, 4), expressions(2, 4))
@settings(max_examples=300, deadline=None)
def test_expressions_that_are_one_have_one_value_whatever_the_numbers_are(first: str, second: str) -> None:
    with suppress(Unparsable, ZeroDivisionError):
        if read_expression(first).key == read_expression(second).key:
            # Numbers so large that other expressions agree on them only by chance.
            numbers = {str(n): f"Fraction({source})" for n, source in enumerate((7919, 104_729, 1_299_709))}
            values = [
                eval(re.sub("[0-9]+", lambda number: numbers[number[0]], text), {"Fraction": Fraction})
                for text in (first, second)
            ]
            assert values[0] == values[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no expression"),
        (" \n", "no expression"),
        ("2 +", "a number is missing at the end"),
        ("(", "a number is missing at the end"),
        ("(2 + 3", "a ) is missing at the end"),
        ("2 + 3)", "a ( is missing for )"),
        ("()", "a number is missing before )"),
        ("2 3", "an operator is missing before 3"),
        ("2 (3)", "an operator is missing before ("),
        ("-2", "a number is missing before -"),
        ("2 ** 3", "a number is missing before *"),
        ("2.5", "'.' is not a digit"),
        ("2..", "'.' is not a digit"),
        ("2 + 3 = 5", "'=' is not a digit"),
        ("٣ + 2", "'٣' is not a digit"),
        ("2²", "'²' is not a digit"),
        ("x", "'x' is not a digit"),
        ("__import__('os')", "'_' is not a digit"),
        ("8 / (3 - 3)", "(3-3) is 0, and nothing can be divided by it"),
        ("8 / 0", "0 is 0, and nothing can be divided by it"),
        ("1" * 100_000, "an expression has at most 1,000 characters, got 100,000"),
        ("(" * 10_000 + "1" + ")" * 10_000, "an expression has at most 1,000 characters, got 20,001"),
    ],
)
def test_what_is_not_an_expression_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(Unparsable) as error:
        read_expression(text)
    assert reason in str(error.value)
    assert CountdownEnv().score_batch([TASK], [format_answers([text])]).status.tolist() == [[Status.UNPARSABLE]]


def test_a_full_stop_after_an_expression_is_ignored() -> None:
    assert read_expression("9 * 9 - 1. \n") == read_expression("9 * 9 - 1")
    with pytest.raises(Unparsable, match="is not a digit"):
        read_expression("9 * 9. - 1")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 499 + "8" + ")" * 499,
        "8-(" * 249 + "8" + ")" * 249,
        "*".join(["9" * 199] * 5),
        "/".join(["9"] * 500),
        "9" * MAX_CHARS,
    ],
)
def test_the_longest_and_deepest_expressions_are_read(text: str) -> None:
    batch = CountdownEnv().score_batch([TASK], [format_answers([text])])
    assert batch.status.tolist() == [[Status.OK]]


# --- scores ---


@pytest.mark.parametrize(
    ("answer", "vector"),
    [
        ("3 * 7", (0.9, 0.3, 0, 2 / 3)),
        ("8 / 2 * 7", (0.2, 1, 0.1, 1 / 3)),
        ("(8 - 3) * 7 + 2", (0, 0.1, 1, 0)),
        ("8 * 7 / 2 - 3", (0.5, 0.7, 0, 0)),
        ("7 / 2 * 8", (0.2, 1, 0.1, 1 / 3)),
        ("8", (0, 0, 0, 0)),
        ("7 + 3", (0, 0, 0, 0)),
        ("7 * 7", (0, 0, 0, 0)),
        ("4 * 7", (0, 0, 0, 0)),
        ("20", (0, 0, 0, 0)),
        ("8 * 8 - 8 * 8 + 2 * 7", (0, 0, 0, 0)),
        ("2 * 7 + 3 / 8", (0.4375, 0, 0, 0)),
    ],
)
def test_scores(answer: str, vector: tuple[float, ...]) -> None:
    assert vectors(CountdownEnv(), TASK, [answer]) == [pytest.approx(vector, abs=1e-6)]


def test_with_integers_a_fraction_on_the_way_earns_nothing() -> None:
    task = TASK.model_copy(update={"integers": True})
    assert vectors(CountdownEnv(), task, ["7 / 2 * 8", "8 / 2 * 7"]) == [
        (0, 0, 0, 0),
        pytest.approx((0.2, 1, 0.1, 1 / 3), abs=1e-6),
    ]


def test_the_outcome_says_what_was_wrong() -> None:
    env = CountdownEnv()
    env.reset(options={"task": TASK})
    outcome = env.step(format_answers(["7 * 7 / 3"]))[-1]["outcomes"][0]
    assert outcome.pop("hits") == pytest.approx((19 / 30, 0, 0))  # 16 1/3 is 3 2/3 away from 20
    assert outcome == {"given": False, "whole": True, "numerator": 49, "denominator": 3, "used": 3, "total": 4}


# --- fronts ---


def everything(task: CountdownTask) -> set[tuple[Fraction, int]]:
    """Every value that some expression has, with the numbers it uses: join any two parts until one is left."""
    found: set[tuple[Fraction, int]] = set()
    seen: set[tuple[tuple[Fraction, int], ...]] = set()

    def visit(parts: tuple[tuple[Fraction, int], ...]) -> None:
        if parts in seen:
            return
        seen.add(parts)
        found.update(parts)
        for i, j in itertools.permutations(range(len(parts)), 2):
            (a, m), (b, n) = parts[i], parts[j]
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            for value in [a + b, a - b, a * b, *([a / b] if b else [])]:
                if value.denominator == 1 or not task.integers:
                    visit(tuple(sorted([*rest, (value, m + n)])))

    visit(tuple(sorted((Fraction(number), 1) for number in task.numbers)))
    return found


def best(points: set[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """Return the points that no other point matches or beats in every objective."""
    array = np.array(sorted(points))
    beaten = [((array >= point).all(axis=1) & (array > point).any(axis=1)).any() for point in array]
    return {tuple(point) for point, worse in zip(array.tolist(), beaten, strict=True) if not worse}


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize(
    ("count", "targets", "tolerance"), [(2, (1, 20), 6), (3, (1, 40), 10), (4, (5, 60), 10), (4, (5, 60), 3)]
)
def test_the_front_is_that_of_all_expressions(
    count: int, targets: tuple[int, int], tolerance: int, integers: bool
) -> None:
    source = random.Random(count)
    env = CountdownEnv()
    for _ in range(6 if count < 4 else 3):
        task = CountdownTask(
            numbers=tuple(source.choices(range(1, 11), k=count)),
            targets=tuple(source.sample(range(*targets), 3)),
            tolerance=tolerance,
            integers=integers,
        )
        reached = set()
        for value, used in everything(task):
            hits = [max(Fraction(0), 1 - abs(value - target) / Fraction(tolerance)) for target in task.targets]
            if any(hits):
                reached.add(tuple(round(float(x), 6) for x in (*hits, 1 - Fraction(used - 1, count - 1))))
        front = env.front(task)
        assert {tuple(round(x, 6) for x in point.vector) for point in front} == (best(reached) if reached else set())
        assert vectors(env, task, [point.answer for point in front]) == [
            pytest.approx(point.vector, abs=1e-6) for point in front
        ]


@pytest.mark.slow
def test_the_front_of_five_numbers_is_that_of_all_expressions() -> None:
    env = CountdownEnv()
    task = CountdownTask(numbers=(2, 3, 5, 7, 11), targets=(60, 68, 77), integers=True)
    reached = set()
    for value, used in everything(task):
        hits = [max(0.0, 1 - abs(float(value) - target) / 10) for target in task.targets]
        if any(hits):
            reached.add(tuple(round(x, 6) for x in (*hits, 1 - (used - 1) / 4)))
    assert {tuple(round(x, 6) for x in point.vector) for point in env.front(task)} == best(reached)


def test_the_largest_numbers_do_not_overflow() -> None:
    task = CountdownTask(numbers=(95, 96, 97, 98, 99, 100), targets=(99_990, 99_995, 100_000), tolerance=3)
    env = CountdownEnv()
    for point in env.front(task):
        assert vectors(env, task, [point.answer]) == [pytest.approx(point.vector, abs=1e-6)]


class Close(CountdownEnv):
    objectives = (
        Objective("close", "Squared closeness to the nearest target", lambda outcome: max(outcome.hits) ** 2),
        Objective("short", "At most half of the numbers", lambda outcome: float(2 * outcome.used <= outcome.total)),
    )


class Wasteful(CountdownEnv):
    objectives = (Objective("long", "Share of the numbers used", lambda outcome: outcome.used / outcome.total),)


def test_fronts_serve_monotone_objectives_and_refuse_others() -> None:
    assert sorted(point.vector for point in Close().front(TASK)) == [(pytest.approx(0.81), 1.0), (1.0, 0.0)]
    with pytest.raises(UnknownFront, match="'long'"):
        Wasteful().front(TASK)


# --- tasks ---


@PRESETS
def test_demonstrations_give_the_best_of_each_kind_evenly(preset: str) -> None:
    env, rng = CountdownEnv(preset=preset), np.random.default_rng(0)
    served: Counter[str] = Counter()
    for index in range(40):
        task = env.task(index)
        front = np.array([point.vector for point in env.front(task)])
        given = np.array(vectors(env, task, env.demonstrations(task, rng, len(front))))
        # All of the front, and the best for each objective and for the mean before the others.
        np.testing.assert_allclose(given[np.lexsort(given.T)], front[np.lexsort(front.round(6).T)], atol=1e-5)
        first = given[: len(front.T) + 1]
        np.testing.assert_allclose(first.max(axis=0), front.max(axis=0), atol=1e-5)
        assert first.mean(axis=1).max() == pytest.approx(front.mean(axis=1).max(), abs=1e-5)
        for i in range(3):
            served[f"hit_{i + 1}"] += bool(given[0][i] == 1)
    assert min(served.values()) >= 0.05 * served.total()


def test_the_compact_style_is_a_word_for_each_number_and_sign() -> None:
    env = CountdownEnv(preset="compact")
    task = env.task(0)
    assert env.prompt(task, 3) == "\n".join(
        [
            "numbers " + " ".join(map(str, task.numbers)),
            "targets " + " ".join(map(str, task.targets)),
            "within 1",
            "answers 3",
        ]
    )
    for answer in env.demonstrations(task, np.random.default_rng(0), 8):
        assert all(word.isdigit() or word in {"+", "-", "*", "/", "(", ")"} for word in answer.split())


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"count": 7}, "count=7"),
        ({"numbers": [0, 5]}, "two ascending numbers from 1 to 100"),
        ({"gap": [0, 5]}, "gap must be at least 1"),
        ({"count": 3, "needs": 4}, "needs must be at most count=3, got 4"),
        ({"needs": 3, "most": 2}, "most must be at least needs=3, got 2"),
        ({"tolerence": 5}, "tolerance"),
    ],
)
def test_bad_knobs_are_named(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountdownEnv(difficulty=knobs)


def test_knobs_without_tasks_are_named() -> None:
    impossible = CountdownEnv(difficulty={"count": 2, "numbers": [1, 2], "targets": [50, 60]})
    with pytest.raises(ValueError, match="no numbers and targets found in 10000 tries"):
        impossible.task(0)


def test_gains_that_no_task_has_end_after_a_number_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[CountdownTask] = []
    monkeypatch.setattr(generate, "MAX_CERTIFICATES", 20)
    monkeypatch.setattr(generate, "_gains", lambda task: (tried.append(task), (1.4, 1.3))[1])
    with pytest.raises(ValueError, match=r"none of 20 tasks is certified for .*lower gains"):
        CountdownEnv(difficulty={"min_set_gain": 50}).task(0)
    assert len(tried) == 20


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"numbers": [2], "targets": [1, 2, 3]}, "numbers: Tuple should have at least 2"),
        ({"numbers": [2, 101], "targets": [1, 2, 3]}, "the given numbers must lie from 1 to 100"),
        ({"numbers": [2, 3], "targets": [1, 2]}, "targets: Tuple should have at least 3"),
        ({"numbers": [2, 3], "targets": [1, 2, 2]}, "targets must be different numbers"),
        ({"numbers": [2, 3], "targets": [1, 2, 3], "tolerance": 0}, "tolerance"),
    ],
)
def test_bad_tasks_are_named(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountdownEnv().reset(options={"task": task})
