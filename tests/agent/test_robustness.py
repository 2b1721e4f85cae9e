"""What happens to a run from outside: kills, damage to its checkpoints, a full disk, too little memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import ROOT
from processes import PATIENCE, run_python

from vpo_agent.command.parser import run_script
from vpo_agent.config import Job, TrainConfig
from vpo_agent.job import train_and_report
from vpo_agent.learning import optimizer
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.whole_files import check_checkpoint, checkpoints
from vpo_agent.trainer import Trainer
from vpo_envs.common.libraries import check_libraries

MakeConfig = Callable[..., TrainConfig]


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_bits(tmp_path: Path) -> None:
    done = run_python(["benchmarks/kills.py", "--kills", "1", "--steps", "3", "--runs-dir", str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["kills"] == 1
    assert counts["runs"] >= 1
    assert counts["different"] == 0


# --- damage ---


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_run_with_a_damaged_checkpoint_goes_on_from_the_one_before_to_the_same_end(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str], lora_rank: int
) -> None:
    settings = {"checkpoint_every": 2, "lora_rank": lora_rank}
    whole = Trainer(letters_config(name="whole", steps=7, **settings))
    whole.train()
    Trainer(letters_config(steps=5, **settings)).train()
    folder = letters_config().runs_dir / "run" / "checkpoints"
    at_two, at_four, at_five = (folder / f"step_{step:06d}" for step in (2, 4, 5))
    assert checkpoints(at_five.parent) == [at_four, at_five]
    assert not at_two.exists()
    weights = next(at_five.glob("*model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-7] + b"\0" * 7)
    capsys.readouterr()
    again = Trainer(letters_config(steps=7, **settings), resume=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert len(lines) == 1
    assert str(at_five) in lines[0]
    assert "continuing from step_000004" in lines[0]
    assert again.step == 4
    again.train()
    assert again.folder.metrics.read_bytes() == whole.folder.metrics.read_bytes()
    for name, value in whole.policy.model.state_dict().items():
        assert torch.equal(value, again.policy.model.state_dict()[name])
    assert (at_five.parent / "damaged_step_000005").is_dir()
    assert [path.name for path in checkpoints(at_five.parent)] == ["step_000006", "step_000007"]


def test_a_checkpoint_of_another_run_is_refused(letters_config: MakeConfig) -> None:
    Trainer(letters_config(name="other", learning_rate=0.5)).train()
    Trainer(letters_config()).train()
    runs = letters_config().runs_dir
    (runs / "run" / "checkpoints" / "step_000003").rename(runs / "run" / "own")
    (runs / "other" / "checkpoints" / "step_000003").rename(runs / "run" / "checkpoints" / "step_000003")
    with pytest.raises(ValueError, match=r"the checkpoint '.*step_000003' has learning_rate=0.5, not 0.01"):
        Trainer(letters_config(), resume=True)


# --- a full disk ---

FILL = """
import toys
from vpo_agent.command.parser import run_script
from vpo_agent.config import Job
from vpo_agent.config import TrainConfig
from vpo_agent.job import train_and_report
from vpo_agent.learning import optimizer
from vpo_agent.trainer import Trainer

prepare = Trainer.prepare
def filling(self):
    if self.step == 3:
        {fill}
    return prepare(self)
