"""``vpo warm-start``: what it writes, that it can be continued, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from gguf_files import write_gguf
from safetensors.torch import load_file

import envs_data
from vpo_agent.command import main
from vpo_agent.config import Recipe, TrainConfig, check_settings, read_values
from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.learning.warm_start import WarmStart
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples
from vpo_agent.runs.checkpoints import save_checkpoint
from vpo_agent.runs.continuing import vpo_command
from vpo_agent.trainer import Trainer
from vpo_envs import register_env
from vpo_envs.tasks.musique.compact import MuSiQueCompactEnv

SHORT = ["--steps", "4", "--batch", "4", "--eval-every", "2", "--eval-prompts", "2", "--eval-answers", "3"]
COMPACT = json.dumps({"preset": "compact"})
MUSIQUE = ["warm-start", "--env", "vpo/MuSiQue-v0", "--env-kwargs", COMPACT, "--positions", "192", *SHORT]


FRESH = ["warm-start", "--env", toys.SHOWN_LETTERS_ID, "--positions", "96", *SHORT]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("warm") / "made"
    assert main([*FRESH, "--out", str(out)]) == 0
    return out


def test_the_folder_holds_a_policy_its_recipe_and_what_it_reached(tmp_path: Path) -> None:
    assert main([*MUSIQUE, "--out", str(tmp_path)]) == 0
    policy = LMPolicy.from_pretrained(tmp_path)
    env = MuSiQueCompactEnv()
    assert policy.tokenizer.unk_token_id not in policy.encode_prompts([env.prompt(env.task(0), 3)])[0][0].tolist()
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    assert (recipe["env"], recipe["steps"], recipe["answers"]) == ("vpo/MuSiQue-v0", 4, [1, 3])
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        for m in (1, 3):
            assert 0 <= row[f"readable (m={m})"] <= 1
            assert 0 <= row[f"pool utility (m={m})"] <= row[f"front (m={m})"] <= 1


def test_the_recipe_of_a_model_makes_it_again(made: Path, tmp_path: Path) -> None:
    assert main(["warm-start", "--recipe", str(made / "recipe.json"), "--out", str(tmp_path / "again")]) == 0
    assert_same_weights(made, tmp_path / "again")


@pytest.mark.parametrize(
    ("step", "said", "more"),
    [(0, "no step is saved yet, so start again with", []), (3, "continue from the last checkpoint with", ["--resume"])],
)
def test_a_stopped_warm_start_names_the_command_that_goes_on_to_the_same_weights(
    made: Path,
    step: int,
    said: str,
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = WarmStart.samples

    def stop(self: WarmStart) -> Samples:
        if self.done == step:
            raise KeyboardInterrupt
        return whole(self)

    command = [*FRESH, "--out", str(tmp_path / "stopped")]
    with monkeypatch.context() as patch:
        patch.setattr(WarmStart, "samples", stop)
        assert main(command) == 130
    assert capsys.readouterr().err.splitlines()[-1] == f"stopped; {said}: {vpo_command(*command, *more)}"
    assert main([*command, *more]) == 0
    assert_same_weights(made, tmp_path / "stopped")


@pytest.mark.parametrize("evaluation", [1, 2])
def test_a_kill_between_a_row_and_its_checkpoint_leaves_no_step_twice(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluation: int
) -> None:
    def killed(folder: Path, step: int, *rest: object, **more: object) -> Path:
        if step == 2 * evaluation:
            raise KeyboardInterrupt
        return save_checkpoint(folder, step, *rest, **more)

    out = tmp_path / "killed"
    with monkeypatch.context() as patch:
        patch.setattr("vpo_agent.runs.warm_start.save_checkpoint", killed)
        assert main([*FRESH, "--out", str(out)]) == 130
    assert steps_in(out) == [2, 4][:evaluation]
    again = FRESH if evaluation == 1 else ["warm-start", "--resume"]  # The first time there is no checkpoint yet.
    assert main([*again, "--out", str(out)]) == 0
    assert steps_in(out) == [2, 4]
    assert_same_weights(made, out)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        pytest.param(["--responses", "2"], 1, id="before the first row"),
        pytest.param(["--responses", "2"], 5, id="between two rows"),
        pytest.param(["--model", "tiny-maze"], 3, id="a model of words that learns new ones"),
        pytest.param(["--model", "{chat}", "--dtype", "bfloat16"], 3, id="half precision"),
        pytest.param(["--model", "{chat}", "--lora-rank", "2", "--dtype", "bfloat16"], 3, id="adapters"),
    ],
)
def test_a_warm_start_that_is_stopped_ends_with_the_same_bytes(
    chat_model: Path, tmp_path: Path, options: list[str], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--lora-rank" in options:
        pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    whole = WarmStart.samples

    def stop(self: WarmStart) -> Samples:
        samples = whole(self)
        if self.done == step:
            raise KeyboardInterrupt
        return samples

    sizes = ["--steps", "6", "--batch", "4", "--eval-every", "4", "--eval-prompts", "2", "--eval-answers", "3"]
    command = ["warm-start", "--env", DRAWN_ID, *sizes, "--max-new-tokens", "16", "--learning-rate", "0.01"]
    command += [option.format(chat=chat_model) for option in options]
    np.random.seed(7)  # noqa: NPY002 - the environment draws from the global generator
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    np.random.seed(7)  # noqa: NPY002
    with monkeypatch.context() as patch:
        patch.setattr(WarmStart, "samples", stop)
        assert main([*command, "--out", str(tmp_path / "stopped")]) == 130
    np.random.seed(8)  # noqa: NPY002 - as in another process
    assert main([*command, "--out", str(tmp_path / "stopped"), "--resume"]) == 0
    ends = [files_of(tmp_path / name) for name in ("whole", "stopped")]
    assert ends[0].keys() == ends[1].keys()
    assert [name for name in ends[0] if ends[0][name] != ends[1][name]] == []


class DrawnLettersEnv(toys.ShownLettersEnv):
    """Letters whose demonstrations are drawn from the global generator."""

    def demonstrations(self, task: Any, rng: np.random.Generator, num_answers: int) -> list[str]:
        return [str(np.random.choice(["a", "b", "e"])) for _ in range(num_answers)]  # noqa: NPY002


DRAWN_ID = "toy/DrawnLetters-v0"
register_env(DRAWN_ID, f"{__name__}:DrawnLettersEnv")


def files_of(out: Path) -> dict[str, bytes]:
    """Return the content of every file of a warm start, without the minutes that it took."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    rows = [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
    timeless = [{name: value for name, value in row.items() if name != "minutes"} for row in rows]
    return {**files, "metrics.jsonl": json.dumps(timeless).encode()}


