"""The code environment: prompts, parsing, verdicts, statuses, and rows of published data sets."""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from memory import run_within
from paths import REALDATA
from processes import killing_children
from pydantic import ValidationError

from envs_data.readers import BadRow
from vpo_envs import CodeEnv, CodeOutcome, CodeTask, CodeTest, Objective, Status, UnknownFront, Unparsable
from vpo_envs.core import score_batch
from vpo_envs.sandbox import RunResult
from vpo_envs.sandbox.zygote import plain
from vpo_envs.tasks.code.assertions import read_assertion, signature
from vpo_envs.tasks.code.rows import read_code_row, unpack_text
from vpo_envs.tasks.code.task import MAX_SOURCE_CHARS, MAX_TESTS, judge, read_source, run_tests
from vpo_envs.text import format_answers

ADD = CodeTask(
    title="Add",
    statement="Add two numbers.",
    kind="call",
    entry="add",
    tests=tuple(CodeTest(input=f"[{a}, {b}]", output=str(a + b)) for a, b in ((1, 2), (0, 0), (-1, 1), (10, 5))),
    solution="def add(a, b): return a + b",
)
ECHO = CodeTask(title="Echo", statement="Echo.", kind="stdin", tests=(CodeTest(input="a\n", output="a\n"),))


@pytest.fixture(scope="module")
def env() -> CodeEnv:
    return CodeEnv(time_limit=2.0)


def scores(env: CodeEnv, task: CodeTask, *answers: str) -> tuple[list[list[float]], list[str]]:
    batch = env.score_batch([task], [format_answers(answers)], len(answers))
    active = env.active(task)
    return batch.rewards[0][:, active].tolist(), [Status(status).name for status in batch.status[0]]


# --- scoring ---


@pytest.mark.parametrize(
    ("source", "vector"),
    [
        ("def add(a, b): return a + b", [1, 1, 1, 1]),
        ("class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b", [1, 1, 1, 1]),
        ("def add(a, b): return a + b or 1", [1, 0, 0, 1]),
        # All that it passes expects 0, as from a program that returns 0 whatever it is given.
        ("def add(a, b): return a - b", [0, 0, 0, 0]),
        ("def add(a, b):\n    if a == 1: raise ValueError\n    return a + b", [0, 1, 1, 1]),
        ("def add(a, b):\n    while not a: pass\n    return a + b", [1, 0, 1, 1]),
        ("def add(a, b): return float(a + b)", [1, 1, 1, 1]),
        ("def add(a, b): return str(a + b)", [0, 0, 0, 0]),
        ("def plus(a, b): return a + b", [0, 0, 0, 0]),
        ("def add(a, b: return", [0, 0, 0, 0]),
        ("print(3)", [0, 0, 0, 0]),
    ],
)
def test_each_test_is_one_objective(source: str, vector: list[float], env: CodeEnv) -> None:
    assert scores(env, ADD, source) == ([vector], ["OK"])


def test_objectives_beyond_the_tests_are_inactive(env: CodeEnv) -> None:
    assert env.reward_dim == 16
    assert env.active(ADD).tolist() == [True] * 4 + [False] * 12
    assert env.fixed_weights(ADD).tolist() == [0.25] * 4 + [0.0] * 12
    reward = env.score_batch([ADD], ["<answer>def add(a, b): return a + b</answer>"]).rewards[0, 0]
    assert reward.tolist() == [1.0] * 4 + [0.0] * 12
    assert env.optimum(ADD) == 1.0


def test_statuses_of_a_set(env: CodeEnv) -> None:
    good = "def add(a, b): return a + b"
    response = f"<answer_1>{good}</answer_1><answer_2>```\n{good}\n```</answer_2><answer_4> </answer_4>"
    batch = env.score_batch([ADD], [response], 4)
    assert [Status(s).name for s in batch.status[0]] == ["OK", "DUPLICATE", "MISSING", "UNPARSABLE"]
    assert batch.rewards[0, 1:].sum() == 0


def test_an_answer_out_of_time_everywhere_says_so() -> None:
    env = CodeEnv(time_limit=0.2)
    assert scores(env, ADD, "while True: pass") == ([[0.0] * 4], ["TIMED_OUT"])


