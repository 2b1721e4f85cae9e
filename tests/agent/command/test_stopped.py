"""After Ctrl-C a command says how to go on, in words that can be pasted."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from vpo_agent import job
from vpo_agent.command import main, options
from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS
from vpo_agent.runs import study_file, targets
from vpo_agent.runs.continuing import vpo_command
from vpo_envs.common import imports


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


GOES_ON = "finished {} are kept, and the same command continues"
NOTHING, NO_STEP = "nothing was done yet", "no step was taken yet"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("module", "function", "argv", "said"),
    [
        (study_file, "read_study", ["study", "my study.toml"], GOES_ON.format("steps")),
        (targets, "find_model", ["search", "tiny-maze"], GOES_ON.format("tasks")),
        (imports, "import_modules", ["compare", "runs/one", "--import", "mine.py"], NOTHING),
        (job, "Trainer", ["train", "--steps", "1"], NO_STEP),
    ],
)
def test_a_command_that_is_stopped_says_what_is_kept_and_how_to_go_on(
    module: ModuleType,
    function: str,
    argv: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, function, stop)
    assert main(argv) == 130
    again = f".venv/bin/vpo {shlex.join(argv)}" if "continues" in said else "give the same command again"
    assert capsys.readouterr().err == f"stopped; {said}: {again}\n"


def test_a_script_that_is_stopped_as_it_starts_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "parse_job", stop)
    with pytest.raises(SystemExit) as ended:
        train_script("", TASKS["maze"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"stopped; {NO_STEP}: give the same command again\n"


def test_a_warning_is_one_line_without_the_source_that_gave_it(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    good = {"question": "What is 1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}
    rows.write_text(f"{json.dumps(good)}\n{json.dumps({'question': 'no answer'})}\n")
    kwargs = json.dumps({"source": f"whole:{rows}", "on_bad_row": "skip"})
    words = ["-m", "vpo_agent.command", "envs", "vpo/GSM8K-v0", "--env-kwargs", kwargs]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("warning: skipped 1 bad row and kept 1; the first: ")
    assert done.stderr.count("\n") == 1