def steps_in(out: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "{made}", "--env", "vpo/Code-v0"], "holds a warm start already"),
        (["--out", "{made}", "--resume", "--batch", "5"], "has another batch"),
        (["--out", "{new}", "--resume", "--env", "vpo/Code-v0"], "no checkpoint to resume from"),
        (["--out", "{new}"], "needs an environment"),
        (
            ["--out", "{new}", "--env", "vpo/Code-v0", "--learning-rate", "3"],
            "learning_rate=3.0 is invalid: it must be below 1",
        ),
        (["--out", "{new}", "--env", "vpo/Code-v0", "--answers", "1", "0"], "answers.1=0 is invalid"),
        (["--out", "{new}", "--env", toys.LETTERS_ID], "LettersEnv has no demonstrations, which a warm start learns"),
        (["--out", "{new}", "--prompts", "{one}", "--rewards", "random:random"], "has no row for split 'validation'"),
        (["--out", "{new}", "--env", toys.SHOWN_LETTERS_ID, "--lora-rank", "4"], "model=small is trained whole"),
        (
            ["--out", "{new}", "--env", toys.SHOWN_LETTERS_ID, "--model", "tiny-maze", "--lora-rank", "4"],
            "adapters cannot teach 'tiny-maze' the words of a task: leave --lora-rank out",
        ),
    ],
)
def test_what_it_refuses(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    places = {"made": made, "new": tmp_path / "new", "one": tmp_path / "one.jsonl"}
    places["one"].write_text('{"prompt": "count", "answer": "a"}\n')
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
        ("responses = 3", "batch=64 is not a multiple of responses=3: change one of them"),
        ("learn_rate = 0.1", "unknown setting 'learn_rate': did you mean learning_rate?"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    file, out = tmp_path / "odd.toml", tmp_path / "new"
    file.write_text(f"env = 'vpo/Code-v0'\n{setting}\n")
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


# --- pretrained models ---


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = toys.bpe_tokenizer(chat=True)
    toys.tiny_model("llama", tokenizer, scale=1.0, max_position_embeddings=512).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def letters(model: Path, *more: str) -> list[str]:
    return ["warm-start", "--env", toys.SHOWN_LETTERS_ID, "--model", str(model), *SHORT, *more]


def test_adapters_of_a_chat_model_end_in_an_ordinary_model_that_training_asks_alike(
    chat_model: Path, tmp_path: Path, letters_config: Callable[..., TrainConfig]
) -> None:
    pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    out = tmp_path / "made"
    options = ["--lora-rank", "2", "--learning-rate", "0.5", "--gradient-checkpointing", "--max-new-tokens", "16"]
    assert main(letters(chat_model, *options, "--out", str(out))) == 0
    assert not (out / "adapter_config.json").exists()
    before, after = load_file(chat_model / "model.safetensors"), load_file(out / "model.safetensors")
    assert before.keys() == after.keys()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        name for name in before if "_proj" in name
    }
    trainer = Trainer(letters_config(env=toys.SHOWN_LETTERS_ID, model=str(out), lora_rank=2, steps=1))
    prompts = [trainer.env.prompt(trainer.env.task(index), 3) for index in range(2)]
    expected = LMPolicy.from_pretrained(chat_model, device="cpu").encode_prompts(prompts)
    for found, wanted in zip(trainer.policy.encode_prompts(prompts), expected, strict=True):
        assert torch.equal(found, wanted)
    assert trainer.train_step()["step"] == 1


def test_adapters_in_half_precision_are_saved_with_all_of_their_update(chat_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    out = tmp_path / "made"
    options = ["--lora-rank", "2", "--learning-rate", "1e-5", "--dtype", "bfloat16", "--max-new-tokens", "16"]
    assert main(letters(chat_model, *options, "--out", str(out))) == 0
    base, saved = load_file(chat_model / "model.safetensors"), load_file(out / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    update = saved[name] - base[name].bfloat16().float()
    assert torch.linalg.matrix_rank(update, rtol=1e-3) == 2, "it is rounded"
    with pytest.raises(ValueError, match="no weight can be trained, because saved adapters stay apart"):
        MasterAdamW([("frozen", torch.zeros(1))], learning_rate=1e-3, beta2=0.9, weight_decay=0.0)


def test_a_warm_start_on_a_gpu_is_planned_before_it_starts(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU stands for a GPU with little memory."""
    command = letters(chat_model, "--responses", "2", "--max-new-tokens", "16", "--out")
    monkeypatch.setattr("vpo_agent.runs.warm_start.device_memory", lambda device: 10**8)
    assert main([*command, str(tmp_path / "fits")]) == 0
    assert "2 prompts at a time" in capsys.readouterr().out
    monkeypatch.setattr("vpo_agent.runs.warm_start.device_memory", lambda device: 10**4)
    assert main([*command, str(tmp_path / "new")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not fit into 1e-05 GB" in line
    assert not (tmp_path / "new").exists()


def test_a_gguf_file_is_warm_started_whole_into_an_ordinary_folder(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs the gguf extra, which the dev extra installs")
    tokenizer = toys.bpe_tokenizer(chat=True)
    model = toys.tiny_model("llama", tokenizer, scale=1.0)
    write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    options = ["--dtype", "bfloat16", "--learning-rate", "0.5", "--max-new-tokens", "16"]
    assert main(letters(tmp_path / "tiny.gguf", *options, "--out", str(tmp_path / "made"))) == 0
    weights = load_file(tmp_path / "made" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    moved = [name for name, weight in model.named_parameters() if not torch.equal(weight.bfloat16(), weights[name])]
    assert "model.embed_tokens.weight" in moved
    assert LMPolicy.from_pretrained(tmp_path / "made", device="cpu").tokenizer.chat_template == toys.CHAT_TEMPLATE
