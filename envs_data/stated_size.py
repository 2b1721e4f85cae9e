"""Check that a model's files can hold the weights that its configuration states, since loading allocates memory for
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from envs_data.parsing import read_object

MOST_PER_BYTE = 4
"""Most weights in a byte of a file: twice as many as in formats with four bits per weight."""
_LAYERS, _EXPERTS = re.compile(r"(num|n)_(\w+_)?layers?"), re.compile(r"(num|n)_(\w+_)?experts")
"""Names of settings that say how many modules of a kind there are."""
BYTES_OF_AN_EXPERT = 256
"""Fewest bytes of an expert in a file; experts are not counted by tensors, which they may share."""


def check_stated_modules(folder: Path) -> None:
    """Raise ValueError if ``config.json`` states more modules than the folder's weight files hold tensors.

    A configuration makes lists as long as it states, and a layer takes kilobytes and a millisecond even without memory
    for its weights. Nothing is checked where the name is not one of a folder with a model.
    """
    files = _weight_files(folder)
    if not files:
        return
    tensors = sum(map(_count_tensors, files))
    experts = sum(file.stat().st_size for file in files) // BYTES_OF_AN_EXPERT
    for name, count in _numbers(read_object(folder / "config.json", any_float=True)):
        for kind, most in ((_LAYERS, tensors), (_EXPERTS, experts)):
            if kind.fullmatch(name) and count > most:
                raise ValueError(f"config.json states {name}={count}, and its files have room for {most}")


def check_stated_weights(folder: Path, model_type: Any = AutoModelForCausalLM) -> None:
    """Raise ValueError if ``config.json`` states more weights than the bytes of the folder's weight files can hold.

    ``model_type`` is a class of transformers that makes the model from its configuration.
    """
    files = _weight_files(folder)
    if not files:
        return
    size = sum(file.stat().st_size for file in files)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        model = model_type.from_config(config, trust_remote_code=False)
    stated = sum(weight.numel() for weight in model.parameters())
    if stated > MOST_PER_BYTE * size:
        raise ValueError(f"config.json states {stated:,} weights, and its files have room for {MOST_PER_BYTE * size:,}")


def check_adapter_rank(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise ValueError if the configuration of adapters states a rank that none of their weights has."""
    sizes = [0]
    for file in folder.glob("adapter_model*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # not a dictionary
                sizes += tensors.get_slice(name).get_shape()
    patterns = config.get("rank_pattern") or {}
    for rank in (config.get("r", 0), *(patterns.values() if isinstance(patterns, dict) else ())):
        if len(sizes) > 1 and not (isinstance(rank, int) and rank <= max(sizes)):
            raise ValueError(
                f"adapter_config.json states the rank {rank}, and no weight has more than {max(sizes)} rows"
            )


def _weight_files(folder: Path) -> list[Path]:
    """Return the files of weights beside a ``config.json``; none where there is no such file."""
    if not (folder / "config.json").is_file():
        return []
    return [*folder.glob("*.safetensors"), *folder.glob("*.bin")]


def _count_tensors(file: Path) -> int:
    """Return how many tensors a file can hold; of a pickle, one in 512 bytes, and of a damaged file none."""
    if file.suffix != ".safetensors":
        return file.stat().st_size // 512
    try:
        with safe_open(file, framework="pt") as tensors:
            return len(tensors.keys())
    except SafetensorError:
        return 0


def _numbers(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers among settings, also in groups of them, with their names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int):
            yield name, value