def test_a_sandbox_that_cannot_be_set_up_makes_the_answer_invalid() -> None:
    code = """
from vpo_envs import CodeEnv
env = CodeEnv()
task = env.task(0)
batch = env.score_batch([task], [f"<answer>{task.solution}</answer>"])
print(batch.status.tolist(), batch.rewards.sum())
"""
    environment = {**os.environ, "VPO_SANDBOX_PYTHON": "/nowhere/python3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[[{int(Status.INVALID)}]] 0.0"
    assert "no sandbox for model-written code can be set up here" in done.stderr
    assert "VPO_SANDBOX_PYTHON" in done.stderr


def test_a_failure_of_the_host_makes_the_answer_invalid() -> None:
    with killing_children():
        assert scores(CodeEnv(time_limit=40.0), ADD, "import time\ntime.sleep(30)") == ([[0.0] * 4], ["INVALID"])


def test_an_input_shared_by_tests_is_run_once(env: CodeEnv) -> None:
    tests = (CodeTest(input="[]", output="1"), CodeTest(input="[]", output="2"))
    task = CodeTask(title="", statement="Either.", kind="call", entry="f", tests=tests)
    # In a sandbox with its own process numbers, the number says which test it is.
    source = "import os, time\ndef f(): return 1 + (os.getpid() + int(time.time() * 1000)) % 2"
    for _ in range(3):
        assert sum(scores(env, task, source)[0][0]) == 1.0


def test_candidates_run_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    all_there = threading.Barrier(4, timeout=60)

    def run_with_the_others(*arguments: Any) -> CodeOutcome:
        all_there.wait()
        return run_tests(*arguments)

    monkeypatch.setattr("vpo_envs.tasks.code.env.run_tests", run_with_the_others)
    answers = [f"<answer>def add(a, b): return a + b  # {i}</answer>" for i in range(4)]
    assert CodeEnv(workers=4).score_batch([ADD] * 4, answers).rewards.sum() == 16


def test_threads_that_score_share_an_environment_and_its_places() -> None:
    env = CodeEnv(workers=1)
    sleeper = "import time\ndef add(a, b):\n    time.sleep(0.05)\n    return a + b  # "
    answers = [format_answers([f"{sleeper}{i}", "def add(a, b): return a + b or 1"]) for i in range(3)]
    start = time.monotonic()
    rewards = score_batch(env, [ADD] * 3, answers, num_answers=2, threads=3).rewards
    took = time.monotonic() - start
    assert rewards.sum(-1).tolist() == [[4.0, 2.0]] * 3
    assert took >= 3 * 4 * 0.05  # one at a time


def test_the_front_is_known_where_a_solution_is(env: CodeEnv) -> None:
    (point,) = env.front(ADD)
    assert point.vector == (1.0,) * 4 + (0.0,) * 12
    with pytest.raises(UnknownFront, match="'Echo' has no solution"):
        env.front(ECHO)
    with pytest.raises(UnknownFront, match="does not pass"):
        env.front(ADD.model_copy(update={"solution": "def add(a, b): return 3"}))


def test_the_front_is_unknown_where_an_objective_or_evaluate_is_changed(env: CodeEnv) -> None:
    class Frugal(CodeEnv):
        objectives = (*CodeEnv.objectives, Objective("most", "Most tests", lambda o: sum(o.passed) / len(o.passed)))

    class Contrary(CodeEnv):
        objectives = (*CodeEnv.objectives, Objective("not_all", "One fails", lambda o: float(not all(o.passed))))

    class Lenient(CodeEnv):
        def evaluate(self, task: CodeTask, answer: str) -> CodeOutcome:
            return super().evaluate(task, answer)._replace(verdicts=("passed",) * len(task.tests))

    assert Frugal().front(ADD)[0].vector == (1.0,) * 4 + (0.0,) * 12 + (1.0,)
    with pytest.raises(UnknownFront, match="objective 'not_all' of Contrary falls where an outcome gets better"):
        Contrary().front(ADD)
    # With many tests not every outcome can be tried.
    many = CodeEnv(preset="conflict").task(0)
    with pytest.raises(UnknownFront, match="'not_all' of Contrary falls"):
        Contrary(preset="conflict").front(many)
    assert len(Frugal(preset="conflict").front(many)) == len(CodeEnv(preset="conflict").front(many))
    with pytest.raises(UnknownFront, match="Lenient overrides evaluate, so the front that CodeEnv computes may be"):
        Lenient().front(ADD)
    # A batch goes through the changed method as well.
    batch = Lenient().score_batch([ADD] * 2, ["<answer>x = 1</answer>", "<answer>y = 1</answer>"])
    assert batch.rewards[:, 0, :4].all()


# --- parsing and prompts ---


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("x = 1", "x = 1"),
        ("\n\n  x = 1\n", "  x = 1"),
        ("```python\nx = 1\n```", "x = 1"),
        ("```\nx = 1\n```\n", "x = 1"),
        ("Here it is:\n```py\nx = 1\n```\nDone.", "x = 1"),
        ("```python\nx = 1\n```\nBetter:\n```python\nx = 2\n```", "x = 2"),
        ("~~~\nx = 1\n~~~", "x = 1"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("x = '```'", "x = '```'"),
        ("The program:\r\n```python\r\nif x:\r\n    y = 1\r\n```\r\n", "if x:\n    y = 1"),
        ("```py\rx = 1\r```\r", "x = 1"),
        ("1. The program:\n   ```python\n   if x:\n       y = 1\n   ```\n", "if x:\n    y = 1"),
        ("1. ```python\n   if x:\n       y = 1\n   ```", "if x:\n    y = 1"),
        ("- a\n  * b\n    ~~~\n    if x:\n\n        y = 1\n    ~~~", "if x:\n\n    y = 1"),
        ("Run:\n\t```\n\tif x:\n\t\ty = 1\n\t```", "if x:\n\ty = 1"),
        ("   ```\n  x = 1\n    y = 2\n   ```", "x = 1\n y = 2"),
        ("```python\nx = 1\n", "x = 1"),
        ("~~~ python `3`\nx = 1", "x = 1"),
        ("```python\nx = 1\n`````", "x = 1"),
        ("````\nx = 1\n```\ny = 2\n````", "x = 1\n```\ny = 2"),
        (
            '```\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """',
        ),
        ("```python\nx = 1\n```\n```\n", "x = 1"),
        ("x = 1\n```", "x = 1"),
        ("```python\n```\n```python\nx = 1\n```", "x = 1"),
    ],
)
def test_programs_are_read_fenced_or_not(text: str, source: str) -> None:
    assert read_source(text) == source


