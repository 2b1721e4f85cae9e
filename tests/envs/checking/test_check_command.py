"""``vpo check`` on environments: the suite's own pass, and a planted fault is named beside all that passed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from test_checker import Leaking, OutOfBounds, Random, TwoOfOneKind, WordEnv, WordTask

from vpo_agent.command import main, template
from vpo_envs import Objective
from vpo_envs.checking import checks
from vpo_envs.checking.checker import Finding, check_each
from vpo_envs.registration import env_type, text_env_ids

ALL = [(env_id, preset) for env_id in text_env_ids() for preset in env_type(env_id).presets]
# What runs in the sandbox is left out: its hundreds of programs take minutes. Reward models need models.
LEFT_OUT = ("vpo/RewardModels-v0", "vpo/Code-v0", "vpo/Programs-v0")
SUITE = [case for case in ALL if case[0] not in LEFT_OUT or case[1] == "compact"]
WARNINGS = {("vpo/Tools-v0", "paper"): {"stuffing": "in full on format"}}
"""What ``vpo check`` says of the suite, as docs/check.md explains."""


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "preset"), SUITE)
def test_the_suite_gets_only_the_warnings_that_are_explained(
    env_id: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SPLIT_TASKS", 2)  # tests/envs/tasks/test_splits.py compares many
    env: Any = gym.make(env_id, preset=preset)
    findings, rows = check_each(env)
    assert [one for one in findings if one.verdict in ("FAIL", "skipped")] == []
    assert [row.objective for row in rows] == list(env.unwrapped.objective_names)
    warnings = {one.check: one.detail for one in findings if one.verdict == "warning"}
    expected = WARNINGS.get((env_id, preset), {})
    assert warnings.keys() == expected.keys()
    assert all(detail in warnings[check] for check, detail in expected.items())


class Quiz(WordEnv):
    """Repeat the last letter of the word, whose sign was inverted by mistake."""

    objectives = (
        Objective("wrong", "Another letter", lambda outcome: float(outcome != "right")),
        Objective("brief", "Few letters", lambda outcome: 0.5),
    )

    def evaluate(self, task: WordTask, answer: str) -> str:
        return "right" if answer == task.word[-4:] else "wrong"

    def demonstrations(self, task: WordTask, rng: object, num_answers: int) -> list[str]:
        return [task.word[-4:]] * num_answers

    def outcome_front(self, task: WordTask) -> list[tuple[str, str]]:
        return [("wrong", "a")]


def failures(findings: list[Finding]) -> dict[str, str]:
    return {one.check: one.detail for one in findings if one.verdict == "FAIL"}


def test_planted_faults_of_an_environment_are_all_named() -> None:
    found = failures(check_each(Quiz())[0])
    assert "wrong (-1.00)" in found["sign"]
    assert "brief (always 0.5)" in found["constant objectives"]


@pytest.mark.parametrize(
    ("env_type", "check"),
    [
        (OutOfBounds, "range"),
        (Random, "determinism"),
        (TwoOfOneKind, "duplicate objectives"),
        (Leaking, "splits share no task"),
    ],
)
def test_a_broken_contract_does_not_end_the_table(env_type: type[WordEnv], check: str) -> None:
    findings, rows = check_each(env_type())
    assert check in failures(findings)
    assert {"sign", "override", "the spec survives JSON"} <= {one.check for one in findings}
    assert [row.objective for row in rows] == [one.name for one in env_type.objectives]


class Misspelt(WordEnv):
    def evaluate(self, task: WordTask, answer: str) -> str:
        return answer.uper()  # type: ignore[attr-defined,no-any-return]  # the mistake under test


class Untyped(WordEnv):
    def generate(self, rng: object) -> WordTask:
        return {"word": "abc"}  # type: ignore[return-value]  # the mistake under test


@pytest.mark.parametrize(
    ("env_type", "said"),
    [
        (Misspelt, r"AttributeError: 'str' object has no attribute 'uper' \(.*test_check_command\.py, line \d+\)"),
        (Untyped, r"task\(0\) is a dict, not a WordTask"),
    ],
)
def test_a_fault_that_ends_everything_is_one_row(env_type: type[WordEnv], said: str) -> None:
    findings, rows = check_each(env_type())
    (failure,) = failures(findings).values()
    assert re.search(said, failure)
    assert (findings[-1].check, findings[-1].verdict, rows) == ("all other checks", "skipped", [])


def test_the_command_checks_an_environment_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(template.__file__)
    assert main(["check", f"{file}:own/Note-v0", "--num-tasks", "3"]) == 0
    said = capsys.readouterr().out
    assert f"{file}:own/Note-v0, 3 tasks of split train" in said
    assert "determinism" in said


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["vpo/Nowhere-v0"], "unknown environment 'vpo/Nowhere-v0'"),
        (["nowhere.py:own/Env-v0"], "cannot import 'nowhere.py': there is no such file"),
        (["vpo/MazeSteps-v0"], "not a text environment"),
        (["vpo/RewardModels-v0"], "has nothing to score with: name reward models with"),
        (["vpo/Maze-v0", "--range", "0,1"], "--range is for the reward functions of --prompts"),
        (["vpo/Maze-v0", "--num-tasks", "0"], "--num-tasks must be at least 1"),
        (["vpo/Maze-v0", "--env-kwargs", '{"colour": 1}'], "takes no argument 'colour'"),
    ],
)
def test_what_cannot_be_checked_is_said(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *argv]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_check_says_whether_vpo_can_pay_and_what_prompts_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"Name {n}", "responses": [f"left {n}", f"right {n}"]} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "sides.py").write_text(
        "def left(prompt, response):\n    'The left side'\n"
        "    return float(response == prompt.replace('Name', 'left'))\n"
        "def right(prompt, response):\n    return float(response == prompt.replace('Name', 'right'))\n"
        "def neither(response): response == ''\n"
    )
    main(["check", "sides.py:left,right", "--prompts", "rows.jsonl"])
    shown = capsys.readouterr().out
    # One answer scores the mean of both weights, and two score the larger one, on average 3/4.
    assert "a set pays, but the vector adds little: the best three answers score 1.50 times as much as" in shown
    assert "prompts for several answers say: The objectives are left: The left side; right.\n" in shown
    main(["check", "sides.py:left", "--prompts", "rows.jsonl"])
    assert (
        "VPO can hardly pay: the best three answers score 1.00 times as much as the best one" in capsys.readouterr().out
    )
    assert main(["check", "sides.py:neither", "--prompts", "rows.jsonl"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"constant objectives +FAIL +None for each of \d+ answers, a forgotten return\? neither", shown)
    assert "whether VPO can pay is unknown: no answer that was tried earns anything" in shown
    assert main(["check", "vpo/Maze-v0", "--num-tasks", "2"]) == 0
    assert re.search(
        r"VPO can pay: .* times the best three by the scalar reward \(exact fronts of 2 tasks\)",
        capsys.readouterr().out,
    )
