"""Word problems in steps: numbers and equations by hand, fronts by trying answers, rows of GSM8K, and cheating."""

from __future__ import annotations

import itertools
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paths import REALDATA

import vpo_envs  # noqa: F401 - registers the environments
from envs_data.readers import BadRow
from vpo_envs.core import Status, UnknownFront, Unparsable
from vpo_envs.tasks.gsm8k.env import GSM8KEnv
from vpo_envs.tasks.gsm8k.equations import read_equation, read_number, readings
from vpo_envs.tasks.gsm8k.generate import read_gsm8k_row
from vpo_envs.tasks.gsm8k.task import GSM8KTask, write_answer
from vpo_envs.text import format_answers

ROWS = REALDATA / "gsm8k" / "train_200.jsonl"
needs_rows = pytest.mark.skipif(not ROWS.exists(), reason=f"{ROWS.name} is not here: set VPO_REALDATA to its folder")
TASK = GSM8KTask(question="Of 40 items 4 are wrong.", calculations=("40-4=36", "36/2=18", "18+6=24"), final="24")
"""Intermediate values 36 and 18, and at most five equations."""


def made(**options: Any) -> GSM8KEnv:
    env = gym.make("vpo/GSM8K-v0", **options).unwrapped
    assert isinstance(env, GSM8KEnv)
    return env


def vectors(env: GSM8KEnv, task: GSM8KTask, answers: list[str]) -> list[tuple[float, ...]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return [tuple(vector) for vector in batch.rewards[:, 0].tolist()]


# --- numbers and equations ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("24", "24"),
        (" 27,200 ", "27200"),
        ("$1,150.00", "1150"),
        ("-$3.5", "-7/2"),
        ("−4", "-4"),
        (".40", "2/5"),
        ("20%", "1/5"),
        ("10/3", "10/3"),
        ("-1/2", "-1/2"),
        ("78.", "78"),
        ("+5", "5"),
        ("20 %", "1/5"),
        ("20 percent", "1/5"),
        ("60 miles", "60"),
        ("60 miles per hour.", "60"),
        ("12.5 m²", "25/2"),
        ("1,450,000 people", "1450000"),
        ("**60**", "60"),
        ("24 dollars", "24"),
        ("60\u20ac", "60"),
        ("¥1\u202f000", "1000"),
        ("10 000", "10000"),
        ("1'000'000", "1000000"),
        ("1,50,000", "150000"),
        ("\uff16\uff10\uff05", "3/5"),
    ],
)
def test_numbers_are_read_exactly(text: str, value: str) -> None:
    assert read_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1,15", "1/0", "1e3", "nan", "٣", "2²", "9" * 100_000, "1 2", "--3", ".", "1 00", "1,0000", "10 00"),
        *(
            "5 million",
            "3 dozen eggs",
            "5k",
            "3 hours 20 minutes",
            "60 or 70",
            "60%%",
            "5 = 5",
            "60 " + "a" * 40,
            "5x3",
        ),
    ],
)
def test_what_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(Unparsable):
        read_number(text)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("40-4=36", True),
        ("$1,150 × .40 = $460.00", True),
        ("3/4*40000 = 30,000", True),
        ("(2 + 3) * -4 = -20", True),
        ("-5 - -5 = 0", True),
        ("200 * 15% = 30", True),
        ("10 / 3 = 10/3", True),
        ("0.1 + 0.2 = 0.3", True),
        ("+8 + 2 = 10", True),
        ("3 * +6 = 18", True),
        ("3 - + 6 = -3", True),
        ("560//10 = 56", True),
        ("7 // 2 = 3", False),
        ("3 x 4 = 12", True),
        ("3x4=12 apples", True),
        ("24 / 40 = 60%", True),
        ("0.6 * 100 = 60%", True),
        ("24 / 40 = 6%", False),
        ("50 * 20 % = 10", True),
        ("1 000 + 200 = 1,200", True),
        ("+8 = 8", False),
        ("10 / 3 = 3.33", False),
        ("40 - 4 = 35", False),
        ("14 = 14", False),
        ("(14) = 14", False),
    ],
)
def test_equations_are_checked_exactly(text: str, right: bool) -> None:
    assert read_equation(text).right is right


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "2 + 3 = 5 = 5",
        "2 + = 5",
        "2 + x = 5",
        "2 % 3 = 2",
        "2 - - 3 - = 5",
        "- (2) = 5",
        "8 / (3 - 3) = 5",
        "__import__('os') = 5",
        "2 ** 3 = 8",
        "1" * 100_000 + " + 1 = 2",
        "(" * 10_000 + "1" + ")" * 10_000 + " + 1 = 2",
    ],
)
def test_what_is_not_an_equation_makes_no_equation(text: str) -> None:
    with pytest.raises(Unparsable):
        read_equation(text)
    status = made().score_batch([TASK], [format_answers([f"{text}\n#### 24"])]).status.tolist()
    assert status == [[Status.OK if "=" in text and len(text) < 4000 else Status.UNPARSABLE]]


