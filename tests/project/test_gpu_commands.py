"""Every command of the pages that trains a model of the Hub fits on the GPU that the page names beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from transformers import Qwen2Config, Qwen3Config

from envs_data import BUNDLED_MODELS
from vpo_agent import presets
from vpo_agent.command import make_parser
from vpo_agent.command.options import parse_job
from vpo_agent.command.plan import longest_prompt
from vpo_agent.command.train import read_recipe
from vpo_agent.config import TrainConfig
from vpo_agent.learning.fits import Plan, Shape, TooSmall, plan_run, read_shape
from vpo_agent.runs.warm_start import planned_settings

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:vpo train|vpo warm-start|python examples/train_(?!trl)\w+\.py)(?:\\\n|[^`\n#])*")
CARD = re.compile(r"\b(\d+) GB\b")
QWEN3 = {"vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960}
PUBLISHED: dict[str, Any] = {
    "Qwen/Qwen3-0.6B": Qwen3Config(
        **QWEN3, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-1.7B": Qwen3Config(
        **QWEN3, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-4B": Qwen3Config(
        **QWEN3, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-8B": Qwen3Config(
        **QWEN3, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
        tie_word_embeddings=False,
    ),
    "Qwen/Qwen2.5-Coder-7B-Instruct": Qwen2Config(
        vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, max_position_embeddings=32_768, tie_word_embeddings=False,
    ),
}  # fmt: skip
"""The sizes in the published configurations."""
LONGEST = {"deepcoder": 1500, "org/helpful-rm": 300, "train.jsonl": 500}
"""Tokens of a prompt where it takes files or models that are not here; those of other commands are counted."""


def commands(page: Path) -> list[tuple[str, str]]:
    """The training commands of a page, each with its paragraph and the sentence before a block."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in COMMAND.finditer(text):
        start = text.rfind("\n\n", 0, match.start()) + 2
        if text[start:].startswith("```"):
            start = text.rfind("\n\n", 0, start - 2) + 2
        found.append((match[0].replace("\\\n", " "), text[start : text.find("\n\n", match.end())]))
    return found


def settings(command: str) -> TrainConfig:
    """The settings of a command, with the presets of its script."""
    program, *words = shlex.split(command)
    if words[0] == "warm-start":
        arguments = make_parser().parse_args(words)
        recipe = read_recipe(arguments)
        config = planned_settings(recipe, recipe.max_new_tokens, arguments.gradient_checkpointing)
        return config.model_copy(update=recipe.model_dump(include={"model", "env", "env_kwargs"}))
    if program == "vpo":
        return parse_job(words[1:], description="", presets=presets.ALL).config
    choices = presets.TASKS[re.sub(r".*train_(\w+)\.py", r"\1", words[0]).replace("_", "-")]
    return parse_job(words[1:], description="", presets=choices).config


def gpu_commands() -> list[Any]:
    """The commands whose model is of the Hub, or the folder of a warm start of one beside it."""
    rows = []
    for page in PAGES:
        for command, around in commands(page):
            if re.search(r"--(config|resume|import|rewards|help)|NAME|…|train_pretrained|start(?!.*--model)", command):
                continue  # Settings or functions that are not here, or for two CPU cores.
            config = settings(command)
            if start := re.search(rf"vpo warm-start[^`]* --model (\S+)[^`]* --out {re.escape(config.model)}\s", around):
                config = config.model_copy(update={"model": start[1]})
            if config.model not in BUNDLED_MODELS and "/" in config.model and not config.model.startswith("runs/"):
                rows.append(pytest.param(config, around, command, id=f"{page.stem}: {command[:70].strip()}"))
    return rows


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shape]:
    """The published shapes, each read from a small config.json."""
    found = {}
    for name, config in PUBLISHED.items():
        folder = tmp_path_factory.mktemp("model")
        config.architectures = None
        config.save_pretrained(folder)
        found[name] = read_shape(folder)
    return found


def planned(config: TrainConfig, shape: Shape, memory: int) -> Plan:
    known = [tokens for name, tokens in LONGEST.items() if name in str(config.env_kwargs)]
    few = config.model_copy(update={"prompts_per_step": 8, "eval_prompts": 8})
    prompt = known[0] if known else longest_prompt(few)
    return plan_run(config, shape, prompt=prompt, memory=memory)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("Qwen/Qwen3-0.6B", 0.596), ("Qwen/Qwen3-1.7B", 1.721), ("Qwen/Qwen3-4B", 4.022), ("Qwen/Qwen3-8B", 8.191),
     ("Qwen/Qwen2.5-Coder-7B-Instruct", 7.616)],
)  # fmt: skip
def test_the_shapes_have_the_published_numbers_of_parameters(
    name: str, billions: float, shapes: dict[str, Shape]
) -> None:
    assert shapes[name].parameters / 1e9 == pytest.approx(billions, abs=5e-4)


def test_commands_are_found() -> None:
    pages = {row.id.split(":")[0] for row in gpu_commands()}
    assert {"code", "eureqa", "musique", "tools", "training"} <= pages
    assert {"vpo train", "vpo warm-start"} <= {" ".join(row.values[2].split()[:2]) for row in gpu_commands()}


@pytest.mark.parametrize(("config", "around", "command"), gpu_commands())
def test_a_command_fits_on_the_card_that_the_text_names(
    config: TrainConfig, around: str, command: str, shapes: dict[str, Shape]
) -> None:
    cards = {int(size) for size in CARD.findall(around)}
    assert cards, f"the text around {command!r} names no card, such as one of 80 GB"
    planned(config, shapes[config.model], min(cards) * 10**9)


def test_full_training_of_4b_in_the_papers_batch_does_not_fit(shapes: dict[str, Shape]) -> None:
    config = settings("vpo train --preset maze-paper --model Qwen/Qwen3-4B --sample-batch 1024")
    with pytest.raises(TooSmall, match="it fits with --lora-rank 16"):
        planned(config, shapes[config.model], 80 * 10**9)
