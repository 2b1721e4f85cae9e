"""``vpo warm-start``: what it writes, that it can be continued, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import envs_data
from vpo_agent.command import main
from vpo_agent.config import check_settings, read_values
from vpo_agent.learning.recipe import Recipe
from vpo_agent.learning.warm_start import WarmStart
from vpo_agent.policy.language_model import LMPolicy
from vpo_envs.tasks.code.compact import CodeCompactEnv

SHORT = ["--steps", "4", "--batch", "4", "--eval-every", "2", "--eval-prompts", "2", "--eval-answers", "3"]
CODE = ["warm-start", "--env", "vpo/CodeCompact-v0", "--positions", "96", *SHORT]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("warm") / "made"
    assert main([*CODE, "--out", str(out)]) == 0
    return out


def test_the_folder_holds_a_policy_its_recipe_and_what_it_reached(made: Path) -> None:
    policy = LMPolicy.from_pretrained(made)
    env = CodeCompactEnv()
    assert policy.tokenizer.unk_token_id not in policy.encode_prompts([env.prompt(env.task(0), 3)])[0][0].tolist()
    recipe = json.loads((made / "recipe.json").read_text())
    assert (recipe["env"], recipe["steps"], recipe["answers"]) == ("vpo/CodeCompact-v0", 4, [1, 3])
    rows = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        for m in (1, 3):
            assert 0 <= row[f"readable (m={m})"] <= 1
            assert 0 <= row[f"pool utility (m={m})"] <= row[f"front (m={m})"] <= 1


def test_the_recipe_of_a_model_makes_it_again(made: Path, tmp_path: Path) -> None:
    assert main(["warm-start", "--recipe", str(made / "recipe.json"), "--out", str(tmp_path / "again")]) == 0
    assert_same_weights(made, tmp_path / "again")


def test_a_stopped_warm_start_continues_to_the_same_weights(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = WarmStart.step

    def stop(self: WarmStart) -> float:
        if self.done == 3:
            raise KeyboardInterrupt
        return whole(self)

    out = str(tmp_path / "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(WarmStart, "step", stop)
        assert main([*CODE, "--out", out]) == 130
    assert main(["warm-start", "--out", out, "--resume"]) == 0
    assert_same_weights(made, tmp_path / "stopped")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "{made}", "--env", "vpo/CodeCompact-v0"], "holds a warm start already"),
        (["--out", "{made}", "--resume", "--batch", "5"], "has another batch"),
        (["--out", "{new}", "--resume", "--env", "vpo/CodeCompact-v0"], "no checkpoint to resume from"),
        (["--out", "{new}"], "needs an environment"),
        (
            ["--out", "{new}", "--env", "vpo/CodeCompact-v0", "--learning-rate", "3"],
            "learning_rate=3.0 is invalid: it must be below 1",
        ),
        (["--out", "{new}", "--env", "vpo/CodeCompact-v0", "--answers", "1", "0"], "answers.1=0 is invalid"),
    ],
)
def test_what_it_refuses(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    places = {"made": made, "new": tmp_path / "new"}
    assert main(["warm-start", *(one.format(**places) for one in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("steps = 'many'", "steps='many' is invalid: input should be a valid integer"),
        ("steps = true", "steps=True is invalid"),
        ("batch = 0", "batch=0 is invalid: it must be at least 1"),
        ("answers = []", "answers=[] is invalid"),
        ("answers = [1, 0]", "answers.1=0 is invalid: it must be at least 1"),
        ("env_kwargs = 'paper'", "env_kwargs='paper' is invalid"),
        ("responses = 3", "batch=64 does not hold whole groups of responses=3"),
        ("learn_rate = 0.1", "unknown setting 'learn_rate': did you mean 'learning_rate'?"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    file, out = tmp_path / "odd.toml", tmp_path / "new"
    file.write_text(f"env = 'vpo/CodeCompact-v0'\n{setting}\n")
    assert main(["warm-start", "--recipe", str(file), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert repr(str(file)) in line
    assert message in line
    assert not out.exists()


@pytest.mark.parametrize("path", sorted(Path(envs_data.__file__).parent.glob("*/recipe.json")), ids=str)
def test_the_recipes_of_bundled_models_can_be_read(path: Path) -> None:
    stated = read_values(path)
    recipe = check_settings(Recipe, {"env": "before recipes named it", **stated}, str(path))
    assert stated.items() <= recipe.model_dump().items()


def assert_same_weights(first: Path, second: Path) -> None:
    one, other = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