@pytest.mark.parametrize("line", ["2^2 = 4", "5 * 6 = 30 = 30", "3 rows * 3 = 9", "= 5", "4 ="])
def test_an_equation_that_cannot_be_read_is_a_wrong_equation(line: str) -> None:
    right = "40 - 4 = 36\n36 / 2 = 18\n"
    answers = [f"{line}\n{right}18 + 6 = 24\n#### 24", f"2 * 2 = 5\n{right}18 + 6 = 24\n#### 24"]
    assert vectors(made(steps=2), TASK, answers) == [pytest.approx((1, 1, 1, 0.2), abs=1e-6)] * 2
    # It is counted, and uses nothing.
    assert vectors(made(steps=2), TASK, [f"40 - 4 = 36\n36 ^ 1 = {line}\n#### 24"]) == [
        pytest.approx((0, 0, 1, 0.6), abs=1e-6)
    ]


# --- scores ---


@pytest.mark.parametrize(
    ("answer", "vector"),
    [
        ("40 - 4 = 36\n36 / 2 = 18\n18 + 6 = 24\n#### 24", (1, 1, 1, 0.4)),
        ("40 - 4 = 36; 36 / 2 + 6 = 24; #### 24.0", (1, 0, 1, 0.6)),
        ("#### 24", (0, 0, 1, 1)),
        # The wrong final answer still rests on the first step.
        ("40 - 4 = 36\n36 / 3 = 12\n#### 12", (1, 0, 0, 0)),
        # So do both steps where only the last equation is wrong, whatever the final answer.
        ("40 - 4 = 36\n36 / 2 = 18\n18 + 6 = 25\n#### 25", (1, 1, 0, 0)),
        ("40 - 4 = 36\n36 / 2 = 18\n18 + 6 = 25\n#### 24", (1, 1, 1, 0.4)),
        ("40 - 4 = 36\n36 / 2 = 19\n18 + 6 = 24\n#### 24", (1, 0, 1, 0.4)),
        # Not used by what follows, wrong, or no calculation.
        ("40 - 4 = 36\n#### 24", (0, 0, 1, 0.8)),
        ("40 - 4 = 36\n20 + 4 = 24\n#### 24", (0, 0, 1, 0.6)),
        ("40 - 5 = 36\n36 - 12 = 24\n#### 24", (0, 0, 1, 0.6)),
        ("36 = 36\n36 - 12 = 24\n#### 24", (0, 0, 1, 0.6)),
        # Two of five results are of the solution: too few for the steps.
        ("1 + 0 = 1\n2 + 0 = 2\n3 + 0 = 3\n36 + 0 = 36\n36 - 3 - 2 - 1 - 6 = 24\n#### 24", (0, 0, 1, 0)),
        ("1 + 0 = 1\n2 + 0 = 2\n36 + 0 = 36\n36 - 2 - 1 - 9 = 24\n#### 24", (1, 0, 1, 0.2)),
        ("#### 23", (0, 0, 0, 0)),
        # Six equations.
        ("40 - 4 = 36\n36 / 2 = 18\n" + "1 + 1 = 2\n" * 3 + "18 + 6 = 24\n#### 24", (0, 0, 0, 0)),
    ],
)
def test_scores(answer: str, vector: tuple[float, ...]) -> None:
    assert vectors(made(steps=2), TASK, [answer]) == [pytest.approx(vector, abs=1e-6)]


PERCENT = GSM8KTask(question="24 of 40 walk. How many percent?", calculations=("24/40=0.6", "0.6*100=60"), final="60")


@pytest.mark.parametrize(
    ("final", "right"),
    [
        *(
            ("60", 1),
            ("60%", 1),
            ("60 %", 1),
            ("60.0", 1),
            ("60.0%", 1),
            ("60 percent", 1),
            ("$60", 1),
            ("60 pupils", 1),
        ),
        *(("0.6", 0), ("6%", 0), ("0.6%", 0), ("61%", 0), ("-60%", 0)),
    ],
)
def test_a_percentage_may_have_its_sign(final: str, right: int) -> None:
    env = made(steps=1)
    assert vectors(env, PERCENT, [f"#### {final}"]) == [(0, right, right)]
    # The row may state the sign as well.
    signed = PERCENT.model_copy(update={"final": "60%"})
    assert vectors(env, signed, [f"#### {final}"]) == [(0, right or final == "0.6", right or final == "0.6")]


