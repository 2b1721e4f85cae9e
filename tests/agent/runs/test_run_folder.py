"""The folder of a run: when it may be used, and what stands in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # has no types

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.runs.rows import read_rows, rows_until
from vpo_agent.runs.run_folder import RunFolder


def config(runs: Path, **changes: Any) -> TrainConfig:
    return make_config({"runs_dir": str(runs), "name": "mine", **changes})


def opened(runs: Path, *, resume: bool = False, overwrite: bool = False, **changes: Any) -> RunFolder:
    return RunFolder.open(config(runs, **changes), resume=resume, overwrite=overwrite)


def finished(runs: Path) -> RunFolder:
    folder = opened(runs)
    folder.start(0)
    with folder.writer(0) as log:
        for step in (1, 2, 3):
            log.write({"kind": "train", "step": step, "loss": step / 2})
            log.write({"kind": "eval", "step": step, "regret": 0.5})
    return folder


def test_opening_writes_nothing(tmp_path: Path) -> None:
    opened(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_leaves_its_config_and_metrics(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    assert json.loads((folder.path / "config.json").read_text()) == config(tmp_path, date=folder.config.date).grouped()
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert rows[0] == {"kind": "train", "step": 1, "loss": 0.5}
    assert len(rows) == 6


def test_a_name_is_made_where_none_is_given(tmp_path: Path) -> None:
    folder = opened(tmp_path, name=None, method="grpo", seed=4)
    assert folder.path.name.startswith("maze-grpo-seed4-")


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(ValueError, match=r"mine' already holds a run: give --resume .* --overwrite .* another --name"):
        opened(tmp_path)


def test_overwriting_deletes_the_run_only_when_the_new_one_starts(tmp_path: Path) -> None:
    old = finished(tmp_path)
    folder = opened(tmp_path, overwrite=True, seed=5)
    assert len(old.metrics.read_text().splitlines()) == 6
    folder.start(0)
    assert folder.metrics.read_text() == ""
    assert json.loads((folder.path / "config.json").read_text())["run"]["seed"] == 5
    assert not (folder.path / "tensorboard").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_run_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not the folder of a run, so it is not touched"):
        opened(tmp_path, overwrite=overwrite)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        opened(tmp_path, overwrite=True)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write the run folder"):
        opened(tmp_path / "file").start(0)


def test_resuming_needs_a_name_and_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="resume needs the name of the run: give --name"):
        opened(tmp_path, resume=True, name=None)
    with pytest.raises(ValueError, match=r"there is no run to resume in '.*mine'"):
        opened(tmp_path, resume=True)


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(ValueError, match=r"has learning_rate=1e-06, not 0.1: resume it with its own settings"):
        opened(tmp_path, resume=True, learning_rate=0.1)
    opened(tmp_path, resume=True, steps=999, checkpoint_every=3, microbatch_prompts=1)


def test_resuming_drops_the_rows_that_come_again(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    with folder.metrics.open("a") as file:
        file.write('{"kind": "train", "st')
    folder.start(2)
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [("train", 1), ("eval", 1), ("train", 2), ("eval", 2)]


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    folder.start(1)
    with folder.writer(1) as log:
        for step in (2, 3):
            log.write({"kind": "train", "step": step, "loss": 10.0 * step})
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.5), (2, 20.0), (3, 30.0)]


def test_tensorboard_shows_each_step_once_where_a_run_starts_again(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    for value in (0.25, 0.5):
        folder.start(0)
        with folder.writer(0) as log:
            for step in range(2):
                log.write({"kind": "eval", "step": step, "regret": value + step})
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("eval/regret")] == [(0, 0.5), (1, 1.5)]


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.start(0)
    with folder.writer(0) as log:
        log.write({"kind": "train", "step": 1, "loss": float("nan"), "grad_norm": float("inf"), "kl": 0.5})
    row = json.loads(folder.metrics.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert row == {"kind": "train", "step": 1, "loss": None, "grad_norm": None, "kl": 0.5}


def test_what_a_clock_says_is_apart(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.start(0)
    with folder.writer(0) as log:
        log.write({"kind": "train", "step": 1, "loss": 0.5, "seconds_update": 1.5, "tokens_per_second": 9.0})
        log.write({"kind": "eval", "step": 1, "regret": 0.5})
    metrics, timings = (
        [json.loads(line) for line in path.read_text().splitlines()] for path in (folder.metrics, folder.timings)
    )
    assert metrics == [{"kind": "train", "step": 1, "loss": 0.5}, {"kind": "eval", "step": 1, "regret": 0.5}]
    assert timings == [{"kind": "train", "step": 1, "seconds_update": 1.5, "tokens_per_second": 9.0}]
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert events.Scalars("train/seconds_update")[0].value == 1.5
    folder.start(0)
    assert folder.timings.read_text() == ""


# --- damaged rows ---


@pytest.mark.parametrize(
    "torn", [b'{"kind": "train", "st', b"\0\0\0\n", b"\0\0\0\n\0\0\n", b'{"kind": "train"}\n', b"[]\n"]
)
def test_a_row_that_a_power_failure_cut_short_is_left_out_and_said(
    tmp_path: Path, torn: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path)
    rows = folder.metrics.read_bytes()
    folder.metrics.write_bytes(rows + torn)
    folder.start(3)
    assert folder.metrics.read_bytes() == rows
    numbers = "lines 7, 8 of" if torn.count(b"\n") == 2 else "line 7 of"
    assert numbers in capsys.readouterr().err


def test_a_damaged_line_among_rows_that_come_again_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path)
    rows = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.metrics.write_bytes(b"".join(rows[:4]) + b"\0\0\0\n" + rows[5])
    folder.start(2)
    assert folder.metrics.read_bytes() == b"".join(rows[:4])
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["metrics", "timings", "transcripts"])
def test_a_damaged_line_before_rows_of_the_run_is_refused_with_its_number(tmp_path: Path, name: str) -> None:
    folder = finished(tmp_path)
    path = getattr(folder, name)
    lines = [json.dumps({"kind": "train", "step": step}).encode() + b"\n" for step in (1, 2, 3)]
    damaged = lines[0] + lines[1][:7] + b"\n" + lines[2]
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"line 2 of '.*{name}.jsonl' is damaged: restore .* or delete that line"):
        folder.start(3)
    assert path.read_bytes() == damaged, "nothing is shortened"
    with pytest.raises(ValueError, match="line 2 of"):
        read_rows(path)


def test_rows_that_are_lost_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(tmp_path)
    rows = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.metrics.write_bytes(b"".join(rows[:2]) + rows[4][:10])
    folder.start(3)
    assert folder.metrics.read_bytes() == b"".join(rows[:2])
    said = capsys.readouterr().err
    assert "line 3 of" in said
    assert "lacks the rows of 2 of the 3 steps done so far" in said


def test_rows_are_shown_where_the_settings_say(tmp_path: Path) -> None:
    folder = opened(tmp_path, log="none")
    folder.start(0)
    with folder.writer(0) as log:
        log.write({"kind": "train", "step": 1, "loss": 0.5})
    assert folder.metrics.read_text() == '{"kind": "train", "step": 1, "loss": 0.5}\n'
    assert not (folder.path / "tensorboard").exists()


def test_weights_and_biases_keeps_rows_offline_in_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install 'vpo-gym[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = opened(tmp_path, log="wandb")
    folder.start(0)
    with folder.writer(0) as log:
        log.write({"kind": "train", "step": 1, "loss": 0.5, "kl": float("nan")})
        log.write({"kind": "eval", "step": 1, "regret": 0.25})
    wandb.teardown()  # waits for its process, which writes the last records after the run has finished here
    (path,) = folder.path.glob("wandb/offline-run-*/run-mine.wandb")
    # Records hold the names of the numbers and, as JSON, the numbers.
    records = path.read_bytes()
    for name, number in (("train/loss", "0.5"), ("eval/regret", "0.25")):
        assert re.search(rf"{name}[^a-z]{{1,12}}{number}".encode(), records, re.DOTALL), name
    assert b"train/kl" not in records


def test_every_damaged_line_at_the_end_of_a_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [f'{{"kind": "train", "step": {step}}}\n' for step in (1, 2)]
    path.write_text("".join([*rows, '{"kind": "train", "stp": 3}\n', '{"kind"']))
    assert rows_until(path, 2) == "".join(rows)
    assert capsys.readouterr().err == f"lines 3, 4 of {str(path)!r} are damaged, as by a power failure: left out\n"
    path.write_text("".join([*rows, '{"kind"']))
    rows_until(path, 2)
    assert capsys.readouterr().err == f"line 3 of {str(path)!r} was cut short, as by a power failure: left out\n"
