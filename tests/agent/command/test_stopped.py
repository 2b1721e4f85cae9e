"""After Ctrl-C a command says how to go on, in words that can be pasted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from vpo_agent import job
from vpo_agent.command import main, options
from vpo_agent.command.train import train_script
from vpo_agent.presets import MAZE
from vpo_agent.runs import study, targets
from vpo_agent.runs.loop import vpo_command
from vpo_envs import registration


def stop(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment in the current folder, with the command ``vpo``, which is not active."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "vpo").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_command_is_one_that_the_shell_finds(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vpo_command("train", "--name", "a b") == ".venv/bin/vpo train --name 'a b'"
    monkeypatch.chdir("/usr")
    assert vpo_command("train") == f"{installed}/vpo train"
    monkeypatch.setenv("PATH", str(installed))
    assert vpo_command("train") == "vpo train"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert vpo_command("train") == f"{tmp_path}/python -m vpo_agent.command train"


@pytest.mark.usefixtures("installed")
def test_a_study_that_is_stopped_names_its_own_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "read_study", stop)
    assert main(["study", "my study.toml", "--seeds", "0"]) == 130
    assert capsys.readouterr().err == (
        "stopped; finished steps are kept, and the same command continues: "
        ".venv/bin/vpo study 'my study.toml' --seeds 0\n"
    )


@pytest.mark.usefixtures("installed")
def test_a_search_that_is_stopped_names_its_own_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(targets, "find_model", stop)
    assert main(["search", "tiny-maze", "--prompts", "3"]) == 130
    assert capsys.readouterr().err == (
        "stopped; finished instances are kept, and the same command continues: "
        ".venv/bin/vpo search tiny-maze --prompts 3\n"
    )


def test_a_command_that_is_stopped_while_it_imports_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registration, "import_modules", stop)
    assert main(["compare", "runs/one", "--import", "mine.py"]) == 130
    assert capsys.readouterr().err == "stopped; nothing was done yet: give the same command again\n"


def test_a_script_that_is_stopped_as_it_starts_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "parse_job", stop)
    with pytest.raises(SystemExit) as ended:
        train_script("", MAZE)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "stopped; no step was taken yet: give the same command again\n"


def test_training_that_is_stopped_before_its_first_step_starts_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "Trainer", stop)
    assert main(["train", "--steps", "1"]) == 130
    assert capsys.readouterr().err == "stopped; no step was taken yet: give the same command again\n"
