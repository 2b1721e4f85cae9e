"""Prompts and reward functions of one's own as an environment: what the functions are given, and what they earn."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from vpo_envs import FunctionsEnv, Status, check_vector_env, from_functions
from vpo_envs.core import SPLITS
from vpo_envs.functions.rewards import good_responses
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

ROWS = [
    {"question": f"What is {a} + {b}?", "solution": str(a + b), "hard": a > 20}
    for a in range(10, 40)
    for b in (3, 5, 8)
]
COLUMNS = {"prompt": "question", "answer": "solution"}


def correct(response: str, answer: str) -> float:
    """The sum is right."""
    return float(answer in response.split())


def brief(prompts: list[str], completions: list[str], hard: list[bool], **others: Any) -> list[float]:
    assert len(prompts) == len(completions) == len(hard) == len(others["answer"])
    return [max(0.0, 1 - len(text) / 40) for text in completions]


def parts(response: str) -> dict[str, float]:
    return {"long": len(response) / 10, "short": 1 / (1 + len(response))}


def only_hard(response: str, hard: bool) -> float | None:
    return 0.5 if hard else None


def fails(response: str, answer: str) -> float:
    return 1.0 if response == answer else {}["missing"]


def made(*functions: Any, **options: Any) -> FunctionsEnv:
    return from_functions(ROWS, list(functions), columns=COLUMNS, **options)


def test_functions_of_both_kinds_score_each_answer() -> None:
    env = made(correct, brief, num_answers=2)
    prompt, info = env.reset(options={"index": 0})
    sum_of = env.task(0).fields["answer"]
    assert info["objectives"] == ("correct", "brief")
    assert prompt.startswith(env.task(0).prompt)
    assert "correct: The sum is right; brief. Use these tags" in prompt
    *_, info = env.step(format_answers([f"it is {sum_of}", "no"]))
    np.testing.assert_allclose(info["reward_matrix"], [[1, 1 - 8 / 40], [0, 1 - 2 / 40]], rtol=1e-6)


def test_the_contract_is_kept() -> None:
    report = check_vector_env(made(correct, brief, num_answers=3))
    assert "demonstrations can be read and score" in report.passed


def test_a_prompt_given_twice_is_in_one_split() -> None:
    twice = [*ROWS, *({**row, "solution": "another"} for row in ROWS)]
    prompts = [
        {task.prompt for task in from_functions(twice, correct, columns=COLUMNS, split=split).rows} for split in SPLITS
    ]
    assert all(not one & other for one in prompts for other in prompts if one is not other)
    assert len(set.union(*prompts)) == len(ROWS)
    again = [{task.prompt for task in made(correct, split=split).rows} for split in SPLITS]
    assert prompts == again, "and other rows do not change where it is"


def test_ranges_are_scaled_and_what_is_beyond_is_said_once() -> None:
    env = made(parts, ranges={"parts.long": [0, 2]})
    assert env.objective_names == ("parts.long", "parts.short")
    with pytest.warns(UserWarning, match=r"parts\.long gives 3 for the answer 'aaa.*outside its range 0 to 2") as told:
        rewards = env.score_batch(
            [env.task(0)] * 3, [format_answers([text]) for text in ("a" * 10, "a" * 30, "a" * 40)]
        )
    np.testing.assert_allclose(rewards.rewards[:, 0, 0], [0.5, 1, 1])
    assert len(told) == 1


def test_an_objective_without_a_number_for_the_good_answer_is_inactive() -> None:
    env = made(correct, only_hard)
    found = {bool(task.fields["hard"]): env.active(task).tolist() for task in env.rows}
    assert found == {True: [True, True], False: [True, False]}
    same = [env.task(0).model_copy(update={"fields": {**env.task(0).fields, "hard": hard}}) for hard in (True, False)]
    assert [env.active(task).tolist() for task in same] == [found[True], found[False]], "also with the same prompt"


def test_a_function_that_fails_names_itself_the_prompt_and_the_answer() -> None:
    env = made(correct, fails)
    task = env.task(0)
    batch = env.score_batch([task] * 2, [format_answers([str(task.fields["answer"])]), format_answers(["nine"])])
    assert batch.status[:, 0].tolist() == [Status.OK, Status.INVALID]
    assert "the reward function fails gives KeyError: 'missing' (" in batch.failure
    assert f"test_own_functions.py, line {fails.__code__.co_firstlineno + 1})" in batch.failure
    assert f"for the answer 'nine' to the prompt {task.prompt!r}" in batch.failure


def test_a_list_of_the_wrong_length_and_an_exit_are_failures_too() -> None:
    def short(completions: list[str]) -> list[float]:
        return [1.0] * min(2, len(completions))

    def first(completions: list[str]) -> list[float]:
        return [1.0]

    def number(completions: list[str]) -> float:
        return 0.5

    def quits(response: str) -> float:
        raise SystemExit

    def leaves(response: str) -> float:
        return 1.0 if response in {str(row["solution"]) for row in ROWS} else sys.exit(3)

    for wrong, said in (
        (first, "ValueError: first must return a list with one reward for each of 2 completions, not 1 reward, for"),
        (number, "ValueError: number must return a list with one reward for each of 2 completions, not 0.5, for"),
        (quits, r"SystemExit \(\S*test_own_functions.py, line \d+\), for"),
    ):
        with pytest.raises(ValueError, match=f"{wrong.__name__} raises {said} the good answer of row 1"):
            made(wrong)
    several = format_answers(["first", "second", "third"])
    for function, said in (
        (short, "ValueError: short must return a list with one reward for each of 3 completions, not 2 rewards"),
        (leaves, "SystemExit: 3"),
    ):
        env = made(function)
        batch = env.score_batch([env.task(0)], [several], 3)
        assert batch.status.tolist() == [[Status.INVALID] * 3]
        assert said in batch.failure


def leaves(response: str) -> float:
    raise SystemExit(3)


async def late(response: str) -> float:
    return 1.0


def test_what_is_no_number_is_named() -> None:
    right = {str(row["solution"]) for row in ROWS}

    def renamed(response: str) -> Any:
        return {"long": 1.0, "short": 0.5} if response in right else {"long": 1.0, "brief": 0.5}

    def wordy(response: str) -> Any:
        return 1.0 if response in right else "good"

    for function, said in (
        (wordy, "not a finite number: the str 'good'"),
        (renamed, "a result without 'short', which it has for row 1: {'long': 1.0, 'brief': 0.5}; give None where"),
    ):
        env = made(function)
        batch = env.score_batch([env.task(0)], [format_answers(["nine"])])
        assert batch.status.tolist() == [[Status.INVALID]]
        assert said in batch.failure
    for value, shown in (
        ("0.5", "str '0.5'"),
        (np.array([1.0, 2.0]), r"ndarray array\(\[1., 2.\]\)"),
        (np.nan, "float nan"),
    ):
        with pytest.raises(ValueError, match=f"not a finite number: the {shown}, for the good answer of row 1"):
            made(lambda response, value=value: value)
    with pytest.raises(ValueError, match=r"leaves raises SystemExit: 3 .*, for the good answer of row 1"):
        made(leaves)
    with pytest.raises(ValueError, match="late is async, so it returns no number"):
        made(late)


def test_nothing_to_make_an_environment_of_is_said() -> None:
    for prompts, rewards, what in ((ROWS, [], "reward functions"), ([], correct, "prompts")):
        with pytest.raises(ValueError, match=f"there are no {what}: give one or more"):
            from_functions(prompts, rewards)


def test_answers_in_tags_reach_the_functions_in_tags() -> None:
    def tagged(completions: list[str], answer: list[str]) -> list[float]:
        return [float(text == f"<answer>{right}</answer>") for text, right in zip(completions, answer, strict=True)]

    rows = [{"prompt": f"{a}, in <answer></answer>", "answer": str(a)} for a in range(40)]
    env = from_functions([{**row, "response": f"<answer>{row['answer']}</answer>"} for row in rows], tagged)
    task = env.task(0)
    assert env.prompt(task, 1) == task.prompt
    shown = env.demonstrations(task, np.random.default_rng(0), 2)
    assert shown == [task.fields["answer"]] * 2
    assert env.score_batch([task], [format_answers(shown)], 2).rewards[0, 0] == 1


def test_a_file_and_functions_by_name_are_an_id_with_arguments(tmp_path: Path) -> None:
    prompts, rewards = tmp_path / "prompts.jsonl", tmp_path / "named_rewards.py"
    prompts.write_text("\n".join(map(json.dumps, ROWS)))
    rewards.write_text("def right(response, solution): return float(solution in response)\n")
    env = from_functions(prompts, f"{rewards}:right", columns={"prompt": "question"}, split="test")
    assert env.spec is not None
    again = make_text_env(env.spec.id, **env.spec.kwargs)
    assert again.rows == env.rows  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(env)).task(0) == env.task(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": []}, "needs prompts and rewards: give --prompts"),
        (
            {"rewards": "os:system"},
            "the rewards are functions of os, which runs only if you ask for it: add --import os",
        ),
        ({"columns": {"prompt": "quest"}}, "row 1, field 'quest': there is no such field: did you mean question\\? it"),
        (
            {"columns": {}},
            "row 1, a row needs a field 'prompt', and this one has question, solution, hard: name the field with "
            "--columns",
        ),
        ({"ranges": {"right": [0, 1]}}, "ranges name 'right', which is no objective: they are correct"),
        ({"ranges": [1, 0]}, "the range of correct must be two finite numbers, the lower one first"),
        ({"ranges": [0, float("inf")]}, "the range of correct must be two finite numbers"),
        ({"columns": ["question"]}, r"columns must be a mapping such as .*, got \['question'\]"),
        ({"rewards": [correct, correct]}, "two reward functions have the name 'correct'"),
        ({"source": ROWS[:1]}, "FILE has no row for split 'test'"),
        (
            {"rewards": [lambda colour: 0.0]},
            r"needs 'colour', which is neither prompt, response nor a field of the rows \(.*\): name the field with "
            "--columns colour=FIELD, or give",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FunctionsEnv(**{"source": ROWS, "rewards": [correct], "columns": COLUMNS, "split": "test", **options})


# --- rows of any kind ---


@pytest.mark.parametrize(
    ("row", "good"),
    [
        ({"answer": "42"}, ("42",)),
        ({"answer": 42}, ("42",)),
        ({"answer": "42", "response": None}, ("42",)),
        ({"answer": "42", "response": " "}, ("42",)),
        ({"answer": "42", "responses": None}, ("42",)),
        ({"answer": "42", "responses": []}, ("42",)),
        ({"answer": "42", "responses": [None, ""]}, ("42",)),
        ({"answer": "42", "response": "It is 42."}, ("It is 42.",)),
        ({"answer": "42", "response": "It is 42.", "responses": ["a", None, "b"]}, ("a", "b")),
        ({"answer": ["Rome", "Roma"]}, ("Rome",)),
        ({"answer": [None, "", "Roma"]}, ("Roma",)),
        ({"answer": ["Rome"], "response": [None]}, ("Rome",)),
        ({"answer": [42, "forty-two"]}, ("42",)),
        ({"answer": [7]}, ("7",)),
        ({"answer": [1, 2]}, ("[1, 2]",)),  # no names, but one answer that is a list
        ({"answer": None, "response": None, "responses": None}, ()),
        ({"answer": []}, ()),
        ({"answer": [None]}, ()),
        ({"answer": 0}, ("0",)),
        ({"answer": False}, ("False",)),
        ({}, ()),
    ],
)
def test_good_responses_are_those_that_a_row_states(row: dict[str, Any], good: tuple[str, ...]) -> None:
    assert good_responses({"prompt": "?", **row}) == good


def test_each_of_several_names_of_an_answer_is_right_and_the_first_is_shown() -> None:
    def named(response: str, answer: list[str]) -> float:
        return float(response in answer)

    rows = [{"prompt": f"Capital of {n}?", "answer": [f"City {n}", f"Town {n}"]} for n in range(20)]
    env = from_functions(rows, named)
    for task in env.rows:
        names = task.fields["answer"]
        assert env.demonstrations(task, np.random.default_rng(0), 1) == names[:1]
        batch = env.score_batch([task] * 3, [format_answers([name]) for name in (*names, "Village")])
        assert batch.rewards.ravel().tolist() == [1, 1, 0]


PLAIN = {
    "when": datetime(2024, 1, 1, 12, 30),
    "day": date(2024, 1, 1),
    "clock": time(12, 30),
    "took": timedelta(seconds=1.5),
    "picture": b"\xff\xd8",
    "price": Decimal("1.50"),
    "share": Fraction(1, 3),
    "id": UUID(int=1),
    "nan": float("nan"),
    "far": float("-inf"),
    "array": np.array([[1.5, float("nan")]]),
    "number": np.int64(3),
    "flag": np.bool_(True),
    "set": {"b", "a", "c"},
    "nested": {1: (date(2024, 1, 1), [b"\x00", None])},
    "object": object(),
}
AS_JSON = {
    "when": "2024-01-01T12:30:00",
    "day": "2024-01-01",
    "clock": "12:30:00",
    "took": 1.5,
    "picture": "/9g=",
    "price": "1.50",
    "share": "1/3",
    "id": "00000000-0000-0000-0000-000000000001",
    "nan": None,
    "far": "-inf",
    "array": [[1.5, None]],
    "number": 3,
    "flag": True,
    "set": ["a", "b", "c"],
    "nested": {"1": ["2024-01-01", ["AA==", None]]},
    "object": "<object>",
}


def test_columns_of_any_type_reach_the_functions_as_json() -> None:
    seen: list[dict[str, Any]] = []

    def correct(completions: list[str], answer: list[str], **others: Any) -> list[float]:
        seen.append(others)
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    env = from_functions([{"prompt": f"{n}?", "answer": str(n), **PLAIN} for n in range(10)], correct, split="train")
    task = env.rows[0]
    assert type(task).model_validate_json(task.model_dump_json()) == task
    assert {name: task.fields[name] for name in AS_JSON} == AS_JSON
    assert {name: seen[0][name][0] for name in AS_JSON} == AS_JSON
    check_vector_env(env, num_tasks=2)


def test_a_field_that_only_other_rows_have_is_null() -> None:
    def plain(response: str, hint: str | None) -> float:
        return 1.0 if hint is None else float(response == hint)

    def by_default(response: str, hint: str = "none") -> float:
        return float(hint == "none")

    def together(completions: list[str], hint: list[str | None]) -> list[float]:
        return [float(one is not None) for one in hint]

    rows = [{"prompt": f"{n}?", "answer": str(n), **({"hint": str(n)} if n % 2 else {})} for n in range(20)]
    env = from_functions(rows, [plain, by_default, together], split="train")
    for task in env.rows:
        vector = env.score_batch([task], [format_answers([str(task.fields["answer"])])]).rewards[0, 0].tolist()
        assert vector == ([1, 0, 1] if "hint" in task.fields else [1, 1, 0])
    with pytest.raises(ValueError, match=r"needs 'other', which is neither prompt, response nor a field of the rows"):
        from_functions(rows, lambda response, other: 1.0)


def test_rows_of_parquet_with_nulls_have_the_good_answers_that_they_state(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    rows = [
        {"prompt": "2 + 2", "answer": ["4", "four"], "response": None, "when": datetime(2024, 1, 1)},
        {"prompt": "3 + 3", "answer": ["6"], "response": "It is 6.", "when": None},
        {"prompt": "4 + 4", "answer": None, "response": "It is 8.", "when": None},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    env = from_functions(f"whole:{tmp_path / 'rows.parquet'}", lambda response, answer: 1.0)
    good = [env.demonstrations(task, np.random.default_rng(0), 1) for task in env.rows]
    assert good == [["4"], ["It is 6."], ["It is 8."]]


def without_return(response: str) -> None:
    len(response)


def in_percent(response: str) -> float:
    return 100.0 * ("4" in response)


def always_half(response: str) -> float:
    return 0.5


def fails_for_poor_answers(response: str) -> float:
    return 1 / response.count("4")


def only_where_it_counts(response: str, strict: bool) -> float | None:
    return float("4" in response) if strict else None


SUMS = [{"prompt": f"What is {n} + {4 - n}?", "answer": "4", "strict": n == 3} for n in range(4)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_return, "the reward without_return is None for every answer, also the good one of each row: a forgot"),
        (in_percent, "the reward in_percent is 100 for the answer '4', outside its range 0 to 1: give --range in_perc"),
        (always_half, "the reward always_half is 0.5 for all 5 answers that were tried, good ones and poor ones: it"),
        (
            fails_for_poor_answers,
            "the reward function fails_for_poor_answers gives ZeroDivisionError: division by zero",
        ),
    ],
)
def test_rewards_that_teach_nothing_are_found_before_a_training(function: Callable[..., Any], message: str) -> None:
    env = from_functions(SUMS, [function], split="train", check_rewards=True)
    env.rows = tuple(env.read_row(row) for row in SUMS)
    with pytest.raises(ValueError, match=message):
        env.check_scorers()
    from_functions(SUMS, [function], check_rewards=False).check_scorers()


def test_a_reward_that_counts_for_few_rows_is_taken() -> None:
    env = from_functions(
        [{**row, "prompt": f"{number}: {row['prompt']}"} for number in range(50) for row in SUMS],
        [only_where_it_counts],
    )
    env.check_scorers()


def test_goals_can_be_left_out_of_prompts_and_functions_without_a_name_get_one() -> None:
    env = from_functions(SUMS, lambda response, answer: float(response == answer), num_answers=2)
    assert env.objective_names == ("reward",)
    assert "The objectives are reward. Use these tags" in env.prompt(env.task(0), 2)
    quiet = from_functions(SUMS, [correct], num_answers=2, name_objectives=False)
    assert "The objectives are" not in quiet.prompt(quiet.task(0), 2)
    assert "right" not in quiet.prompt(quiet.task(0), 2)
