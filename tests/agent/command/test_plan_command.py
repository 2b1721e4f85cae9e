"""``vpo plan`` shows a run's memory from a configuration alone, and refuses what cannot fit in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium as gym
import pytest
from transformers import Qwen3Config

from vpo_agent.command import main
from vpo_agent.command.plan import memory
from vpo_agent.learning.fits import COMMON, Shape


@pytest.fixture
def qwen(tmp_path: Path) -> str:
    """The published configuration of Qwen3-0.6B, without weights."""
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    )
    config.save_pretrained(tmp_path)
    return str(tmp_path)


def test_a_plan_needs_only_a_configuration(qwen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", f"{qwen}/config.json", "--preset", "paper", "--memory", "80GB"]) == 0
    out = capsys.readouterr().out
    assert "0.60 billion parameters) on a GPU of 80 GB" in out
    env = gym.make("vpo/Maze-v0", preset="paper", num_answers=3).unwrapped
    longest = max(len(env.reset(options={"index": index})[0]) for index in range(64))
    tokens = int(re.search(r"prompts of (\d+) tokens", out)[1])
    assert tokens == pytest.approx(longest / 3, rel=0.05), "three characters a token"
    assert "prompts at a time" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--memory", "80"], "argument --memory must be an amount such as 80GB or 79.1GiB, got '80'"),
        (["--memory", "0GB"], "must be an amount"),
        (["--memory", "-5GB"], "--memory"),
        (["--memory", "lots"], "must be an amount"),
        ([], "vpo plan needs the memory of the GPU"),
        (["--memory", "80GB", "--prompt-tokens", "0"], "--prompt-tokens must be at least 1"),
        (["--memory", "80GB", "--prompt-tokens", "40500"], "do not fit into the 40960 positions"),
        (["--memory", "80GB", "--rank", "3"], "unknown argument '--rank'"),
        (["--memory", "1GB"], "none of the settings tried makes it fit"),
        (["--memory", "8GB"], "it fits with --lora-rank 16"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], sentence: str, qwen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--preset", "paper", "--model", qwen, *options]) == 2
    error = capsys.readouterr().err
    assert sentence.removeprefix("argument ") in error
    assert error.count("\n") == 1


def test_amounts_have_units_of_ten_or_of_two() -> None:
    assert memory("80GB") == 80 * 10**9
    assert memory("1.5 gib") == 3 * 2**29
    assert memory("512MiB") == 2**29


def test_without_settings_it_lists_which_common_models_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--memory", "24GB"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "does not fit" not in rows["SmolLM2-135M"]
    assert rows["Qwen3-4B"].count("does not fit") == 1, "all weights take 72 GB, LoRA's base 8"
    assert rows["Qwen3-14B"].count("does not fit") == 2


@pytest.mark.parametrize("shape", COMMON, ids=lambda shape: shape.name)
def test_the_sizes_of_common_models_make_their_number_of_parameters(shape: Shape) -> None:
    attention = shape.hidden * 2 * (shape.queries + shape.keys)
    layers = shape.layers * (attention + 3 * shape.hidden * shape.intermediate)
    tied, untied = (layers + count * shape.vocabulary * shape.hidden for count in (1, 2))
    assert min(abs(shape.parameters / one - 1) for one in (tied, untied)) < 1e-3
