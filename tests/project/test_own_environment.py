"""The environment that `vpo new` writes and `docs/own_environment.md` walks through: checked, shown, played, taught."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from vpo_agent.command import main, template
from vpo_envs import check_vector_env

NOTE = "own/Note-v0"


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """The commands that `vpo new` prints."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my_task.py"]) == 0
    yield re.findall(r"vpo(?:_agent.command)? (.*?)   # ", capsys.readouterr().out)
    gym.registry.pop("own/MyTask-v0", None)


def test_the_commands_that_are_printed_check_teach_and_train_it(
    printed: list[str], no_figures: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"--steps": "1", "--batch": "4", "--eval-every": "1"}
    short = [*("--eval-prompts", "2"), *("--eval-answers", "3")]
    check, teach, train, explore = (line.split() for line in printed)
    assert main(check) == 0
    assert "FAIL" not in capsys.readouterr().out
    teach = [few.get(before, word) for before, word in zip(["", *teach], teach, strict=False)]
    assert main([*teach, *short]) == 0
    train = [few.get(before, word) for before, word in zip(["", *train], train, strict=False)]
    assert main([*train, *short, "--prompts-per-step", "1"]) == 0
    assert main([*explore, "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").is_file()


def test_a_file_that_is_there_is_kept(printed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_task.py").write_text("mine")
    assert main(["new", "my_task.py"]) == 2
    assert capsys.readouterr().err == "error: cannot write 'my_task.py': File exists\n"
    assert (tmp_path / "my_task.py").read_text() == "mine"
    assert main(["new", "my-menu.txt"]) == 2
    assert "'my-menu.txt' is no name of a module: give one such as my_task.py" in capsys.readouterr().err


@pytest.fixture(scope="module")
def env() -> Any:
    return template.NoteEnv(num_answers=3)


def test_it_passes_every_check(env: Any) -> None:
    assert check_vector_env(gym.make(NOTE, num_answers=3)).skipped == ()


def test_its_front_is_that_of_all_short_notes(env: Any) -> None:
    task = env.task(5)
    notes = [words for length in (1, 2, 3, 4) for words in combinations([*task.facts, "hello", "filler"], length)]
    vectors = {
        (len({*note} & {*task.facts}) / 3, float("hello" in note), 1 - len(note) / template.MOST_WORDS)
        for note in notes
    }
    best = {v for v in vectors if not any(w != v and all(x >= y for x, y in zip(w, v, strict=True)) for w in vectors)}
    assert {tuple(point.vector) for point in env.front(task)} == best


def test_vpo_envs_and_play_show_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["envs", NOTE, "--import", template.__name__]) == 0
    scores = re.findall(r"facts (\S+), greeting (\S+), brevity (\S+)", capsys.readouterr().out)
    good, poor = [sum(map(float, vector)) for vector in scores]
    assert poor < 0.8 * good
    monkeypatch.setattr("sys.stdin", io.StringIO("hello Ada\n"))
    assert main(["play", NOTE, "--import", template.__name__, "--seed", "1"]) == 0
    assert "greeting" in capsys.readouterr().out
