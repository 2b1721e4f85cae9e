"""The values of unfinished expressions, against all expressions of small instances, scored one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from maze_oracle import front_of

from vpo_agent.search.values import completion_front
from vpo_envs import CountdownEnv, CountdownTask
from vpo_envs.pareto import spread_weights
from vpo_envs.text import format_answers

ENV = CountdownEnv()
DEPTH = 2
"""Parentheses that may be open at the same time in the expressions that are listed."""
TASKS = {
    "fractions": CountdownTask(numbers=(1, 3, 12), targets=(4, 9, 15), tolerance=6),
    "integers": CountdownTask(numbers=(2, 2, 5), targets=(1, 7, 12), tolerance=4, integers=True),
    "far": CountdownTask(numbers=(2, 21), targets=(9, 10, 45), tolerance=2),
}


def endings(left: tuple[int, ...], depth: int, wants_operand: bool, pairs: int) -> Iterator[list[str]]:
    """All ways to finish an expression, with at most ``pairs`` more pairs of parentheses."""
    if wants_operand:
        for number in dict.fromkeys(left):
            rest = list(left)
            rest.remove(number)
            for ending in endings(tuple(rest), depth, False, pairs):
                yield [str(number), *ending]
        if pairs and depth < DEPTH:
            for ending in endings(left, depth + 1, True, pairs - 1):
                yield ["(", *ending]
    else:
        if not depth:
            yield []
        else:
            for ending in endings(left, depth - 1, False, pairs):
                yield [")", *ending]
        if left:
            for operator in "+-*/":
                for ending in endings(left, depth, True, pairs):
                    yield [operator, *ending]


@cache
def every_expression(name: str) -> dict[str, tuple[float, ...]]:
    """All expressions of the numbers with up to three pairs of parentheses, and their reward vectors."""
    task = TASKS[name]
    texts = [" ".join(tokens) for tokens in endings(task.numbers, 0, True, 3)]
    rewards = ENV.score_batch([task] * len(texts), [format_answers([text]) for text in texts], 1).rewards[:, 0]
    return dict(zip(texts, map(tuple, rewards.astype(float).tolist()), strict=True))


def beginnings(name: str) -> list[str]:
    """Beginnings, cut anywhere, of expressions with at most one pair of parentheses, which leaves room for others."""
    texts = [text for text in every_expression(name) if text.count("(") < 2]
    chosen = np.random.default_rng(0).choice(texts, 60)
    return sorted({text[:end] for text in chosen for end in range(len(text) + 1)})


@pytest.mark.parametrize("name", TASKS)
def test_a_beginning_has_the_front_of_all_expressions_that_begin_with_it(name: str) -> None:
    known = every_expression(name)
    assert len(known) > 100
    for text in beginnings(name):
        expected = front_of(vector for other, vector in known.items() if f"{other} ".startswith(text))
        found = {tuple(vector) for vector in completion_front(ENV, TASKS[name], text).round(5).tolist()}
        assert found == expected, text


@pytest.mark.parametrize("preset", ["conflict", "compact", "paper"])
def test_along_an_answer_the_value_never_rises_and_never_falls_below_its_score(preset: str) -> None:
    env = CountdownEnv(preset=preset)
    weights = spread_weights(4, 32)
    for index in range(3):
        task = env.task(index)
        points = {tuple(np.round(point.vector, 6)): point.answer for point in env.front(task)}
        assert {tuple(vector) for vector in completion_front(env, task, "").round(6).tolist()} == set(points)
        for vector, answer in points.items():
            values = np.array(
                [(weights @ completion_front(env, task, answer[:end]).T).max(axis=1) for end in range(len(answer) + 1)]
            )
            own = weights @ vector
            assert (np.diff(values, axis=0) <= 1e-9).all()
            assert (values >= own - 1e-6).all()
            # Under the weights where this answer is the best one, no token gives anything away.
            assert np.allclose(values[:, own >= values[0] - 1e-6], own[own >= values[0] - 1e-6], atol=1e-5)


@pytest.mark.parametrize(
    "text",
    ["+", "3 3", "7", "3 + 3", "( 3 ) (", "3 / ( 1 - 1 )", "3 )", "x", "12 3", "1 / 3 * x", "\ud800", "1" * 1001, "²"],
)
def test_a_text_that_no_expression_begins_with_is_worth_nothing(text: str) -> None:
    assert np.array_equal(completion_front(ENV, TASKS["fractions"], text), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("text", "like"), [("  ((", ""), ("03", "3"), ("3×", "3 *"), ("(3+1", "( 3 + 1"), ("3−", "3 -")]
)
def test_other_ways_to_write_the_same_are_worth_the_same(text: str, like: str) -> None:
    fronts = [front_of(map(tuple, completion_front(ENV, TASKS["fractions"], each).tolist())) for each in (text, like)]
    assert fronts[0] == fronts[1]


def test_numbers_are_used_up_and_whole_results_demanded() -> None:
    task = CountdownTask(numbers=(2, 3, 4), targets=(1, 5, 9), tolerance=1, integers=True)
    assert not completion_front(ENV, task, "3 / 2 +").any()
    assert completion_front(ENV, task, "3 + 2 +")[:, 2].max() == 1, "3 + 2 + 4 is the third target"
    assert not completion_front(ENV, task, "3 + 2 + 2").any()
    # In 3 / 2 * 4 the quotient comes first, but nothing divides 3 by anything whole yet.
    assert completion_front(ENV, task, "3 /").any() == any(
        ENV.score_batch([task], [format_answers([text])], 1).rewards.any()
        for text in ("3 / ( 4 - 2 )", "3 / ( 2 - 4 )", "3 / 2", "3 / 4", "3 / 2 * 4", "3 / 4 * 2", "3 / ( 2 + 4 )")
    )