@pytest.mark.parametrize("text", ["", " \n\t", "```python\n```", "x" * (MAX_SOURCE_CHARS + 1)])
def test_what_holds_no_program_is_unparsable(text: str) -> None:
    with pytest.raises(Unparsable):
        read_source(text)


def test_hostile_fences_are_read_in_linear_time() -> None:
    start = time.process_time()
    # With text after the fence no line closes another, so every one of them looks for its end.
    for piece in (
        "```",
        "```\n",
        "~~~\n`",
        " ```",
        "``````\n",
        "```a\n",
        "~~~a\n",
        "```a\n~~~b\n",
        "  ````python x\n",
        "~",
    ):
        with suppress(Unparsable):
            read_source(piece * 20_000 + "`")
    assert time.process_time() - start < 2.0


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "```",
                "````",
                "~~~",
                "~~~~",
                "```py",
                " ```\t",
                "   ~~~",
                "~~~ x",
                "    ```",
                "`a",
                "x = 1",
                "  y = 2",
                "",
            ]
        ),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_fenced_blocks_are_those_of_markdown(lines: list[str], end: str) -> None:
    text = end.join(lines)
    blocks = [token.content for token in MarkdownIt().parse(text) if token.type == "fence" and token.content.strip()]
    if not blocks or "    ```" in lines:  # four blanks make no block in Markdown, but may in an answer
        return
    assert read_source(text) == blocks[-1].strip("\n").rstrip()


def test_prompts_show_examples_and_never_the_other_tests() -> None:
    env = CodeEnv()
    for index in range(12):
        task = env.task(index)
        prompt = env.prompt(task, 3)
        assert task.statement.strip() in prompt
        assert prompt.count("Example ") == 2
        for tag in ("<answer_1>", "</answer_3>"):
            assert tag in prompt
        hidden = [test.input for test in task.tests if len(test.input) > 12]
        assert not any(text.strip() in prompt for text in hidden)


