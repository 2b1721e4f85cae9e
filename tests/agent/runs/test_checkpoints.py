"""Checkpoints: whole or not there, the newest few, exact, and never taken for whole when they are damaged."""

from __future__ import annotations

import errno
import json
import random
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.policy import generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.checkpoints import load_checkpoint, save_checkpoint
from vpo_agent.runs.whole_files import check_checkpoint, checkpoints, newest_whole


def loaded(folder: Path, dtype: str = "float32") -> tuple[LMPolicy, MasterAdamW]:
    policy = LMPolicy.from_pretrained(folder, device="cpu", dtype=dtype)
    return policy, MasterAdamW(policy.model.named_parameters(), learning_rate=1e-3, beta2=0.999, weight_decay=0.01)


def step(policy: LMPolicy, optimizer: MasterAdamW, tokens: int) -> None:
    optimizer.zero_grad()
    policy.model(torch.arange(10, 10 + tokens)[None]).logits.float().square().mean().backward()
    optimizer.step(1e-3, 1.0)


def test_only_the_newest_stay(bpe_model: Path, tmp_path: Path) -> None:
    policy, optimizer = loaded(bpe_model)
    for at in (1, 2, 3):
        save_checkpoint(tmp_path, at, policy, optimizer, {}, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000002", "step_000003"]
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000002", "step_000003"]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("step_1000000", "step_999999", "step_000010"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000010", "step_999999", "step_1000000"]


def test_what_was_left_half_written_is_ignored_and_cleared_away(bpe_model: Path, tmp_path: Path) -> None:
    policy, optimizer = loaded(bpe_model)
    save_checkpoint(tmp_path, 1, policy, optimizer, {}, keep=3)
    unfinished = tmp_path / ".writing_step_000002"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    (tmp_path / "step_notes").mkdir()
    (tmp_path / "step_000009").write_text("a file")
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000001"]
    assert newest_whole(tmp_path) == (tmp_path / "step_000001", [])
    save_checkpoint(tmp_path, 3, policy, optimizer, {}, keep=3)
    assert not unfinished.exists()


def test_a_step_can_be_saved_again(bpe_model: Path, tmp_path: Path) -> None:
    policy, optimizer = loaded(bpe_model)
    save_checkpoint(tmp_path, 1, policy, optimizer, {"note": "first"}, keep=2)
    again = save_checkpoint(tmp_path, 1, policy, optimizer, {"note": "second"}, keep=2)
    assert json.loads((again / "state.json").read_text())["note"] == "second"


