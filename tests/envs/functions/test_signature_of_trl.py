"""What TRL passes to reward functions beside texts and fields: where it is there, and what reading it is where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import vpo_envs
from vpo_envs.checking.checker import check_each
from vpo_envs.checking.functions import FunctionRewards, measured_ranges
from vpo_envs.functions.env import FunctionsEnv

ROWS = [{"prompt": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(40)]
CHATS = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
OF_A_TRAINER = ["completion_ids", "trainer_state"]
USES = ["{}.global_step", "len({})", "[x for x in {}]", "{}[0]", "{}('a', 1)", "not {}"]
WHY = {
    "completion_ids": "it reads 'completion_ids', which a model's tokenizer makes, and no model is loaded",
    "trainer_state": "it reads 'trainer_state', which belongs to a training run, and there is none here",
}


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def function_that(reads: str, name: str) -> Callable[..., list[float]]:
    """Return a function that rewards right answers, and has a statement with the parameter ``name``."""
    functions: dict[str, Any] = {"text_of": text_of}
    exec(
        f"def function(completions, answer, {name}, **_):\n"
        f"    {reads}\n"
        "    return [float(text_of(one) == gold) for one, gold in zip(completions, answer)]",
        functions,
    )
    function: Callable[..., list[float]] = functions["function"]
    return function


def code_points(texts: Sequence[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


@pytest.mark.parametrize("name", [*OF_A_TRAINER, "log_extra", "log_metric"])
def test_what_a_trainer_passes_may_be_named(name: str) -> None:
    env = vpo_envs.from_functions(ROWS, [function_that("pass", name)], split="train")
    env.check_scorers()
    task = env.task(0)
    right = f"<answer>{task.fields['answer']}</answer>"
    assert env.score_batch([task] * 2, [right, "<answer>x</answer>"]).rewards.ravel().tolist() == [1, 0]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", OF_A_TRAINER)
@pytest.mark.parametrize("rows", [ROWS, CHATS], ids=["texts", "chats"])
def test_reading_it_before_there_is_a_model_fails_where_it_is_read(
    name: str, use: str, rows: list[dict[str, Any]]
) -> None:
    env = vpo_envs.from_functions(rows, [function_that(use.format(name), name)], split="train")
    env.check_scorers()
    env.reset(seed=0)
    *_, info = env.step("<answer>x</answer>")
    assert info["status"] == ["invalid"]
    assert WHY[name] in info["reasons"][0]
    with pytest.raises(ValueError, match=f"^the reward function function gives ValueError: {WHY[name]}"):
        env.set_trainer(None)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["log_extra", "log_metric"])
def test_what_only_trl_has_fails_at_once(name: str, use: str) -> None:
    reading = function_that(use.format(name), name)
    with pytest.raises(ValueError, match=f"function raises .*it reads '{name}', which TRL passes and an environment"):
        vpo_envs.from_functions(ROWS, [reading])


@pytest.mark.parametrize("rows", [ROWS, CHATS], ids=["texts", "chats"])
@pytest.mark.parametrize("num_answers", [1, 2])
def test_functions_get_the_tokens_of_each_answer_and_the_state_of_the_training(
    rows: list[dict[str, Any]], num_answers: int
) -> None:
    seen: list[tuple[list[str], list[list[int]], int]] = []

    def named(
        completions: list[Any], completion_ids: list[list[int]], trainer_state: Any, answer: list[str]
    ) -> list[float]:
        seen.append(([*map(text_of, completions)], completion_ids, trainer_state.global_step))
        return [float(text_of(one) == gold) for one, gold in zip(completions, answer, strict=True)]

    def others(completions: list[Any], answer: list[str], **others: Any) -> list[float]:
        if "trainer_state" in others:
            seen.append(([*map(text_of, completions)], others["completion_ids"], others["trainer_state"].global_step))
        return [float(text_of(one) == gold) / 2 for one, gold in zip(completions, answer, strict=True)]

    state = SimpleNamespace(global_step=3)
    env = vpo_envs.from_functions(rows, [named, others], split="train", num_answers=num_answers)
    assert env.objective_names == ("named", "others")
    env.check_scorers()
    assert not seen
    env.set_trainer(code_points, lambda: state)
    assert seen, "the function that waited is tried"
    seen.clear()
    state.global_step = 4
    task = env.task(0)
    gold = task.fields["answer"]
    texts = [gold, "7 or so"][:num_answers]
    response = "".join(
        opening + text + closing
        for text, (opening, closing) in zip(texts, vpo_envs.text.answer_tags(num_answers), strict=True)
    )
    scores = env.score_batch([task], [response])
    assert scores.rewards[0].tolist() == [[1, 0.5], [0, 0]][:num_answers]
    assert seen == [(texts, code_points(texts), 4)] * 2


def test_a_function_that_waited_must_teach_something() -> None:
    def lengths(completions: list[str], completion_ids: list[list[int]]) -> list[float]:
        return [min(1.0, 0.0 * len(ids)) for ids in completion_ids]

    env = vpo_envs.from_functions(ROWS, [lengths], split="train")
    env.check_scorers()
    with pytest.raises(ValueError, match=r"the reward lengths is 0 for all \d+ answers"):
        env.set_trainer(code_points)
    unchecked = vpo_envs.from_functions(ROWS, [lengths], split="train", check_rewards=False)
    unchecked.set_trainer(code_points)
    task = unchecked.task(0)
    assert unchecked.score_batch([task], ["<answer>x</answer>"]).rewards.tolist() == [[[0.0]]]


def test_which_objectives_count_is_asked_again_once_there_is_a_tokenizer() -> None:
    def short(completions: list[str], completion_ids: list[list[int]]) -> list[float | None]:
        return [None if len(ids) == 2 else float(len(ids) == 1) for ids in completion_ids]

    def right(response: str, answer: str) -> float:
        return float(response == answer)

    env = vpo_envs.from_functions(ROWS, [right, short], split="train")
    assert isinstance(env, FunctionsEnv)
    tasks = [env.task(index) for index in range(8)]
    assert all(env.active(task).tolist() == [True, True] for task in tasks)
    env.set_trainer(code_points)
    assert [bool(env.active(task)[1]) for task in tasks] == [len(task.fields["answer"]) == 1 for task in tasks]


@pytest.mark.parametrize("name", OF_A_TRAINER)
def test_a_check_names_what_it_cannot_try(name: str) -> None:
    functions = {"waits": function_that(f"{name}[0]", name)}
    findings, _ = check_each(FunctionRewards(functions, ROWS))
    failed = [finding.detail for finding in findings if finding.verdict == "FAIL"]
    assert any(WHY[name] in detail for detail in failed)
    with pytest.raises(ValueError, match=f"the range of waits cannot be measured before a model is there .*{name}"):
        measured_ranges(functions, ROWS)
