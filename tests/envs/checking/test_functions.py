"""Plain reward functions under ``vpo check``: every planted fault is found, and honest rewards pass."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest

from vpo_agent.command import main
from vpo_envs.checking.checker import check_each
from vpo_envs.checking.checks import CHECKS
from vpo_envs.checking.functions import FunctionRewards, read_rows
from vpo_envs.functions.rewards import load_functions

ROWS: list[dict[str, Any]] = [
    {"prompt": f"What is {a} + {b}? Show your work.", "answer": f"the sum of {a} and {b} is {a + b}", "sum": str(a + b)}
    for a, b in zip(range(12, 60, 4), range(41, 101, 5), strict=True)
]
chance = random.Random(0)


def right(response: str, sum: str) -> float:
    return float(response.split()[-1:] == [sum])


def worked(prompt: str, response: str) -> float:
    """Both numbers of the prompt occur in a sentence."""
    numbers = [word for word in prompt.replace("?", "").split() if word.isdigit()]
    return sum(word in response.split() for word in numbers) / 2 if response.startswith("the sum") else 0.0


def brief(completion: str) -> float:
    return 1.0 if len(completion) < 40 else 0.0


def batched(prompts: list[str], completions: list[str], sum: list[str], **_: Any) -> list[float]:
    assert len(prompts) == len(completions) == len(sum)
    return [right(text, number) for text, number in zip(completions, sum, strict=True)]


def wrong(response: str, sum: str) -> float:
    return 1 - right(response, sum)


def constant(response: str) -> float:
    return 0.25


def doubled(response: str, sum: str) -> float:
    return 0.5 * right(response, sum)


def echoed(prompt: str, response: str) -> float:
    words = set(prompt.split())
    return len(words & set(response.split())) / len(words)


def contained(response: str, sum: str) -> float:
    return float(sum in response)


def wavering(response: str, sum: str) -> float:
    return right(response, sum) * chance.random()


def unbounded(response: str) -> float:
    return len(response) / 20


def gullible(response: str, sum: str) -> float:
    return max(right(response, sum), float("SCORE: 10" in response))


def fragile(response: str, sum: str) -> float:
    return float(response.split()[-1] == sum)


def undefined(response: str, sum: str) -> float:
    return right(response, sum) if response else float("nan")


def generous(response: str) -> float:
    return 1.0


def hashed(response: str) -> float:
    return float(hash(response) % 2)


def tidy(response: str) -> float:
    return {"0": 1.0, "1": [].pop}.get(os.environ.get("PYTHONHASHSEED", "0"))  # type: ignore[return-value]  # a fault


def ordered(prompt: str, response: str, sum: str) -> float:
    """It ends as the first word of the prompt does, in the order of a set."""
    return right(response, sum) if next(iter(set(prompt.split()))) < "a" else 0.0


@cache
def findings(*functions: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    found, _ = check_each(FunctionRewards({one.__name__: one for one in functions}, ROWS))
    return {check: (verdict, detail) for check, verdict, detail in found}


def verdicts(*functions: Callable[..., Any]) -> dict[str, str]:
    return {check: verdict for check, (verdict, _) in findings(*functions).items()}


def detail(check: str, *functions: Callable[..., Any]) -> str:
    return findings(*functions)[check][1]


@pytest.mark.parametrize("functions", [(right, worked, brief), (batched, worked), (right,)])
def test_honest_rewards_pass(functions: tuple[Callable[..., Any], ...]) -> None:
    assert "FAIL" not in verdicts(*functions).values()


@pytest.mark.parametrize(
    ("planted", "check", "said"),
    [
        (wrong, "sign", "inverted, since right answers score less than others: wrong (-1.00)"),
        (constant, "constant objectives", "constant (always 0.25)"),
        (doubled, "duplicate objectives", "right and doubled (+1.000)"),
        (wavering, "determinism", "scored a second time, the response 'the sum of"),
        (hashed, "determinism", "scored in a process of another hash seed, the response "),
        (ordered, "determinism", "scored in a process of another hash seed, the response 'the sum of"),
        (unbounded, "range", "outside [0, 1]: unbounded gives "),
        (gullible, "override", "'SCORE: 10' lifts poor answers to full marks: gullible (100%)"),
        (fragile, "hostile text", f"fragile gives IndexError: list index out of range ({__file__}, line "),
        (undefined, "hostile text", "undefined gives a result that is not a finite number: the float nan"),
    ],
)
def test_a_planted_fault_is_found_beside_an_honest_objective(
    planted: Callable[..., Any], check: str, said: str
) -> None:
    assert verdicts(right, planted)[check] == "FAIL"
    assert said in detail(check, right, planted)
    assert verdicts(right, brief)[check] == "ok", "and not where it is not planted"


def test_a_function_that_no_other_process_finds_is_checked_in_this_one() -> None:
    def local(response: str, sum: str) -> float:
        return right(response, sum)

    said = detail("determinism", local)
    assert verdicts(local)["determinism"] == "ok"
    assert "again and again; not in another process: " in said
    assert "local" in said


def test_a_function_that_fails_in_another_process_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # so that the other process has another one
    assert verdicts(right, tidy)["determinism"] == "FAIL"


@pytest.mark.parametrize(
    ("functions", "check", "said"),
    [
        ((echoed,), "echo of the prompt", "in full on echoed"),
        ((right, echoed, echoed), "echo of the prompt", "in full on echoed"),
        ((contained,), "stuffing", "earns 100% of a good answer's reward; in full on contained"),
        ((generous,), "oracle and floor", "good answers earn 1.00, non-answers 1.00"),
    ],
)
def test_what_cheating_earns_is_said(functions: tuple[Callable[..., Any], ...], check: str, said: str) -> None:
    assert verdicts(*functions)[check] == "FAIL"
    assert said in detail(check, *functions)


def test_opposite_objectives_are_pointed_out() -> None:
    assert verdicts(right, wrong)["duplicate objectives"] == "warning"
    assert "right and wrong (-1.000)" in detail("duplicate objectives", right, wrong)


def test_objectives_that_do_not_look_at_the_prompt_have_no_sign() -> None:
    def lengthy(response: str) -> float:
        return min(1.0, len(response) / 60)

    for row in FunctionRewards({"a": brief, "b": lengthy}, ROWS).table():
        assert row.good == pytest.approx(row.others)
    assert verdicts(brief, lengthy)["sign"] == "ok"


def test_a_function_may_return_a_mapping_of_objectives_and_leave_some_out() -> None:
    def several(response: str, sum: str) -> dict[str, float | None]:
        return {"right": right(response, sum), "brief": brief(response) if response.endswith(sum) else None}

    def with_one_that_never_tells(response: str, sum: str) -> dict[str, float | None]:
        return {**several(response, sum), "never": None}

    rewards = FunctionRewards({"several": several}, ROWS)
    assert rewards.names == ("several.right", "several.brief")
    assert {one.check for one in check_each(rewards)[0] if one.verdict == "FAIL"} == set()
    rewards = FunctionRewards({"several": with_one_that_never_tells}, ROWS)
    assert rewards.names == ("several.right", "several.brief", "several.never")
    faults = {one.check: one.detail for one in check_each(rewards)[0] if one.verdict == "FAIL"}
    assert set(faults) == {"constant objectives"}
    assert faults["constant objectives"].endswith("a forgotten return? several.never")


# ------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    return path


MODULE = """
from test_functions import brief, constant, right, worked

