"""Harbor's job folders, made here in the form that its documentation states."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vpo_agent.command import main


def add_trial(
    job: Path, name: str, task: str, rewards: Any = None, *, agent: str = "a", error: str = "", text: str | None = None
) -> None:
    folder = job / f"{task}__{name}"
    (folder / "verifier").mkdir(parents=True)
    result = {
        "task_name": task,
        "trial_name": folder.name,
        "agent_info": {"name": agent, "version": "1", "model_info": {"name": "m", "provider": "p"}},
        "verifier_result": None,
        "exception_info": {"exception_type": error, "exception_message": "…"} if error else None,
    }
    (folder / "result.json").write_text(json.dumps(result))
    if rewards is not None:
        (folder / "verifier" / "reward.json").write_text(json.dumps(rewards))
    if text is not None:
        (folder / "verifier" / "reward.txt").write_text(text)


def table(printed: str) -> dict[str, list[str]]:
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\S+) \|", printed, flags=re.MULTILINE)
    return {name: [tasks, mean] for name, tasks, mean in rows}


def test_trials_are_measured_as_sets_and_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "jobs" / "2026-11-01__10-00-00"
    job.mkdir(parents=True)
    (job / "result.json").write_text(json.dumps({"stats": {}, "n_total_trials": 7}))
    add_trial(job, "1", "build", {"tests": 1, "speed": 0})
    add_trial(job, "2", "build", {"tests": 0, "speed": 1.0})
    add_trial(job, "3", "build", {"tests": 0.5, "speed": 0.0}, error="AgentTimeoutError")
    add_trial(job, "4", "build", {"tests": 1})
    add_trial(job, "5", "build", error="RewardFileNotFoundError")
    add_trial(job, "6", "build", {"tests": float("nan"), "speed": "fast"})
    add_trial(job, "1", "fix", text="1\n")
    assert main(["eval", "--harbor", str(tmp_path / "jobs")]) == 0
    printed = capsys.readouterr().out
    assert "7 trials of 2 tasks." in printed
    assert "Left out: 2 trials without a reward (RewardFileNotFoundError 1, no exception 1)." in printed
    assert "Left out because a reward of their task is missing: 1 trial (speed 1)." in printed
    assert "Measured although they ended with an exception: 1 trial." in printed
    found = table(printed)
    # E[w1], E[w2] and E[w1 / 2] are 1/2, 1/2 and 1/4; E[max(w1, w2)] is 3/4; the task with one number earns 1.
    assert found["utility@1"] == ["2", f"{((0.5 + 0.5 + 0.25) / 3 + 1) / 2:.3f}"]
    assert found["utility@3"] == ["1", "0.750"]
    assert found["trials"] == ["2", "2.000"]
    assert found["front"] == ["2", "1.500"]
    assert found["coverage"] == ["2", "1.000"]
    assert f"(best three trials / best trial): {(0.75 + 1) / (0.5 + 1):.2f}" in printed


def test_agents_are_apart_and_covered_against_the_front_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, vector in enumerate(np.eye(2)):
        add_trial(tmp_path, f"b{number}", "t", dict(zip("xy", vector, strict=True)), agent="both")
    add_trial(tmp_path, "one", "t", {"x": 1, "y": 0}, agent="one")
    add_trial(tmp_path, "odd", "t", {"x": -1, "y": 3}, agent="wide")
    add_trial(tmp_path, "none", "t", agent="crashed", error="DaytonaError")
    assert main(["eval", "--harbor", str(tmp_path)]) == 0
    parts = capsys.readouterr().out.split("## ")[1:]
    assert [part.split("\n")[0] for part in parts] == ["both m", "crashed m", "one m", "wide m"]
    assert [table(part).get("coverage", ["", ""])[1] for part in parts] == ["0.667", "", "0.333", "0.333"]
    assert "Rewards range from -1 to 3" in parts[-1]
    assert "1 trial without a reward (DaytonaError 1)" in parts[1]


def test_a_report_on_fewer_than_half_of_the_trials_begins_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_trial(tmp_path, "whole", "t", {"tests": 1, "speed": 0})
    for name in "abc":
        add_trial(tmp_path, name, "t", {"tests": 1})
    add_trial(tmp_path, "none", "t")
    assert main(["eval", "--harbor", str(tmp_path)]) == 0
    why = "3 without speed, 1 without any reward"
    said = f"Warning: 4 of 5 trials are left out ({why}): the measures describe the other trials."
    assert capsys.readouterr().out.startswith(f"{said}\n")


def test_a_folder_without_trials_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text("[")
    assert main(["eval", "--harbor", str(tmp_path)]) == 2
    assert "holds no trials of Harbor: give a folder of jobs, such as jobs/" in capsys.readouterr().err
    assert main(["eval", "tiny-maze", "--harbor", str(tmp_path)]) == 2
    assert "'tiny-maze' does not apply to trials of --harbor: leave it out" in capsys.readouterr().err