@pytest.mark.parametrize("file", ["state.json", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_named(bpe_model: Path, tmp_path: Path, file: str) -> None:
    policy, optimizer = loaded(bpe_model)
    step(policy, optimizer, 5)
    saved = save_checkpoint(tmp_path, 1, policy, optimizer, {}, keep=2)
    (saved / file).write_bytes(b"\x00\x01")
    with pytest.raises(ValueError, match=r"cannot resume from the checkpoint '.*step_000001'"):
        load_checkpoint(saved, optimizer)


# --- damage ---


def saved_at(folder: Path, bpe_model: Path, *steps: int) -> None:
    policy, optimizer = loaded(bpe_model)
    step(policy, optimizer, 5)
    for at in steps:
        save_checkpoint(folder, at, policy, optimizer, {}, keep=9)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_the_manifest_states_the_sha256_of_every_other_file(bpe_model: Path, tmp_path: Path) -> None:
    saved_at(tmp_path, bpe_model, 1)
    saved = tmp_path / "step_000001"
    stated = json.loads((saved / "manifest.json").read_text())["sha256"]
    files = sorted(path for path in saved.iterdir() if path.name != "manifest.json")
    listed = subprocess.run(["sha256sum", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    assert stated == {Path(line[66:]).name: line[:64] for line in listed}


def test_a_checkpoint_holds_safetensors_and_text_alone(bpe_model: Path, tmp_path: Path) -> None:
    saved_at(tmp_path, bpe_model, 1)
    for path in (tmp_path / "step_000001").iterdir():
        assert path.suffix in (".safetensors", ".json", ".jinja"), path.name


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("model.safetensors", damage) for damage in (flip_a_bit, cut_short, Path.unlink)),
        *(("manifest.json", damage) for damage in (flip_a_bit, cut_short, Path.unlink)),
        ("state.json", Path.unlink),
        ("tokenizer.json", flip_a_bit),
    ],
)
def test_damage_is_noticed_and_the_checkpoint_before_is_taken(
    bpe_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, damage: Callable[[Path], None]
) -> None:
    saved_at(tmp_path, bpe_model, 1, 2)
    first, second = checkpoints(tmp_path)
    capsys.readouterr()
    assert newest_whole(tmp_path) == (second, [])
    assert capsys.readouterr().err == ""
    damage(second / file)
    assert newest_whole(tmp_path) == (first, [second])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{str(second)!r} is damaged (" in line
    assert line.endswith("continuing from step_000001, the one before it")


def test_a_file_beside_those_of_a_checkpoint_is_no_damage(bpe_model: Path, tmp_path: Path) -> None:
    saved_at(tmp_path, bpe_model, 1)
    saved = tmp_path / "step_000001"
    (saved / "notes.txt").write_text("the best so far")
    check_checkpoint(saved)


def test_where_every_checkpoint_is_damaged_all_are_named(bpe_model: Path, tmp_path: Path) -> None:
    saved_at(tmp_path, bpe_model, 1, 2, 3)
    first, second, third = checkpoints(tmp_path)
    flip_a_bit(first / "model.safetensors")
    for checkpoint in (second, third):
        (checkpoint / "state.json").unlink()
    with pytest.raises(ValueError, match=r"no intact checkpoint .* --overwrite") as caught:
        newest_whole(tmp_path)
    assert "\n" not in str(caught.value)
    reasons = {first: "model.safetensors does not match its SHA-256", second: "state.json is missing"}
    for checkpoint, why in {**reasons, third: "state.json is missing"}.items():
        assert f"{str(checkpoint)!r} is damaged ({why}" in str(caught.value)
    assert newest_whole(tmp_path / "nothing") == (None, [])


def test_a_save_that_fails_leaves_nothing_and_deletes_nothing(
    bpe_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_at(tmp_path, bpe_model, 1)
    policy, optimizer = loaded(bpe_model)

    def no_room(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(policy, "save", no_room)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path, 2, policy, optimizer, {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    check_checkpoint(tmp_path / "step_000001")


# --- what else is in it ---


def test_the_global_generators_go_on_where_they_were(
    bpe_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request that an earlier test left behind takes the pauses between its retries from the global one.
    assert generators.random is random
    alone = random.Random(0)
    monkeypatch.setattr(generators, "random", alone)

    def draw() -> list[float]:
        return [alone.random(), alone.gauss(0, 1), float(np.random.normal()), float(torch.rand(()))]  # noqa: NPY002

    policy, optimizer = loaded(bpe_model)
    draw()
    saved = save_checkpoint(tmp_path, 1, policy, optimizer, {}, keep=1)
    expected = draw()
    assert draw() != expected
    load_checkpoint(saved, optimizer)
    assert draw() == expected


def test_a_change_of_libraries_is_a_line_and_no_error(
    bpe_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_at(tmp_path, bpe_model, 1)
    saved = tmp_path / "step_000001"
    state = json.loads((saved / "state.json").read_text())
    assert state["versions"]["torch"] == torch.__version__
    capsys.readouterr()
    load_checkpoint(saved, loaded(saved)[1])
    assert "was written with" not in capsys.readouterr().err
    state["versions"] |= {"torch": "2.6.0", "numpy": "2.0.0"}
    (saved / "state.json").write_text(json.dumps(state))
    load_checkpoint(saved, loaded(saved)[1])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "was written with" in line]
    assert line.startswith(f"step_000001 was written with torch 2.6.0, now {version('torch')}: the numbers that follow")
    (saved / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot resume from the checkpoint .*; it was written with torch 2.6.0"):
        load_checkpoint(saved, loaded(saved)[1])