@pytest.mark.parametrize("last", ["0.6 * 100 = 60\n#### 60%", "0.6 * 100 = 60%\n#### 60", "0.6 * 100 = 60 %\n#### 60%"])
def test_equations_lead_to_a_percentage_with_its_sign(last: str) -> None:
    assert vectors(made(steps=1), PERCENT, [f"24 / 40 = 0.6\n{last}"]) == [(1, 1, 0.5)]
    assert vectors(made(steps=1), PERCENT, ["24 / 40 = 60%\n#### 60%"]) == [(1, 1, 0.75)]


def test_the_same_final_answer_with_and_without_its_sign_is_a_duplicate() -> None:
    answers = ["24 / 40 = 0.6\n#### 60", "24/40 = .60\n#### 60%", "24/40 = 60%\n#### 60 %"]
    status = made(num_answers=3).score_batch([PERCENT], [format_answers(answers)], 3).status
    assert status.tolist() == [[Status.OK, Status.DUPLICATE, Status.DUPLICATE]]


@given(
    st.fractions(-(10**6), 10**6, max_denominator=8),
    st.sampled_from(["{}", "{}%", "{} %", "${}", "{} kg", "+{}", "{}."]),
)
def test_a_number_is_its_own_reading_in_every_form(number: Fraction, form: str) -> None:
    text = form.format(number)
    assume(not (form[0] == "+" and number < 0) and not (form.endswith((".", "%")) and number.denominator > 1))
    assert number in readings(text)
    assert {reading for reading in readings(text)} <= {number, number / 100}
    if number.denominator == 1:
        assert readings(form.format(f"{number.numerator:,}")) == readings(text)


def test_steps_that_a_task_lacks_are_inactive_and_those_beyond_share_objectives() -> None:
    env = made(steps=4)
    assert env.active(TASK).tolist() == [True, True, False, False, True, True]
    calculations = [f"{n}+1={n + 1}" for n in range(10, 16)]
    task = GSM8KTask(question="How many?", calculations=tuple(calculations), final="16")
    assert len(task.steps) == 5
    env = made(steps=2)
    assert env.active(task).all()
    # The values are 11 to 15; the first objective stands for two of them, the second for three.
    assert vectors(env, task, [write_answer(["10 + 1 = 11", "11 + 3 = 14", "14 + 2 = 16"], "16")]) == [
        pytest.approx((1 / 2, 1 / 3, 1, 5 / 8), abs=1e-6)
    ]


def test_answers_with_the_same_equations_are_duplicates() -> None:
    answers = ["40 - 4 = 36\n36 - 12 = 24\n#### 24", "40-4=$36.00 ; 36-12=24 ; #### $24", "36 - 12 = 24\n#### 24"]
    status = made(num_answers=3).score_batch([TASK], [format_answers(answers)], 3).status
    assert status.tolist() == [[Status.OK, Status.DUPLICATE, Status.OK]]


# --- fronts ---


def test_the_front_is_that_of_all_answers_of_a_few_equations() -> None:
    task = GSM8KTask(
        question="5 boxes of 3, less 2, doubled.", calculations=("5*3=15", "15-2=13", "13*2=26"), final="26"
    )
    env = made(steps=2)
    # Every order of up to four true equations between the numbers that can matter.
    values = [2, 3, 5, 13, 15, 26]
    lines = [
        f"{a} {sign} {b} = {result}"
        for a, b in itertools.product(values, repeat=2)
        for sign, result in (("+", a + b), ("-", a - b), ("*", a * b))
        if result in (13, 15, 26)
    ]
    lines += ["5 * 3 - 2 = 13", "15 * 2 - 4 = 26", "(5 * 3 - 2) * 2 = 26"]
    answers = [write_answer(some, "26") for count in range(4) for some in itertools.permutations(lines, count)]
    reached = set(vectors(env, task, answers))
    best = {p for p in reached if not any(p != q and all(b >= a for a, b in zip(p, q, strict=True)) for q in reached)}
    front = env.front(task)
    assert {tuple(np.float32(point.vector).tolist()) for point in front} == best
    assert vectors(env, task, [point.answer for point in front]) == [pytest.approx(point.vector) for point in front]


def test_the_front_is_unknown_where_the_solution_has_gaps() -> None:
    task = GSM8KTask(question="How many?", calculations=("40-4=36", "12*2=24"), final="24")
    with pytest.raises(UnknownFront, match="do not lead from each value to the final answer"):
        made().front(task)
    assert made().demonstrations(task, np.random.default_rng(0), 1) == ["40-4=36\n12*2=24\n#### 24"]


# --- tasks and rows ---


def test_generated_solutions_are_right_and_lead_to_the_answer() -> None:
    env = made(steps=8)
    for index in range(50):
        task = env.task(index)
        count = len(task.steps)
        assert len(env.front(task)) == 2**count
        full = vectors(env, task, [write_answer(task.calculations, task.final)])[0]
        assert full == pytest.approx((*[1] * count, *[0] * (8 - count), 1, 1 - (count + 1) / task.limit))