good = [right, worked]
named = {"first": right, "second": brief}
bad = [right, constant]
clash = [right, right]
number = 5
def needs(response, colour): return 0.0
def fails(response): raise KeyError("lost")
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / f"rewards_{abs(hash(tmp_path))}.py"
    path.write_text(MODULE)
    return path


def test_the_command_prints_a_table_and_passes(module: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{module}:good", "--prompts", str(prompts), "--num-tasks", "5"]) == 0
    said = capsys.readouterr().out
    assert f"{module}:good, 5 prompts of {prompts}" in said
    assert "objective  lowest  highest  good answers  to other prompts  non-answers" in said
    assert "right      0.00    1.00     1.00          0.00              0.00" in said
    assert all(f"\n{check.name} " in said for check in CHECKS if check.of_functions)


def test_a_failed_check_is_exit_status_1(module: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{module}:bad", "--prompts", str(prompts)]) == 1
    captured = capsys.readouterr()
    assert "constant objectives   FAIL" in captured.out
    assert captured.err == "error: 1 of 10 checks failed: constant objectives\n"


@pytest.mark.parametrize(
    ("ranges", "status", "said"),
    [
        (["right=0,1", "penalty=-200,0"], 0, "right in [0, 1]; penalty in [-200, 0]"),
        (["penalty=-20,0"], 1, "outside [-20, 0]: penalty gives -200 for the response"),
        (
            ["-200,1"],
            1,
            "all in [-200, 1]",
        ),  # a range far too wide for the other function, whose reward hardly counts then
        ([], 1, "outside [0, 1]: penalty gives -200 for the response"),
    ],
)
def test_each_function_may_have_a_range_of_its_own(
    ranges: list[str], status: int, said: str, module: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module.write_text(MODULE + "def penalty(prompt, response): return 200 * worked(prompt, response) - 200\n")
    options = [option for text in ranges for option in ("--range", text)]
    assert main(["check", f"{module}:right,penalty", "--prompts", str(prompts), *options]) == status
    assert said in capsys.readouterr().out


def stuffed(response: str, sum: str) -> float:
    return float(sum in response.split())


@pytest.mark.parametrize("functions", [(right, brief), (right,), (right, stuffed), (brief, worked)])
def test_a_reward_on_another_scale_is_judged_as_the_same_reward(functions: tuple[Callable[..., Any], ...]) -> None:
    def stretched(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def lower(**columns: Any) -> float:
            return 200 * function(**columns) - 200

        return lower

    named = {one.__name__: one for one in functions}
    last = functions[-1].__name__
    other = FunctionRewards({**named, last: stretched(functions[-1])}, ROWS, {last: (-200.0, 0.0)})
    verdicts = [
        [(found.check, found.verdict) for found in check_each(subject)[0]]
        for subject in (FunctionRewards(named, ROWS), other)
    ]
    assert verdicts[0] == verdicts[1]


def test_functions_are_named_in_several_ways(module: Path) -> None:
    assert list(load_functions(f"{module}:right,brief")) == ["right", "brief"]
    assert list(load_functions(f"{module}:named")) == ["first", "second"]
    assert list(load_functions("math:sqrt")) == ["sqrt"]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("nowhere.py:f", [], "cannot import 'nowhere.py': there is no such file"),
        ("no_such_module:f", [], "cannot import 'no_such_module': ModuleNotFoundError"),
        ("math", [], "reward functions are named as MODULE:NAME or FILE.py:NAME, got 'math'"),
        ("math:nothing", [], "'nothing' of 'math' is neither a function nor a list or mapping of functions"),
        ("{}:number", [], "'number' of "),
        ("{}:clash", [], "two reward functions have the name 'right'"),
        ("{}:needs", [], "needs needs 'colour', which is neither prompt, response nor a field of the rows"),
        ("{}:fails", [], "line 10), for the good answer of row 1"),
        (
            "{}:good",
            ["--range", "1,0"],
            "the range of right must be two finite numbers, the lower one first, such as 0,1; got [1.0, 0.0]",
        ),
        ("{}:good", ["--range", "right=0,1", "--range", "right=0,2"], "--range is given twice for right: give it once"),
        ("{}:good", ["--range", "low"], "--range must be like 0,1 or NAME=0,1 or measured, got 'low'"),
        ("{}:good", ["--range", "brieff=0,2"], "ranges name 'brieff', which is no objective: they are right, worked"),
        (
            "{}:good",
            ["--range", "measured"],
            "--range measured is for training: without it, the columns lowest and highest",
        ),
        ("{}:good", ["--env-kwargs", '{"a": 1}'], "--env-kwargs needs an environment"),
        ("{}:good", ["--prompts", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_what_cannot_be_checked_is_said_in_a_sentence(
    target: str, options: list[str], message: str, module: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", target.format(module), "--prompts", str(prompts), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1, not JSON"),
        ('{"prompt": "a"}', "row 1 of .* has no good answer: a row is like"),
        ('["a"]', "row 1, a row is a JSON object, got str"),
        ('{"prompt": 5, "answer": "a"}', "line 1, field 'prompt': it is neither a text nor a chat"),
        ('{"prompt": "a", "answer": "b"}', "needs two rows or more"),
    ],
)
def test_rows_are_checked(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(line)
    with pytest.raises(ValueError, match=message):
        read_rows(str(path))


def test_a_chat_is_a_prompt_and_a_whole_response_may_stand_for_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "response": "r"}
    path.write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n")
    rows = read_rows(str(path))
    assert rows[0]["prompt"] == row["prompt"]
    case = FunctionRewards({"f": lambda response: 1.0}, rows).cases[0]
    assert (case.prompt, case.good) == ("s\n\nu", ("r",))
