"""Checkpoints: whole or not there, the newest few, and exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vpo_agent.checkpoints import checkpoints, load_checkpoint, save_checkpoint, write_text_atomically
from vpo_agent.optimizer import MasterAdamW
from vpo_agent.policy import LMPolicy


def loaded(folder: Path, dtype: str = "float32") -> tuple[LMPolicy, MasterAdamW]:
    policy = LMPolicy.from_pretrained(folder, device="cpu", dtype=dtype)
    return policy, MasterAdamW(policy.model.named_parameters(), learning_rate=1e-3, beta2=0.999, weight_decay=0.01)


def step(policy: LMPolicy, optimizer: MasterAdamW, tokens: int) -> None:
    optimizer.zero_grad()
    policy.model(torch.arange(10, 10 + tokens)[None]).logits.float().square().mean().backward()
    optimizer.step(1e-3, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_goes_on_exactly_from_a_checkpoint(bpe_model: Path, tmp_path: Path, dtype: str) -> None:
    policy, optimizer = loaded(bpe_model, dtype)
    for tokens in (5, 7):
        step(policy, optimizer, tokens)
    saved = save_checkpoint(tmp_path, 2, policy, optimizer, {"skipped_steps": 1}, keep=2)
    again, its_optimizer = loaded(saved, dtype)
    state = load_checkpoint(saved, its_optimizer)
    assert (state["step"], state["skipped_steps"]) == (2, 1)
    step(policy, optimizer, 9)
    step(again, its_optimizer, 9)
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, dict(again.model.named_parameters())[name]), name
        assert torch.equal(optimizer.masters[name], its_optimizer.masters[name]), name


def test_only_the_newest_stay(bpe_model: Path, tmp_path: Path) -> None:
    policy, optimizer = loaded(bpe_model)
    for at in (1, 2, 3):
        save_checkpoint(tmp_path, at, policy, optimizer, {}, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000002", "step_000003"]
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000002", "step_000003"]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("step_1000000", "step_999999", "step_000010"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("{}")
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000010", "step_999999", "step_1000000"]


def test_what_was_left_half_written_is_ignored_and_cleared_away(bpe_model: Path, tmp_path: Path) -> None:
    policy, optimizer = loaded(bpe_model)
    save_checkpoint(tmp_path, 1, policy, optimizer, {}, keep=3)
    unfinished = tmp_path / ".writing_step_000002"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    (tmp_path / "step_000009").mkdir()
    (tmp_path / "step_notes").mkdir()
    (tmp_path / "step_notes" / "state.json").write_text("{}")
    assert [path.name for path in checkpoints(tmp_path)] == ["step_000001"]
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


def test_a_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("old")
    write_text_atomically(path, "new")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["table.md"]
