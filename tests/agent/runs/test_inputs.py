"""What a training reads beside its settings: what counts as a change of it, and what happens then."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toys

from vpo_agent.command import main
from vpo_agent.config import Job, TrainConfig
from vpo_agent.job import train_and_report
from vpo_agent.measure.pool import Pool
from vpo_agent.runs.inputs import accepted_changes, changed_inputs, hash_inputs
from vpo_agent.runs.run_data import keep_data
from vpo_agent.runs.study import runs_of, runs_with_changed_inputs
from vpo_agent.runs.study_file import read_study
from vpo_agent.trainer import Trainer
from vpo_envs.common import imports
from vpo_envs.registration import make_text_env
from vpo_envs.tasks.maze.env import MazeEnv

REWARDS = """
from marks import MARK
def letter(response):
    "How many letters are the first one"
    return response.count(MARK) / 6
def brief(response):
    "Brevity"
    import lengths
    return 1 - len(response) / lengths.MOST
"""
MakeConfig = Callable[..., TrainConfig]
Edit = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with prompts, and reward functions that import from beside them."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"write {i}", "answer": "aaa"} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    (tmp_path / "marks.py").write_text("MARK = 'a'\n")
    (tmp_path / "lengths.py").write_text("MOST = 20\n")
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    yield tmp_path
    forget()


def forget() -> None:
    """Let modules be imported again, as another process would."""
    for name in ("own_rewards", "marks", "lengths", "own_task"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    imports._asked.clear()


def train(model: Path, *options: str) -> int:
    forget()
    own = "--prompts rows.jsonl --rewards own_rewards.py:letter,brief --name own --num-answers 1"
    short = "--prompts-per-step 2 --rollouts-per-prompt 4 --max-new-tokens 8 --kl-coef 0"
    held_out = ["--eval-prompts", "3", "--eval-answers", "4"]
    return main(["train", *own.split(), "--model", str(model), *short.split(), *held_out, *options])


def shorten(path: Path) -> None:
    path.write_text("\n".join(path.read_text().splitlines()[::2]))


def appended(text: str) -> Edit:
    def edit(path: Path) -> None:
        path.write_text(path.read_text() + text)

    return edit


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("rows.jsonl", shorten),
        ("own_rewards.py", appended("\n# another line\n")),
        ("marks.py", appended("MARK = 'b'\n")),
        ("lengths.py", appended("MOST = 10\n")),
    ],
)
def test_a_run_is_not_resumed_with_other_contents_of_a_file(
    folder: Path,
    letters_model: Path,
    no_figures: None,
    capsys: pytest.CaptureFixture[str],
    file: str,
    edit: Edit,
) -> None:
    assert train(letters_model, "--steps", "1") == 0
    before = {path: path.read_bytes() for path in sorted((folder / "runs/own").rglob("*")) if path.is_file()}
    edit(folder / file)
    capsys.readouterr()
    assert train(letters_model, "--steps", "2", "--resume") == 2
    refused = capsys.readouterr().err
    assert refused == (
        f"error: the run in 'runs/own' was made with other contents of {file}: restore them, or add --accept-changes "
        "to continue with their present contents, which measures the base again\n"
    )
    kept = {path: path.read_bytes() for path in sorted((folder / "runs/own").rglob("*")) if path.is_file()}
    assert kept == before


def test_a_run_is_resumed_where_only_other_files_have_changed(
    folder: Path, letters_model: Path, no_figures: None
) -> None:
    assert train(letters_model, "--steps", "1") == 0
    (folder / "unrelated.py").write_text("x = 2\n")
    (folder / "rows.jsonl").touch()
    assert train(letters_model, "--steps", "2", "--resume") == 0
    assert accepted_changes(folder / "runs/own") == []


def test_an_accepted_change_measures_the_model_before_training_again_and_is_said(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(letters_model, "--steps", "1") == 0
    (folder / "rows.jsonl").write_text((folder / "rows.jsonl").read_text().replace("write", "print"))
    capsys.readouterr()
    assert train(letters_model, "--steps", "2", "--resume", "--accept-changes") == 0
    assert "rows.jsonl changed: sampling it again from the base" in capsys.readouterr().out
    before, after = (Pool.load(folder / "runs/own" / f"pool_{label}.npz") for label in ("before", "after"))
    assert before.source["step"] == 0
    assert before.tasks == after.tasks, "both are answers to the new prompts"
    said = "This run was continued after step 1 with other contents of rows.jsonl."
    assert said in (folder / "runs/own/results.md").read_text()
    # It is noted, so the next time nothing is asked.
    assert train(letters_model, "--steps", "3", "--resume") == 0
    assert said in (folder / "runs/own/results.md").read_text()


def test_accepting_changes_needs_a_run_that_is_continued(
    folder: Path, letters_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(letters_model, "--accept-changes") == 2
    assert "--accept-changes is for a run that is continued: add --resume" in capsys.readouterr().err
    words = ["warm-start", "--env", "vpo/Maze-v0", "--out", "warm", "--accept-changes"]
    assert main(words) == 2
    assert "--accept-changes is for a warm start that is continued: add --resume" in capsys.readouterr().err


def test_other_weights_under_the_same_path_are_a_change(letters_config: MakeConfig, tmp_path: Path) -> None:
    model = toys.save_letters_model(tmp_path / "model")
    config = letters_config(model=str(model), steps=1)
    Trainer(config).train()
    toys.save_letters_model(tmp_path / "model", letters="abcd")
    with pytest.raises(ValueError, match=rf"other contents of the model {model}: restore"):
        Trainer(config, resume=True)
    trainer = Trainer(config, resume=True, accept_changes=True)
    assert trainer.folder.changed_inputs == [f"the model {model}"]


def test_a_finished_run_is_not_reported_on_with_other_prompts(
    letters_config: MakeConfig, no_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = letters_config(steps=1)
    train_and_report(config)
    prompt = toys.LettersEnv.prompt
    monkeypatch.setattr(toys.LettersEnv, "prompt", lambda env, task, m: f"{prompt(env, task, m)} please")
    with pytest.raises(ValueError, match=f"other contents of the prompts or scores of {toys.LETTERS_ID}: restore"):
        train_and_report(Job(config, resume=True))


def hashes(env_id: str = "vpo/Maze-v0", model: str | None = None, **env_kwargs: Any) -> dict[str, str]:
    envs = [make_text_env(env_id, **env_kwargs, split=split) for split in ("train", "test")]
    return hash_inputs(env_id, env_kwargs, envs, model=model)


def test_an_environment_of_the_suite_is_recognised_by_what_it_asks_and_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = hashes(preset="compact")
    assert list(noted) == ["the prompts or scores of vpo/Maze-v0"]
    assert changed_inputs(noted, hashes(preset="compact")) == []
    with monkeypatch.context() as patched:
        vector = MazeEnv.reward_vector
        patched.setattr(MazeEnv, "reward_vector", lambda env, outcome: tuple(r / 2 for r in vector(env, outcome)))
        assert changed_inputs(noted, hashes(preset="compact"))
    with monkeypatch.context() as patched:
        prompt = MazeEnv.prompt
        patched.setattr(MazeEnv, "prompt", lambda env, task, m: prompt(env, task, m))  # A refactoring.
        assert changed_inputs(noted, hashes(preset="compact")) == []


def test_reward_models_and_folders_that_an_environment_names_are_inputs(tmp_path: Path) -> None:
    model = toys.save_reward_model(tmp_path / "judge")
    noted = hashes("vpo/RewardModels-v0", models={"judge": model})
    assert model in noted
    toys.save_reward_model(tmp_path / "judge", seed=1)
    assert changed_inputs(noted, hashes("vpo/RewardModels-v0", models={"judge": model})) == [model]


def test_each_file_of_the_splits_and_the_base_of_adapters_are_inputs(tmp_path: Path) -> None:
    row = json.dumps({"question": "What is 1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"})
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text(row)
    source = str(tmp_path / "{split}.jsonl")
    noted = hashes("vpo/GSM8K-v0", source=source)
    (tmp_path / "test.jsonl").write_text(row.replace("1 + 1?", "1 + 1 ?"))
    assert changed_inputs(noted, hashes("vpo/GSM8K-v0", source=source)) == [str(tmp_path / "test.jsonl")]

    base, adapters = tmp_path / "base", tmp_path / "adapters"
    for path in (base, adapters):
        path.mkdir()
        (path / "model.safetensors").write_text("weights")
    (adapters / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    noted = hashes(model=str(adapters))
    (base / "training.log").write_text("no part of a model")
    assert changed_inputs(noted, hashes(model=str(adapters))) == []
    (base / "model.safetensors").write_text("others")
    assert changed_inputs(noted, hashes(model=str(adapters))) == [f"the model {base}"]


def test_a_warm_start_is_not_resumed_with_other_demonstrations(
    folder: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "--prompts rows.jsonl --rewards own_rewards.py:letter,brief --batch 4 --eval-every 2 --eval-prompts 2"
    words = ["warm-start", *own.split(), "--answers", "1", "--eval-answers", "2", "--out", "warm"]
    assert main([*words, "--steps", "2"]) == 0
    forget()
    (folder / "rows.jsonl").write_text((folder / "rows.jsonl").read_text().replace("aaa", "bbb"))
    capsys.readouterr()
    assert main([*words, "--steps", "2", "--resume"]) == 2
    refused = "error: the warm start in 'warm' was made with other contents of rows.jsonl: restore them, or add "
    assert capsys.readouterr().err.startswith(refused)
    forget()
    assert main([*words, "--steps", "2", "--resume", "--accept-changes"]) == 0
    assert json.loads((folder / "warm/inputs.json").read_text())["accepted"] == [{"step": 2, "changed": ["rows.jsonl"]}]


def test_a_search_is_not_continued_with_other_prompts(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--env", "own/Functions-v0", "--import", "own_rewards.py", "--env-kwargs"]
    kwargs = json.dumps({"source": "rows.jsonl", "rewards": "own_rewards.py:letter"})
    short = "--eval-prompts 2 --method best-of-n --iterations 2 --max-new-tokens 8"
    words = ["search", str(letters_model), *own, kwargs, *short.split(), "--out", "found"]
    assert main(words) == 0
    shorten(folder / "rows.jsonl")
    forget()
    assert main(words) == 2
    assert "'found' holds a search with other contents of rows.jsonl: restore them" in capsys.readouterr().err


STUDY = """
name = "tiny"
seeds = [0]
baseline = "vpo"
[settings]
env = "own/Functions-v0"
env_kwargs = { source = "rows.jsonl", rewards = "own_rewards.py:letter,brief" }
imports = ["own_rewards.py"]
steps = 1
prompts_per_step = 2
rollouts_per_prompt = 4
max_new_tokens = 8
kl_coef = 0.0
eval_prompts = 2
eval_answers = 3
num_answers = 1
[[methods]]
label = "vpo"
settings = { method = "vpo" }
[[methods]]
label = "grpo"
settings = { method = "grpo" }
"""


def test_a_study_names_a_run_that_was_made_with_other_rewards(
    folder: Path, letters_model: Path, no_figures: None
) -> None:
    (folder / "study.toml").write_text(STUDY.replace("steps = 1", f'steps = 1\nmodel = "{letters_model}"'))

    def runs() -> Any:
        forget()
        return runs_of(read_study(folder / "study.toml"), folder / "runs", folder / "results")

    first, second = runs()
    train_and_report(first.config)
    assert runs_with_changed_inputs(runs(), accept=False) == []
    # Another content that scores alike: rewards that cannot tell answers apart are refused when the run is resumed.
    (folder / "marks.py").write_text("MARK = 'a' * 1\n")
    with pytest.raises(ValueError, match=r"the run in '.*tiny/vpo-seed0' was made with other contents of marks.py"):
        runs_with_changed_inputs(runs(), accept=False)
    (changed,) = runs_with_changed_inputs(runs(), accept=True)
    assert changed == first
    assert changed.finished
    train_and_report(Job(changed.config, resume=True, accept_changes=True))
    assert runs_with_changed_inputs(runs(), accept=False) == []
    assert not second.finished
    keep_data(first, first.folder, commit="")
    shutil.rmtree(first.folder)
    assert runs_with_changed_inputs(runs(), accept=False) == []
    (folder / "marks.py").write_text("MARK = 'a' * 1 * 1\n")
    with pytest.raises(ValueError, match=r"the data file '.*vpo-seed0.npz' was made with other contents of marks.py"):
        runs_with_changed_inputs(runs(), accept=False)
    assert runs_with_changed_inputs(runs(), accept=True) == [first]
