"""Runs and pools may come from anybody: what they name is imported only if it was asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
from pools import maze_pool

from vpo_agent.command import main
from vpo_agent.command.options import parse_job
from vpo_agent.config import make_config, read_run_config
from vpo_agent.presets import TASKS

ID = "received/Letters-v0"


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that leaves a trace when it runs."""
    file = tmp_path / "received_env.py"
    file.write_text(
        "from pathlib import Path\nimport gymnasium as gym\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        f"gym.register({ID!r}, entry_point='toys:LettersEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    yield file
    gym.registry.pop(ID, None)
    sys.modules.pop("received_env", None)


def ran(folder: Path) -> bool:
    return (folder / "ran").exists()


def test_a_pool_imports_nothing(received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = maze_pool(0)
    source = {**pool.source, "env": f"{received}:{ID}", "env_kwargs": {}}
    replace(pool, source=source).save(tmp_path / "pool.npz")
    assert main(["eval", "pool.npz"]) == 0
    main(["explore", "pool.npz"])
    assert not ran(tmp_path)
    shown = capsys.readouterr()
    assert f"--import {received}" in shown.out + shown.err


def test_a_run_imports_nothing_until_it_is_asked_for(
    received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config = make_config({"name": "run", "env": f"{received}:{ID}", "imports": [str(received)], "runs_dir": tmp_path})
    (run / "config.json").write_text(json.dumps(config.grouped()))
    assert main(["eval", str(run)]) == 2
    assert f"which runs only if you ask for it: add --import {received}, or" in capsys.readouterr().err
    resume = ["--resume", "--name", "run", "--runs-dir", str(tmp_path)]
    with pytest.raises(ValueError, match="which runs only if you ask for it: add --import"):
        parse_job(resume, description="", presets={"maze": TASKS["maze"]["compact"]})
    assert not ran(tmp_path)
    job = parse_job([*resume, "--import", str(received)], description="", presets={"maze": TASKS["maze"]["compact"]})
    assert ran(tmp_path)
    assert job.config.env == config.env
    assert read_run_config(run).env == ID
