"""Trackers: imported only where a run asks for one, told everything, and going on with the same run after a resume."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vpo_agent.config import TrainConfig
from vpo_agent.runs.run_folder import RunFolder, read_metrics
from vpo_agent.trainer import Trainer

MakeConfig = Callable[..., TrainConfig]

# The calls, by the signatures of wandb 0.31, which brings dozens of packages, so the tests do not install it.
WANDB = """
import json, os
def _note(*entry):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps(entry) + "\\n")
class Run:
    def log(self, data, step=None, commit=None):
        _note("log", data, step)
    def finish(self, exit_code=None, quiet=None):
        _note("finish", exit_code)
def init(entity=None, project=None, dir=None, id=None, name=None, notes=None, tags=None, config=None, resume=None):
    _note("init", project, dir, id, name, config, resume)
    return Run()
"""


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A stand-in for a tracker that writes down what it is told."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "wandb.py").write_text(WANDB)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("TOLD", str(tmp_path / "told.jsonl"))
    yield "wandb"
    sys.modules.pop("wandb", None)


def told(tmp_path: Path) -> list[Any]:
    return [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]


def test_a_tracker_gets_every_number_of_metrics_and_timings(
    letters_config: MakeConfig, tmp_path: Path, tracker: str
) -> None:
    trainer = Trainer(letters_config(tracker=tracker, steps=2, eval_every=1))
    trainer.train()
    first, *logs, last = told(tmp_path)
    assert first[:2] == ["init", "vpo-gym"]
    assert first[5]["learning_rate"] == 1e-2
    assert "runs_dir" not in first[5]
    assert last == ["finish", 0]
    written = [*read_metrics(trainer.folder.metrics), *read_metrics(trainer.folder.timings)]
    expected = {
        (row["step"], f"{row['kind']}/{name}", value)
        for row in written
        for name, value in row.items()
        if name not in ("kind", "step") and value is not None
    }
    assert {(step, name, value) for _, row, step in logs for name, value in row.items()} == expected
    assert any("seconds_update" in name for _, name, _ in expected)


def test_a_resumed_run_goes_on_as_the_same_run(letters_config: MakeConfig, tmp_path: Path, tracker: str) -> None:
    Trainer(letters_config(tracker=tracker, steps=1)).train()
    Trainer(letters_config(tracker=tracker, steps=2), resume=True).train()
    first, second = (entry for entry in told(tmp_path) if entry[0] == "init")
    assert first[3] == second[3]
    assert second[6] == "allow"
    Trainer(letters_config(tracker=tracker, steps=1), overwrite=True).train()
    assert [entry for entry in told(tmp_path) if entry[0] == "init"][-1][3] != first[3]


def test_a_tracker_that_is_not_installed_is_known_before_anything_is_made(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = letters_config(tracker="wandb")
    with pytest.raises(ValueError, match=r"tracker=wandb needs the package wandb: pip install -e '.*\[wandb\]'"):
        RunFolder.open(config, resume=False, overwrite=False)
    assert not config.runs_dir.exists()


def test_a_run_without_a_tracker_imports_none(tracker: str, letters_config: MakeConfig, tmp_path: Path) -> None:
    Trainer(letters_config(steps=1)).train()
    assert tracker not in sys.modules
    assert not (tmp_path / "told.jsonl").exists()
