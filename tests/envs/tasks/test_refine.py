"""Environments that tell what an attempt does on the examples of the prompt: which, when, and nothing of the tests."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from envs_data.code_problems import load_problems
from vpo_envs import CodeEnv, CodeTask, CodeTest, ProgramsEnv
from vpo_envs.core import AnyEnv, Call
from vpo_envs.tasks.code.rows import read_code_row
from vpo_envs.tasks.code.task import shown_tests
from vpo_envs.tasks.language import LISTS
from vpo_envs.text import format_answers

COMPACT = {"preset": "compact", "difficulty": {"steps": [2, 3]}}


def make(**options: Any) -> AnyEnv:
    return ProgramsEnv(**{"refine": True, "num_answers": 3, **options})


def applied(program: str, value: tuple[int, ...]) -> list[int]:
    """A program's output, by the Python of its steps."""
    x = list(value)
    for step in program.split():
        x = list(eval(LISTS[step].python, {"x": x}))
    return x


def shown_in(prompt: str) -> list[list[int]]:
    """The inputs of a compact prompt."""
    return [[*map(int, line.split(" > ")[0].split()[1:])] for line in prompt.splitlines() if line.startswith("f ")]


def test_each_answer_but_the_last_is_told_its_outputs_for_the_examples() -> None:
    env, quiet = make(**COMPACT), make(**COMPACT, refine=False)
    for index in range(5):
        task = env.task(index)
        prompt, _ = env.reset(options={"task": task})
        assert prompt == quiet.prompt(quiet.task(index), 3)
        programs = ["reverse", "sort double", " ".join(task.program)]
        blocks = format_answers(programs).splitlines()
        for program, block in zip(programs[:2], blocks[:2], strict=True):
            reply, reward, terminated, truncated, _ = env.step(block)
            assert not reward.any()
            assert not terminated
            assert not truncated
            outputs = [[*map(int, line.split()[1:])] for line in reply.splitlines()]
            assert outputs == [applied(program, tuple(value)) for value in shown_in(prompt)]
        _, _, terminated, _, info = env.step(blocks[2])
        assert terminated
        plain = quiet.score_batch([task], [format_answers(programs)])
        np.testing.assert_array_equal(info["reward_matrix"], plain.rewards[0])
        assert info["reward_matrix"][2].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("options", [COMPACT, {}], ids=["compact", "python"])
def test_what_scores_is_not_told(options: dict[str, Any]) -> None:
    env, other = make(**options), make(**options)
    task = env.task(0)
    unlike = {"hidden": other.task(1).hidden} if "preset" in options else {"tests": other.task(1).tests}
    answers = env.demonstrations(task, np.random.default_rng(0), 3)
    for answer in [*answers, "nothing"]:
        calls = [Call("answer_1", answer)]
        assert env.respond(task, calls) == env.respond(task.model_copy(update=unlike), calls)
    assert not env.score_batch([task], [format_answers(answers)]).rewards.all()


def test_a_demonstration_holds_the_replies() -> None:
    env = make(**COMPACT)
    task = env.task(2)
    answers = env.demonstrations(task, np.random.default_rng(4), 3)
    response = env.demonstrated(task, np.random.default_rng(4), 3)
    replies = re.findall("\ue000(.*?)\ue001", response, re.DOTALL)
    assert replies == [env.feedback(task, answer) for answer in answers[:2]]
    assert re.sub("\ue000.*?\ue001", "", response, flags=re.DOTALL) == format_answers(answers)
    env.reset(options={"task": task})
    _, _, terminated, _, info = env.step(response)
    assert terminated
    np.testing.assert_array_equal(info["reward_matrix"], env.score_batch([task], [response]).rewards[0])
    assert make(**COMPACT, refine=False).demonstrated(task, np.random.default_rng(4), 3) == format_answers(answers)


def test_python_is_told_which_examples_it_passes() -> None:
    env = make(difficulty={"distractors": 2})
    for index in range(4):
        task = env.task(index)
        examples = re.findall(r"^Example \d+: f\((.*)\) gives (.*)$", task.statement, re.MULTILINE)
        assert len(examples) == 4
        assert env.feedback(task, task.solution) == "\n".join(f"Example {number}: passed" for number in range(1, 5))
        constant = f"def f(x):\n    return {examples[0][1]}"
        verdicts = ["passed" if output == examples[0][1] else "wrong" for _, output in examples]
        said = "\n".join(f"Example {number}: {verdict}" for number, verdict in enumerate(verdicts, start=1))
        assert env.feedback(task, f"```python\n{constant}\n```") == said
        assert "After each of them but the last you are told" in env.prompt(task, 3)
        assert "you are told" not in env.prompt(task, 1) + make(refine=False).prompt(task, 3)
    assert env.feedback(task, " ") == "the answer holds no code"
    assert str(env.feedback(task, "def f(x):\n    raise ValueError")).count("error") == 4


def test_the_examples_of_bundled_problems_are_found() -> None:
    examples = {
        problem.title: list(zip(problem.inputs, problem.outputs, strict=True)) for problem in load_problems("paper")
    }
    kinds = set()
    for split in ("train", "validation", "test"):
        env = CodeEnv(split=split, refine=True, num_answers=2)
        tasks = {env.task(index).title: env.task(index) for index in range(200)}
        for title, task in tasks.items():
            kinds.add(task.kind)
            found = shown_tests(task)
            # An example in a prompt ends without blanks.
            expected = [(given.rstrip(), outputs[0].rstrip()) for given, outputs in examples[title][:2]]
            if task.kind == "stdin":
                assert [(test.input, test.output) for test in found] == expected
            else:
                assert [(json.loads(test.input), json.loads(test.output)) for test in found] == [
                    (json.loads(given), json.loads(wanted)) for given, wanted in expected
                ]
    assert kinds == {"stdin", "call"}


def test_a_row_of_mbpp_is_told_about_the_test_that_it_shows() -> None:
    env = CodeEnv(refine=True, num_answers=2)
    task = read_code_row(CodeEnv.example_row)
    assert task.shown == 1
    assert env.feedback(task, "def add(a, b):\n    return 3") == "Example 1: passed"
    assert env.feedback(task, "def add(a, b):\n    return 0") == "Example 1: wrong"


def test_nothing_is_told_where_the_prompt_shows_nothing() -> None:
    task = CodeTask(
        title="Add", statement="Add.", kind="call", entry="add", tests=(CodeTest(input="[1, 2]", output="3"),)
    )
    env = CodeEnv(refine=True, num_answers=2)
    assert env.feedback(task, "def add(a, b): return a + b") is None
    assert "you are told" not in env.prompt(task, 2)
    env.reset(options={"task": task})
    assert env.step("<answer_1>def add(a, b): return a + b</answer_1>")[2]


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ValueError, match="refine=True replies between the answers of one response: leave answers_as"):
        make(answers_as_steps=True)
    with pytest.raises(ValueError, match="preset='conflict' shows no examples, so refine=True has nothing to tell"):
        CodeEnv(preset="conflict", refine=True)
    with pytest.raises((TypeError, ValueError), match="refine"):
        CodeEnv(preset="compact", refine=True)


def test_one_answer_is_told_nothing() -> None:
    env = make(**COMPACT, num_answers=1)
    env.reset(options={"index": 0})
    assert env.step("<answer>sort</answer>")[2]
    turns = make(**COMPACT).turns(env.task(0), 2)
    assert turns is not None
    assert turns.tags == ("answer_1",)
