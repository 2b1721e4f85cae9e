"""The lock of a run folder: one process at a time, and free again however that process ends."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import PythonProcess, run_python

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.errors import RunStopped
from vpo_agent.runs.run_folder import RunFolder
from vpo_agent.runs.run_lock import LOCK_FILE, RunLock


def config(runs: Path, **changes: Any) -> TrainConfig:
    return make_config({"runs_dir": str(runs), "name": "mine", **changes})


def another_process(script: str) -> PythonProcess:
    """A process that runs the script and waits; it has said ``ready``."""
    process = PythonProcess(["-c", f"import os, time\n{script}\nprint('ready')\ntime.sleep(600)"])
    while (line := process.stdout.readline()) != "ready\n":
        assert line, "the process has ended"
        process.told = line  # type: ignore[attr-defined]
    return process


def writer_of(settings: TrainConfig) -> PythonProcess:
    return another_process(
        "from vpo_agent.config import TrainConfig\nfrom vpo_agent.runs.run_folder import RunFolder\n"
        f"settings = TrainConfig.model_validate_json({settings.model_dump_json()!r})\n"
        "folder = RunFolder.open(settings, resume=False, overwrite=True)\nfolder.start(0)"
    )


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    process = writer_of(config(tmp_path))
    try:
        before = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()}
        expected = rf"process {process.pid} on \S+ is writing the run in '.*mine': wait until it has ended, or choose"
        for how in ({"resume": True, "overwrite": False}, {"resume": False, "overwrite": True}):
            with pytest.raises(ValueError, match=expected):
                RunFolder.open(config(tmp_path), **how)
        assert {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()} == before
    finally:
        process.kill()
        process.wait()


def test_a_lock_whose_file_was_removed_is_taken_again(tmp_path: Path) -> None:
    folder = RunFolder.open(config(tmp_path), resume=False, overwrite=False)
    folder.start(0)
    (folder.path / LOCK_FILE).unlink()
    folder.check_held()
    assert str(os.getpid()) in (folder.path / LOCK_FILE).read_text()
    writer = another_process(
        "from pathlib import Path\nfrom vpo_agent.runs.run_lock import RunLock\n"
        f"try: RunLock.take(Path({str(folder.path)!r}))\nexcept ValueError as error: print(error)"
    )
    writer.kill()
    writer.wait()
    assert f"process {os.getpid()} on " in writer.told  # type: ignore[attr-defined]


def test_a_run_ends_where_another_process_took_its_lock(tmp_path: Path) -> None:
    folder = RunFolder.open(config(tmp_path), resume=False, overwrite=False)
    folder.start(0)
    (folder.path / LOCK_FILE).unlink()
    process = writer_of(config(tmp_path))
    try:
        with pytest.raises(RunStopped, match=f"lock file of this run was removed, and now process {process.pid} on "):
            folder.check_held()
    finally:
        process.kill()
        process.wait()


def test_a_run_ends_where_its_folder_was_deleted(tmp_path: Path) -> None:
    folder = RunFolder.open(config(tmp_path), resume=False, overwrite=False)
    folder.start(0)
    shutil.rmtree(folder.path)
    with pytest.raises(RunStopped, match="was deleted or replaced while the run was writing it"):
        folder.check_held()
    assert not folder.path.exists()
    with pytest.raises(RunStopped, match=r"cannot write the run in .*No such file"), folder.room():
        (folder.path / "pool.npz").write_bytes(b"")


def test_a_process_that_chose_the_folder_earlier_finds_it_taken(tmp_path: Path) -> None:
    late = RunFolder.open(config(tmp_path), resume=False, overwrite=False)
    process = writer_of(config(tmp_path, seed=9))
    try:
        with pytest.raises(ValueError, match=f"process {process.pid} on "):
            late.start(0)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ValueError, match="already holds a run"):
        RunFolder(tmp_path / "mine", config(tmp_path)).start(0)
    assert '"seed": 9' in (tmp_path / "mine" / "config.json").read_text()


def test_a_child_that_outlives_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    process = another_process(
        "from pathlib import Path\nfrom vpo_agent.runs.run_lock import RunLock\n"
        f"lock = RunLock.take(Path({str(tmp_path)!r}))\nread, write = os.pipe()\nchild = os.fork()\n"
        # What the child says shows that it has come as far as letting go of the lock.
        "if not child:\n    os.write(write, b'.')\n    time.sleep(600)\nos.read(read, 1)\nprint(child, flush=True)"
    )
    child = int(re.fullmatch(r"(\d+)\n", process.told)[1])  # type: ignore[attr-defined,index]
    try:
        with pytest.raises(ValueError, match="is writing the run"):
            RunLock.take(tmp_path)
        process.kill()
        process.wait()
        os.kill(child, 0)
        RunLock.take(tmp_path)
    finally:
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)


def test_within_a_process_the_lock_is_one_and_ends_with_its_last_owner(tmp_path: Path) -> None:
    first, second = RunLock.take(tmp_path), RunLock.take(tmp_path / "." / "")
    assert first is second
    command = ["-c", f"from vpo_agent.runs.run_lock import *; RunLock.take(Path({str(tmp_path)!r}))"]
    refused = run_python(command)
    assert f"process {os.getpid()} on" in refused.stderr
    del first
    gc.collect()
    assert run_python(command).returncode != 0
    del second
    gc.collect()
    assert run_python(command).returncode == 0


@pytest.mark.parametrize("left", [[".lock"], [".lock", ".config.json.writing"]])
def test_what_a_process_left_that_was_killed_at_its_start_is_no_run(tmp_path: Path, left: list[str]) -> None:
    (tmp_path / "mine").mkdir()
    for name in left:
        (tmp_path / "mine" / name).write_text("")
    RunFolder.open(config(tmp_path), resume=False, overwrite=False).start(0)
    assert (tmp_path / "mine" / "config.json").is_file()