def test_lazy_answers_earn_nothing(env: CodeEnv) -> None:
    """Echo of the prompt, stuffed tags, all the shown outputs, copied statement: 0 like an honest empty attempt."""
    prompt = env.prompt(ADD, 1)
    for lazy in (
        prompt,
        "pass",
        "\n".join(test.output for test in ADD.tests),
        ADD.statement,
        "def add(*a): return list(range(99))",
    ):
        assert scores(env, ADD, lazy)[0] == [[0.0] * 4]
    stuffed = "<answer>" * 50 + "def add(a, b): pass" + "</answer>" * 50
    assert env.score_batch([ADD], [stuffed]).rewards.sum() == 0


# --- settings ---


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"difficulty": "impossible"}, "unknown difficulty 'impossible'"),
        ({"time_limit": 0}, "time_limit must be above 0"),
        ({"memory_mb": 1}, "memory_mb must be at least 64"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"sandbox": "C"}, "unknown sandbox tier 'C'"),
        ({"sandbox": "Z"}, "unknown sandbox tier 'Z'"),
    ],
)
def test_bad_settings_are_one_clear_error(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        CodeEnv(**arguments)


def test_difficulty_keeps_to_its_problems() -> None:
    env = CodeEnv(difficulty="hard")
    assert {env.task(i).difficulty for i in range(20)} == {"hard"}


# --- rows of data sets ---


def livecodebench(**changes: Any) -> dict[str, Any]:
    tests = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
    row = {
        "question_title": "Next",
        "question_content": "Print the next number.",
        "platform": "none",
        "question_id": "1",
        "contest_id": "1",
        "contest_date": "2024-01-01",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests),
        "private_test_cases": json.dumps([{"input": "5\n", "output": "6\n", "testtype": "stdin"}]),
        "metadata": "{}",
    }
    return {**row, **changes}


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_livecodebench_programs_are_read(env: CodeEnv) -> None:
    task = read_code_row(livecodebench())
    assert task.kind == "stdin"
    assert [test.input for test in task.tests] == ["1\n", "5\n"]
    assert scores(env, task, "print(int(input()) + 1)") == ([[1.0, 1.0]], ["OK"])


def test_a_row_of_this_project_is_its_task() -> None:
    assert read_code_row(ADD.model_dump(mode="json")) == ADD