def test_a_story_does_not_tell_its_shape_by_its_numbers() -> None:
    env = made()
    tasks = [env.task(index) for index in range(60)]
    assert {task.limit for task in tasks} == {10}
    assert {len(re.findall(r"\d+", task.question)) for task in tasks} == {12}
    assert {len(task.calculations) for task in tasks} == {4, 6, 8}
    assert len({env.prompt(task, 1).partition("\n\n")[2].partition("\n")[0] for task in tasks}) == 3


def test_every_wording_states_the_limit_and_when_steps_count() -> None:
    env = made()
    for index in range(12):
        prompt = env.prompt(env.task(index), 1)
        assert prompt.count("10 / 3 = 10/3") == 1
        assert len(re.findall(r"\b10\b(?! / 3)", prompt.partition("\n\n")[2])) >= 2
        assert "half of the equations" in prompt or "at least half of them" in prompt
        assert len(re.findall("[Uu]p to 4 |more than 4,", prompt)) == 1


def test_a_row_gives_its_exact_calculations() -> None:
    answer = "So <<10/3=3.33>> and <<14=14>>, then $<<1,000*.5=500.00>>500 less 20% is <<500*80%=400>>.\n#### 1,400"
    task = read_gsm8k_row({"question": "How much?", "answer": answer})
    assert task.calculations == ("1,000*.5=500.00", "500*80%=400")
    assert task.steps == (500, 400)
    assert task.answer == 1400


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("It is <<2+2=4>>4.", "there is no final answer after ####"),
        ("#### four", "'four' is not a number"),
        ("<<x+2=4>>4\n#### 4", "'x' is not a digit"),
        ("<<2+2>>\n#### 4", "an equation has one equals sign"),
    ],
)
def test_bad_rows_are_named(answer: str, reason: str) -> None:
    with pytest.raises(BadRow) as error:
        read_gsm8k_row({"question": "How many?", "answer": answer})
    assert reason in str(error.value)


PUBLISHED = [
    ("What percentage walk?", "24 of 40 is <<24/40=0.6>>0.6.\nThat is <<0.6*100=60>>60%.\n#### 60", 2),
    ("How many?", "First <<+8=8>>8.\nThen 4 + 6 = <<+4+6=10>>10.\n#### 10", 1),
    ("How much?", "It is $<<1,000*.5=500.00>>500, and <<560//10=56>>56 more: <<500+56=556>>556.\n#### 556", 3),
    ("How long?", "<<3*+6=18>>18 and <<10/3=3.33>>.\n#### 1,450,000", 1),
    ("None?", "No marks at all.\n#### -3", 0),
]


def test_rows_in_the_published_schema_load_whole_and_score_their_solutions(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer, _ in PUBLISHED]
    path.write_text("\n".join(lines), encoding="utf-8")
    env = made(source=f"whole:{path}", steps=1)
    assert [len(task.calculations) for task in env.rows] == [count for *_, count in PUBLISHED]
    answers = [env.demonstrations(task, np.random.default_rng(0), 1)[0] for task in env.rows]
    for task, answer in zip(env.rows, answers, strict=True):
        assert vectors(env, task, [answer])[0][1] == 1


@needs_rows
def test_published_rows_score_their_final_answers_with_and_without_a_unit() -> None:
    env = made(source=f"whole:{ROWS}")
    place = env.objective_names.index("final")
    for form in ("{}", "{}%", "${}", "{} apples", "**{}**"):
        answers = [format_answers([f"#### {form.format(task.final)}"]) for task in env.rows]
        assert env.score_batch(env.rows, answers).rewards[:, 0, place].tolist() == [1.0] * len(env.rows)


@needs_rows
def test_published_rows_are_read_and_most_have_a_front() -> None:
    env = made(source=f"whole:{ROWS}")
    assert (len(env.rows), env.skipped_rows) == (200, 0)
    unknown = 0
    for task in env.rows:
        try:
            front = env.front(task)
        except UnknownFront:
            unknown += 1
            continue
        full = max(front, key=lambda point: sum(point.vector[: env.steps]))
        assert full.vector[: env.steps] == tuple(map(float, env.active(task)[: env.steps]))
    assert unknown <= 25


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got 0"):
        GSM8KEnv(steps=0)
    with pytest.raises(ValueError, match="the knobs are events, sentences, numbers"):
        GSM8KEnv(difficulty={"event": 3})
    with pytest.raises(ValueError, match="'2\\+2=5' is not a calculation that holds exactly"):
        GSM8KEnv().reset(options={"task": {"question": "?", "calculations": ["2+2=5"], "final": "5"}})
