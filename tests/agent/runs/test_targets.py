"""What a command's target stands for: runs, checkpoints, model folders, bundled and Hub names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from envs_data import bundled_model_path
from vpo_agent.runs.targets import find_model, load_policy, near_target, target_name

CONFIG = '{"run": {"env": "vpo/Maze-v0", "model": "tiny-maze"}}'


@pytest.fixture
def run(bpe_model: Path, tmp_path: Path) -> Path:
    """A run folder with two checkpoints of which the newer is the model, and an unfinished one."""
    folder = tmp_path / "runs" / "mine"
    for step in ("step_000050", "step_000100"):
        shutil.copytree(bpe_model, folder / "checkpoints" / step)
        (folder / "checkpoints" / step / "state.json").write_text("{}")
    (folder / "checkpoints" / ".writing_step_000150").mkdir()
    (folder / "config.json").write_text(CONFIG)
    return folder


def test_a_run_stands_for_its_newest_whole_checkpoint_and_an_older_one_can_be_chosen(run: Path) -> None:
    assert find_model(str(run)) == str(run / "checkpoints" / "step_000100")
    assert find_model(str(run), 50) == str(run / "checkpoints" / "step_000050")


def test_the_policy_of_a_run_has_the_weights_of_its_checkpoint(run: Path, bpe_model: Path) -> None:
    policy, original = load_policy(str(run), device="cpu"), load_policy(str(bpe_model), device="cpu")
    for name, parameter in original.model.state_dict().items():
        assert torch.equal(parameter, policy.model.state_dict()[name])


def test_bundled_models_and_names_on_the_hub_are_known_by_name(bpe_model: Path) -> None:
    assert find_model("tiny-maze") == str(bundled_model_path("tiny-maze"))
    assert find_model("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"
    assert find_model(str(bpe_model)) == str(bpe_model)


def test_targets_have_short_names(run: Path) -> None:
    assert target_name(str(run)) == "mine"
    assert target_name(str(run / "checkpoints" / "step_000050")) == "mine/step_000050"
    assert target_name("tiny-maze") == "tiny-maze"
    assert target_name("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


@pytest.mark.parametrize(
    ("target", "checkpoint", "message"),
    [
        ("runs/nowhere", None, "'runs/nowhere' does not exist: give the folder of a run"),
        ("", None, "'' does not exist"),
        ("{tmp}/a/b", None, "/a/b' does not exist: give the folder of a run, such as runs/NAME, or of a model"),
        ("{tmp}/runs/mime", None, "/runs/mime' does not exist: did you mean {run}\\? give the folder"),
        ("tiny-maze", 3, "'tiny-maze' is not the folder of a run, so it has no checkpoint 3: leave --checkpoint out"),
        ("{run}", 70, "has no checkpoint 70: it has 50, 100"),
        ("{tmp}", None, "neither a run nor a model, since it has no config.json: give the folder of a run"),
    ],
)
def test_what_is_not_there_is_said(
    run: Path, tmp_path: Path, target: str, checkpoint: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("{run}", str(run))):
        find_model(target.format(run=run, tmp=tmp_path), checkpoint)


def test_a_name_that_was_probably_meant_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near_target("mine") == "did you mean runs/mine? "
    assert near_target("tiny-maz") == "did you mean tiny-maze? "
    assert near_target("runs/something-else") == ""


def test_a_run_inside_trl_stands_for_its_model(bpe_model: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text(CONFIG)
    shutil.copytree(bpe_model, tmp_path / "model")
    # As long as its step is not written, the model may be half written.
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        find_model(str(tmp_path))
    (tmp_path / "model" / "state.json").write_text('{"step": 7}')
    assert find_model(str(tmp_path)) == find_model(str(tmp_path), 7) == str(tmp_path / "model")
    with pytest.raises(ValueError, match="has no checkpoint 3: it has 7"):
        find_model(str(tmp_path), 3)