def test_livecodebench_functions_are_read_from_a_pickle_of_text(env: CodeEnv) -> None:
    tests = [{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]
    task = read_code_row(
        livecodebench(
            public_test_cases="[]",
            private_test_cases=packed(json.dumps(tests)),
            metadata='{"func_name": "shift"}',
            starter_code="class Solution:\n    def shift(self, xs: List[int], k: int) -> List[int]:\n        ",
        )
    )
    assert (task.kind, task.entry, task.tests[0].input) == ("call", "shift", "[[1, 2], 3]")
    answer = task.starter_code + "return [x + k for x in xs]"
    assert scores(env, task, answer) == ([[1.0]], ["OK"])
    assert "class Solution" in env.prompt(task, 1)


FUNCTIONAL = '[{"input": "1", "output": "1", "testtype": "functional"}]'


class Bomb:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch red-team-was-here",)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"private_test_cases": packed(Bomb())}, "private_test_cases", "only plain text is allowed"),
        ({"private_test_cases": packed(["a list"])}, "private_test_cases", "only plain text is allowed"),
        ({"private_test_cases": packed(b"bytes")}, "private_test_cases", "only plain text is allowed"),
        ({"private_test_cases": packed("not json")}, "private_test_cases", "not JSON"),
        ({"private_test_cases": "!!!"}, "private_test_cases", "neither JSON nor base64"),
        ({"private_test_cases": base64.b64encode(b"junk").decode()}, "private_test_cases", "neither JSON nor base64"),
        ({"private_test_cases": packed("[]")[:12]}, "private_test_cases", "cut short|neither"),
        ({"private_test_cases": base64.b64encode(zlib.compress(b"junk")).decode()}, "private_test_cases", "not one of"),
        ({"public_test_cases": None}, "public_test_cases", "must be text"),
        ({"public_test_cases": "{}"}, "public_test_cases", "must be a list"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "private_test_cases", "no tests"),
        ({"question_content": None}, "question_content", "must be text"),
        (
            {"public_test_cases": '[{"input": 1, "output": "", "testtype": "stdin"}]'},
            "private_test_cases.1",
            "must be text",
        ),
        (
            {"public_test_cases": '[{"input": "", "output": "", "testtype": "x"}]'},
            "private_test_cases.1",
            "unknown kind",
        ),
        ({"public_test_cases": FUNCTIONAL}, "private_test_cases", "mixes"),
        ({"public_test_cases": "[3]"}, "private_test_cases.1", "a test is an object"),
        ({"metadata": "{"}, "metadata", "not JSON"),
        ({"private_test_cases": 100_000 * "["}, "private_test_cases", "nested too deeply"),
        ({"private_test_cases": "[1e400]"}, "private_test_cases", "too large"),
        ({"public_test_cases": FUNCTIONAL, "private_test_cases": "[]"}, "metadata", "need the name of a function"),
    ],
)
def test_bad_livecodebench_rows_name_the_field(
    changes: dict[str, Any], field: str, reason: str, tmp_path: Path
) -> None:
    os.chdir(tmp_path)
    with pytest.raises(BadRow, match=reason) as caught:
        read_code_row(livecodebench(**changes))
    assert caught.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vpo_envs.tasks.code.rows.MAX_UNPACKED", 1000)
    with pytest.raises(BadRow, match="unpacks to more than 1000 bytes"):
        read_code_row(livecodebench(private_test_cases=packed("x" * 100_000)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["[]", "é" * 300, "x" * 70_000, "half \ud83d, line\nbreak"])
def test_a_text_is_read_from_pickles_of_all_protocols(text: str, protocol: int) -> None:
    written = base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()
    assert unpack_text("private_test_cases", written) == text


def test_a_pickle_makes_no_room_for_objects_that_it_does_not_hold() -> None:
    """Fifteen bytes that let an unpickler make room for 200 million objects, and others of the kind."""
    pickles = [
        b"\x80\x04\x8c\x01xr\xff\xff\xff\x0b.",
        b"\x80\x04\x8c\x01xr\xff\xff\xff\x7f.",
        b"V x\np200000000\n.",
        b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"x.",
        b"\x80\x04X\xff\xff\xff\x7fx.",
        b"\x80\x04\x8e" + (1 << 33).to_bytes(8, "little") + b"x.",
        b"\x80\x04\x95" + (1 << 40).to_bytes(8, "little") + b"\x8c\x01x.",
        b"\x80\x04" + 1000 * b"(" + b".",
    ]
    fields = [base64.b64encode(zlib.compress(data)).decode() for data in pickles]
    code = f"""for field in {fields!r}:
        try:
            print(unpack_text("tests", field))
        except ValueError as error:
            print(type(error).__name__)"""
    printed, grown = run_within(32, "from vpo_envs.tasks.code.rows import unpack_text", code)
    assert printed.splitlines() == ["x", "x", " x", "BadRow", "BadRow", "BadRow", "x", "BadRow"]
    assert grown < 16


def test_many_tests_keep_a_spread_of_sizes() -> None:
    tests = [{"input": "x" * size, "output": "", "testtype": "stdin"} for size in range(1, 101)]
    huge = [{"input": "é" * 5000, "output": "", "testtype": "stdin"}]
    task = read_code_row(livecodebench(public_test_cases=json.dumps(tests + huge), private_test_cases="[]"))
    sizes = [len(test.input) for test in task.tests]
    assert len(sizes) == MAX_TESTS
    assert (min(sizes), max(sizes)) == (1, 100)  # the huge one is more than 8 KB, though fewer characters
    assert max(np.diff(sizes)) <= 8
    with pytest.raises(BadRow, match="every test is larger than 8192 bytes"):
        read_code_row(livecodebench(public_test_cases=json.dumps(huge), private_test_cases="[]"))


@pytest.mark.parametrize(
    "tests",
    [
        json.dumps([{"input": "2 3", "output": "5", "testtype": "stdin", "metadata": {}}]),
        json.dumps([{"type": "stdin_stdout", "input": "2 3\n", "output": "5\n"}]),
        [{"type": "stdin_stdout", "input": "2 3\n", "output": "5\n"}],
        json.dumps({"inputs": ["2 3\n"], "outputs": ["5\n"]}),
        {"inputs": [["2 3"]], "outputs": [["5"]]},
    ],
)
def test_deepcoder_programs_are_read(tests: object, env: CodeEnv) -> None:
    task = read_code_row({"problem": "Add.", "starter_code": None, "tests": tests, "metadata": "{}"})
    assert scores(env, task, "print(sum(map(int, input().split())))") == ([[1.0]], ["OK"])


@pytest.mark.parametrize(
    ("tests", "metadata"),
    [
        (
            json.dumps([{"input": "2\n3", "output": "5", "testtype": "functional", "metadata": {"func_name": "add"}}]),
            None,
        ),
        (json.dumps([{"input": "2\n3", "output": "5", "testtype": "functional"}]), '{"func_name": "add"}'),
        (json.dumps({"fn_name": "add", "inputs": [[2, 3]], "outputs": [[5]]}), "{}"),
        (json.dumps([{"type": "function_call", "fn_name": "add", "input": [2, 3], "output": [5]}]), ""),
    ],
)
def test_deepcoder_functions_are_read(tests: str, metadata: str | None, env: CodeEnv) -> None:
    task = read_code_row({"problem": "Add.", "starter_code": "", "tests": tests, "metadata": metadata})
    assert scores(env, task, "def add(a, b): return a + b") == ([[1.0]], ["OK"])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"problem": "Add.", "tests": None}, "must be a list of tests"),
        ({"problem": None, "tests": "[]"}, "must be text"),
        ({"problem": "Add.", "tests": "[]"}, "no tests"),
        ({"problem": "Add.", "tests": '{"inputs": ["1"], "outputs": []}'}, "1 inputs but 0 outputs"),
        ({"question": "x"}, "unknown schema"),
        ({}, "unknown schema"),
        ({"text": "t", "code": "c", "test_list": None}, "no tests"),
        ({"text": "t", "code": "c", "test_list": ["assert True == False is None"]}, "not a comparison|form"),
        ({"text": "t", "code": "c", "test_list": [3]}, "must be text"),
        ({"text": "t", "code": None, "test_list": []}, "must be text"),
    ],
)
def test_bad_rows_say_what_is_wrong(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        read_code_row(row)


@pytest.mark.parametrize(
    ("line", "call", "expected"),
    [
        ("assert f(1) == 2", "f(1)", "2"),
        ("assert f((1, 2)) == [1, (2,)]", "f((1, 2))", "[1, (2,)]"),
        ("assert 2 == f(1)", "f(1)", "2"),
        ("assert set(f(1)) == set([1, 2])", "set(f(1))", "{1, 2}"),
        ("assert f(1) == set()", "f(1)", "set()"),
        ("assert f(1) is None", "f(1)", "None"),
        ("assert f(1)", "bool(f(1))", "True"),
        ("assert not f(1)", "bool(f(1))", "False"),
        ("assert math.isclose(f(1), 0.5)", "f(1)", "0.5"),
        ("assert f(-1.5) == -2", "f(-1.5)", "-2"),
        ("assert sorted(f(x=1)) == ['a']", "sorted(f(x=1))", "['a']"),
        ("assert math.isclose(f(2), 12.566, rel_tol=0.001)", "f(2)", "isclose(12.566, rel_tol=0.001)"),
        ("assert isclose(12.5, f(2), abs_tol=10**-6)", "f(2)", "isclose(12.5, abs_tol=1e-06)"),
        ("assert isclose(f(1), 2, rel_tol=0, abs_tol=1)", "f(1)", "isclose(2, rel_tol=0, abs_tol=1)"),
        ("assert abs(f(2) - 12.5) <= 0.5", "f(2)", "isclose(12.5, rel_tol=0.0, abs_tol=0.5)"),
        ("assert abs(3 - f(2)) <= 1", "f(2)", "isclose(3, rel_tol=0.0, abs_tol=1.0)"),
        ("assert f(1) == 4 * math.pi", "f(1)", repr(4 * math.pi)),
        ("assert f(1) == 10**9 + 7", "f(1)", "1000000007"),
        ("assert f(1) == math.sqrt(2) / 2", "f(1)", repr(math.sqrt(2) / 2)),
        ("assert f((1, 'a')) == sys.getsizeof((1, 'a'))", "f((1, 'a'))", str(sys.getsizeof((1, "a")))),
        ("assert f(1) == float('inf')", "f(1)", "1e999"),
        ("assert f(1) == [-math.inf, (1,), set()]", "f(1)", "[-1e999, (1,), set()]"),
        ("assert f(1) == Counter({'b': 2, 'a': 1})", "f(1)", "{'b': 2, 'a': 1}"),
        ("assert f(1) == collections.OrderedDict([('b', 2)])", "f(1)", "{'b': 2}"),
        ("assert f(1) == {'r': math.pi, 's': {math.e}}", "f(1)", f"{{'r': {math.pi!r}, 's': {{{math.e!r}}}}}"),
        ("assert f(1) == frozenset(['b', 'c', 'a'])", "f(1)", "{'a', 'b', 'c'}"),
        ("assert f(1) == [set(['b', 'c', 'a'])]", "f(1)", "[{'a', 'b', 'c'}]"),
    ],
)
def test_assertions_become_calls_and_values(line: str, call: str, expected: str) -> None:
    assert read_assertion(line) == (call, expected)


@pytest.mark.parametrize(
    "line",
    [
        *("", "f(1) == 2", "assert f(1) == g(2)", "assert 1 == 1", "assert f(1) < 3", "assert f(1) == 2; x()"),
        *("assert f(", "assert x", "assert f(1) == 2 == 2", "assert f(1) == __import__('os')"),
        "assert isclose(f(1), 2, abs_tol=f(2))",
        *("assert isclose(f(1), f(2), abs_tol=1)", "assert isclose(f(1), 2, **{'abs_tol': 1})", "assert abs(f(1)) < 1"),
        *(
            "assert abs(f(1) - f(2)) < 1",
            "assert f(1) == float('nan')",
            "assert f(1) == 9**9**9",
            "assert f(1) == 'a' * 9",
        ),
        *(
            "assert f(1) == math.exp(10**9)",
            "assert f(1) == set([[1]])",
            "assert f(1) == 1 / 0",
            "assert f(1) == eval('1')",
        ),
    ],
)
def test_other_assertions_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_assertion(line)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_a_difference_below_a_limit_is_what_python_says(value: float, number: float, limit: float) -> None:
    for sign in ("<", "<="):
        line = f"assert abs(f(1) - {number!r}) {sign} {limit!r}"
        task = CodeTask(
            title="", statement="?", kind="expression", tests=(CodeTest(input="f(1)", output=read_assertion(line)[1]),)
        )
        result = json.dumps(plain(value)).encode()
        verdict = judge(task, task.tests[0], RunResult("exited", 0, b"", result, b""))
        assert (verdict == "passed") is eval(line.removeprefix("assert "), {"f": lambda _: value})


def test_expected_sets_are_written_alike_in_every_process() -> None:
    code = (
        "from vpo_envs.tasks.code.rows import read_code_row, unpack_text\n"
        "row = {'text': 't', 'code': 'c', 'test_list': [\"assert f(1) == set(['a', 'b', 'c', 'd'])\"]}\n"
        "print(read_code_row(row).content_hash())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(hashes) == 1


def test_a_signature_is_the_called_functions() -> None:
    assert signature("def g(): pass\ndef f(a, *b, c=1): return a", "sorted(f(1))") == "def f(a, *b, c=1):"
    assert signature("f = 3", "f(1)") == ""
    assert signature("def f(", "f(1)") == ""


@pytest.mark.parametrize(
    ("output", "right", "wrong"),
    [
        ([5], ("5", "[5]", "(5,)", "5.0"), ("6", "[6]", "[[5]]")),
        ([[1, 2]], ("[1, 2]", "[[1, 2]]", "(1, 2)"), ("[2, 1]", "1")),
        ([1, 2], ("[1, 2]", "(1, 2)"), ("1", "[[1, 2]]")),
        (5, ("5",), ("[5]",)),
        (["a"], ("'a'", "['a']"), ("'b'",)),
        ([], ("[]",), ("None", "[[]]")),
        ([None], ("None", "[None]"), ("0",)),
    ],
)
def test_apps_may_wrap_a_value_in_a_list(
    output: object, right: tuple[str, ...], wrong: tuple[str, ...], env: CodeEnv
) -> None:
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": [output]}
    task = read_code_row({"problem": "Any.", "starter_code": "", "tests": json.dumps(tests), "metadata": "{}"})
    answers = [f"def f(x): return {value}" for value in (*right, *wrong)]
    assert scores(env, task, *answers)[0] == [[1.0]] * len(right) + [[0.0]] * len(wrong)
    assert CodeTask.model_validate_json(task.model_dump_json()) == task


def test_an_expected_value_may_be_written_over_several_lines() -> None:
    tests = (CodeTest(input="[]", output="[\n1,\n2]"),)
    task = CodeTask(title="", statement="?", kind="call", entry="f", tests=tests)
    assert task.expected(task.tests[0]) == ([1, 2],)
    with pytest.raises(ValidationError, match="test 1"):
        CodeTask(title="", statement="?", kind="call", entry="f", tests=(CodeTest(input="[]", output="1\n]"),))


@pytest.mark.parametrize("output", ["isclose(1.0, rel_tol='a')", "isclose(1.0, rel=1)", "isclose('a')", "g(1)", "1 1"])
def test_expected_values_of_expressions_are_literals_or_close_numbers(output: str) -> None:
    with pytest.raises(ValidationError, match="test 1"):
        CodeTask(title="", statement="?", kind="expression", tests=(CodeTest(input="f(1)", output=output),))


SANITIZED = [
    {
        "source_file": "Benchmark Questions Verification V2.ipynb",
        "task_id": 1,
        "prompt": "Write a function to find the volume of a sphere.",
        "code": "import math\ndef volume(r):\n  return (4./3.) * math.pi * (r**3)",
        "test_imports": ["import math"],
        "test_list": [
            "assert math.isclose(volume(10), 4188.790204786391, rel_tol=0.001)",
            "assert math.isclose(volume(25), 65449.84694978735, rel_tol=0.001)",
        ],
    },
    {
        "source_file": "Benchmark Questions Verification V2.ipynb",
        "task_id": 2,
        "prompt": "Write a function to find the size in bytes of the given tuple.",
        "code": "import sys\ndef size(t):\n  return sys.getsizeof(t)",
        "test_imports": ["import sys"],
        "test_list": [
            'assert size(("A", 1, "B", 2)) == sys.getsizeof(("A", 1, "B", 2))',
            "assert size(()) == sys.getsizeof(())",
        ],
    },
    {
        "source_file": "Mike's Copy of Benchmark Questions Verification V2.ipynb",
        "task_id": 3,
        "prompt": "Write a function to find the shared elements of two lists.",
        "code": "def shared(a, b):\n  return tuple(set(a) & set(b))",
        "test_imports": [],
        "test_list": [
            "assert set(shared((3, 4, 5, 6), (5, 7, 4, 10))) == set((4, 5))",
            "assert shared((1,), (2,)) == ()",
        ],
    },
]


def test_rows_in_the_schema_of_sanitized_mbpp_score_their_solutions(tmp_path: Path) -> None:
    path = tmp_path / "sanitized-mbpp.json"
    path.write_text(json.dumps(SANITIZED), encoding="utf-8")
    env = CodeEnv(source=f"whole:{path}", time_limit=30.0)
    assert (len(env.rows), env.skipped_rows) == (3, 0)
    assert "Example 1: volume(10) gives about 4188.790204786391" in env.prompt(env.rows[0], 1)
    for task in env.rows:
        assert scores(env, task, task.solution) == ([[1.0, 1.0]], ["OK"])
    almost = "def volume(r): return 4.18 * r ** 3"
    other = "def volume(r): return 4.1 * r ** 3"
    assert scores(env, env.rows[0], almost, other)[0] == [[0.0, 0.0]] * 2
    assert scores(env, env.rows[0], "def volume(r): return 4.189 * r ** 3")[0] == [[1.0, 1.0]]


# --- real rows ---


def test_every_mbpp_solution_passes_all_its_tests() -> None:
    path = REALDATA / "mbpp" / "mbpp_a.jsonl"
    if not path.exists():
        pytest.skip(f"no rows at {path}")
    env = CodeEnv(source=f"whole:{path}", time_limit=30.0)  # a machine under load needs it
    tasks = env.rows  # all 487 take about 20 seconds on two cores
    batch = env.score_batch(tasks, [f"<answer>\n{task.solution}\n</answer>" for task in tasks])
    active = np.array([env.active(task) for task in tasks])
    failed = [task.title for task, row, on in zip(tasks, batch.rewards[:, 0], active, strict=True) if not row[on].all()]
    assert failed == []
    assert (batch.status == Status.OK).all()
