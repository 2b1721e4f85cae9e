"""``vpo eval`` on runs and models: it samples what the trainer would, from the checkpoint that was named."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import toys
from gguf_files import write_gguf

from vpo_agent.command import main
from vpo_agent.config import TrainConfig
from vpo_agent.measure.pool import Pool
from vpo_agent.trainer import Trainer

SMALL = ["--eval-prompts", "4", "--k", "6"]


@pytest.fixture
def run(finished: Callable[..., tuple[TrainConfig, str]]) -> Path:
    """A finished run of three steps, with its checkpoints after steps 2 and 3."""
    return finished(checkpoint_every=2)[0].runs_dir / "run"


def test_a_full_disk_leaves_the_pool_that_was_sampled(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("matplotlib.figure.Figure.savefig", full)
        assert main(["eval", str(run), *SMALL, "--out", str(tmp_path / "new" / "report")]) == 2
    kept = tmp_path / "new" / "report.sampled.npz"
    said = capsys.readouterr().err
    assert "No space left on device; what was sampled is kept, so give " in said
    assert f"vpo eval {kept} --out {tmp_path / 'new' / 'report'}\n" in said
    assert Pool.load(kept).responses == Pool.load(run / "pool_after.npz").responses
    assert main(["eval", str(run), *SMALL, "--out", str(tmp_path / "new" / "report")]) == 0
    assert not kept.exists()


def test_the_newest_checkpoint_gives_the_runs_own_pool_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), *SMALL]) == 0
    assert "after 3 steps" in capsys.readouterr().out
    own, again = Pool.load(run / "pool_after.npz"), Pool.load(run / "eval_test_step_000003" / "pool.npz")
    np.testing.assert_array_equal(again.rewards, own.rewards)
    assert again.responses == own.responses
    assert again.source == own.source


def test_a_checkpoint_and_the_initial_model_are_named(run: Path) -> None:
    pools = {}
    for name, step in (("2", 2), ("base", 0)):
        assert main(["eval", str(run), "--checkpoint", name, *SMALL]) == 0
        pools[name] = Pool.load(run / f"eval_test_step_{step:06d}" / "pool.npz")
        assert pools[name].source["step"] == step
    assert pools["2"].responses != pools["base"].responses


def test_an_evaluation_with_other_settings_leaves_the_earlier_one(run: Path) -> None:
    for options in (["--num-answers", "1"], ["--num-answers", "2"], ["--num-answers", "1"]):
        assert main(["eval", str(run), *SMALL, *options]) == 0
    found = {folder.name: Pool.load(folder / "pool.npz").rewards.shape[2] for folder in run.glob("eval_*")}
    assert found == {"eval_test_step_000003": 1, "eval_test_step_000003_2": 2}


def test_options_change_what_is_sampled(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--split", "validation", "--temperature", "0.5", "--num-answers", "1", "--seed", "9", "--out", str(out)]
    assert main(["eval", str(run), "--env-kwargs", '{"data_seed": 3}', *options, *SMALL]) == 0
    pool = Pool.load(out / "pool.npz")
    assert pool.rewards.shape == (4, 6, 1, 2)
    assert pool.source["env_kwargs"] == {"data_seed": 3}
    known = {name: pool.source[name] for name in ("split", "temperature", "num_answers", "seed")}
    assert known == {"split": "validation", "temperature": 0.5, "num_answers": 1, "seed": 9}


def test_a_model_is_asked_in_the_environment_that_is_named(
    letters_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--num-answers", "3", "--max-new-tokens", "14", "--device", "cpu", "--out", str(out), *SMALL]
    assert main(["eval", str(letters_model), "--env", toys.LETTERS_ID, *options]) == 0
    assert f"4 test prompts of {toys.LETTERS_ID}; 2 rollouts of 3 answers to each" in capsys.readouterr().out
    assert Pool.load(out / "pool.npz").source["model"] == str(letters_model)


@pytest.fixture
def gguf_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command that evaluates ``models/tiny.gguf`` in an empty folder."""
    pytest.importorskip("gguf", reason="needs the gguf extra, which the dev extra installs")
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    options = ["--env", toys.LETTERS_ID, "--num-answers", "3", "--max-new-tokens", "40", "--device", "cpu", *SMALL]
    return ["eval", "models/tiny.gguf", *options]


def test_a_gguf_file_is_evaluated_as_a_model_into_a_folder_of_its_name(gguf_eval: list[str]) -> None:
    tokenizer = toys.bpe_tokenizer()
    write_gguf(Path("models/tiny.gguf"), toys.tiny_model("llama", tokenizer), tokenizer)
    assert main(gguf_eval) == 0
    [folder] = Path("runs").iterdir()
    assert folder.name.endswith("_tiny")
    assert Pool.load(folder / "pool.npz").source["model"] == "models/tiny.gguf"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint", "7"], "has no checkpoint 7: it has 2, 3"),
        (["--checkpoint", "last"], "--checkpoint must be a whole number, got 'last'"),
        (["--env", "vpo/Maze-v0"], "is a run, which has its own environment"),
        (["--num-answers", "500", "--max-new-tokens", "100"], "500 answers do not fit into a response"),
        (["--env-kwargs", '{"split": "train"}'], "give --split"),
        (["--env-kwargs", '{"colour": "red"}'], "takes no argument 'colour'"),
        (["--temperature", "0"], "--temperature must be above 0"),
        (["--eval-prompts", "1"], "--eval-prompts must be at least 2"),
        (["--max-new-tokens", "4000"], "lower max_new_tokens"),
    ],
)
def test_what_cannot_be_sampled_is_said_in_a_sentence(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    before = sorted(file.name for file in run.iterdir())
    assert main(["eval", str(run), *SMALL, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(file.name for file in run.iterdir()) == before


def test_a_run_without_checkpoints_says_so(
    letters_config: Callable[..., TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(letters_config())
    assert main(["eval", str(trainer.folder.path), *SMALL]) == 2
    assert "has no checkpoint yet: give --checkpoint base" in capsys.readouterr().err


def test_a_name_that_may_be_a_models_is_answered_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "tiny-maz"]) == 2
    assert capsys.readouterr().err == (
        "error: 'tiny-maz' is neither a run nor a sample file: did you mean tiny-maze? to evaluate it as a model, add "
        "--env, such as --env vpo/Maze-v0\n"
    )
    assert main(["eval", "tiny-maze"]) == 2
    assert capsys.readouterr().err == (
        "error: 'tiny-maze' is neither a run nor a sample file: to evaluate it as a model, add --env vpo/Maze-v0 "
        """--env-kwargs '{"preset": "compact"}' --max-new-tokens 60\n"""
    )