Trainer.prepare = filling
run_script(lambda: train_and_report(Job(TrainConfig.model_validate_json({config!r}), resume=False, overwrite=False)))
"""


def run_until_full(config: TrainConfig, fill: str) -> subprocess.CompletedProcess[str]:
    return run_python(["-c", FILL.format(fill=fill, config=config.model_dump_json())])


def assert_stopped_and_goes_on(done: subprocess.CompletedProcess[str], config: TrainConfig, reason: str) -> None:
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    saved = checkpoints(config.runs_dir / "run" / "checkpoints")
    assert reason in line
    options = f"--resume --name run --runs-dir {config.runs_dir}"
    assert f"make room, then continue with {options}" in line
    assert line.endswith(f"; the last good checkpoint is {saved[-1]}")
    assert "Traceback" not in done.stderr
    for path in saved:
        check_checkpoint(path)
    assert saved[-1].name == "step_000003"


@pytest.mark.parametrize("limit", [20_000, 100])
def test_files_that_cannot_grow_end_the_run_in_one_line(letters_config: MakeConfig, limit: int) -> None:
    # 20,000 bytes hold the rows and not the weights; 100 do not hold the rows.
    config = letters_config(steps=6, checkpoint_every=1)
    fill = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    assert_stopped_and_goes_on(run_until_full(config, fill), config, "a file grew too large")
    again = Trainer(config, resume=True)
    again.train()
    whole = Trainer(letters_config(steps=6, checkpoint_every=1, name="whole"))
    whole.train()
    assert again.folder.metrics.read_bytes() == whole.folder.metrics.read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root, and not in every container")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("left", [40_000, 0])
def test_a_full_disk_ends_the_run_in_one_line(letters_config: MakeConfig, small_disk: Path, left: int) -> None:
    config = letters_config(steps=6, checkpoint_every=1, runs_dir=str(small_disk))
    fill = (
        "import os; s = os.statvfs({0!r}); f = open({0!r} + '/filler', 'wb'); "
        "f.write(bytes(max(0, s.f_bavail * s.f_frsize - {1}))); f.flush()"
    ).format(str(small_disk), left)
    assert_stopped_and_goes_on(run_until_full(config, fill), config, "no space is left")
    (small_disk / "filler").unlink()
    again = Trainer(config, resume=True)
    assert again.step == 3
    again.train()
    del again


# --- memory and libraries ---


def full(*arguments: Any, **options: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    ("place", "method", "line"),
    [
        ("model", "to", "error: out of memory for the model '.*': use a smaller one, or --dtype bfloat16"),
        ("optimizer", "zeros_like", "error: out of memory for the optimizer: give --lora-rank, or a smaller --model"),
        (
            "policy",
            "sample_batch",
            "error: out of memory for sampling .* responses at a time: lower --max-new-tokens.*",
        ),
    ],
)
def test_a_job_that_lacks_memory_ends_in_one_line(
    letters_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    method: str,
    line: str,
) -> None:
    owner = {"model": torch.nn.Module, "optimizer": optimizer.torch, "policy": LMPolicy}[place]
    monkeypatch.setattr(owner, method, full)

    def main() -> None:
        train_and_report(Job(letters_config(), resume=False, overwrite=False))

    with pytest.raises(SystemExit) as end:
        run_script(main)
    assert end.value.code == 1
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(line, said[-1]), said


def test_adapters_without_peft_are_refused_before_anything_is_made(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r"lora_rank=2 needs the package peft: pip install -e '.*\[lora\]'"):
        Trainer(letters_config(lora_rank=2))
    assert not letters_config().runs_dir.exists()


def test_the_libraries_here_are_those_that_are_needed() -> None:
    check_libraries()


@pytest.mark.parametrize(
    ("extras", "installed", "message"),
    [
        (
            (),
            {"transformers": "4.57.0"},
            r"vpo-gym needs transformers>=5, but version 4\.57\.0 is installed: pip install 'transformers>=5'",
        ),
        ((), {}, "vpo-gym needs transformers, which is not installed: pip install 'transformers>=5'"),
        (
            ("lora",),
            {"transformers": "5", "peft": "0.1"},
            r"vpo-gym needs peft>=0\.18, but version 0\.1 is installed: pip install 'peft>=0\.18'",
        ),
        (("lora",), {"transformers": "5", "peft": "0.18.1"}, ""),
        ((), {"transformers": "5", "peft": "0.1"}, ""),
    ],
)
def test_a_library_of_another_version_is_one_sentence(
    tmp_path: Path, extras: tuple[str, ...], installed: dict[str, str], message: str
) -> None:
    # Metadata that comes first on the path stands for what is installed.
    for name, number in {"vpo-gym": "0.1.0", "nothing-else": "1", **installed}.items():
        folder = tmp_path / f"{name.replace('-', '_')}-{number}.dist-info"
        folder.mkdir()
        needs = "Requires-Dist: transformers>=5\nRequires-Dist: peft>=0.18; extra == 'lora'\n"
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{needs if name == 'vpo-gym' else ''}"
        (folder / "METADATA").write_text(text)
    script = (
        "import sys\nfrom vpo_envs.common.libraries import check_libraries\n"
        f"sys.path[:] = [{str(tmp_path)!r}]\n"
        f"try:\n    check_libraries(*{extras!r})\nexcept ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(message, done.stdout.strip()), done.stdout + done.stderr
