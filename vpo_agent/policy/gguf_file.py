"""Reads GGUF, the single-file format of llama.cpp, with the reader of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from vpo_agent.policy.gguf_header import check_header
from vpo_envs.common.libraries import check_package
from vpo_envs.common.paths import path_of
from vpo_envs.common.wording import first_line


def is_gguf(name_or_path: str | Path) -> bool:
    """Return whether a model's name means a GGUF file."""
    path = Path(name_or_path)
    return path.suffix.lower() == ".gguf" and not path.is_dir()


def load_gguf(name: str, dtype: torch.dtype) -> tuple[Any, PreTrainedTokenizerBase]:
    """Read a model from a GGUF file, and the tokenizer and chat template that it holds, onto the CPU.

    Quantized weights are unpacked to ``dtype``. The result is an ordinary model, to be trained and saved as any other.
    """
    file = _file(name)
    # Versions that have this class would otherwise keep the weights packed where they can compute with them.
    packing = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": packing(dequantize=True)} if packing else {}
    try:
        # AutoTokenizer would parse the whole file to find a class, whose own vocabulary the file's replaces anyway.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(
            file.parent, gguf_file=file.name, padding_side="left", trust_remote_code=False
        )
        model_and_report: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=False,
            **options,
        )
        packed, report = model_and_report
        missing = sorted(report["missing_keys"])
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        # A model read from GGUF refuses to be saved, so the weights move to an ordinary model.
        model = type(packed).from_pretrained(None, config=packed.config, state_dict=packed.state_dict(), dtype=dtype)
    except Exception as error:  # of transformers, the tokenizers or gguf
        raise _unreadable(file, name, error) from error
    # The folder of a GGUF file does not name the model; adapters store what they belong to.
    model.name_or_path = model.config.name_or_path = tokenizer.name_or_path = str(file)
    return model, tokenizer


def read_gguf_config(name: str) -> PretrainedConfig:
    """Return the configuration that a GGUF file holds, without its weights."""
    file = _file(name)
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
    except Exception as error:  # of transformers or gguf
        raise _unreadable(file, name, error) from error
    return config


def _file(name: str) -> Path:
    """Return the path of a GGUF file; ValueError if it, or a package that reads it, is missing, or it is too short."""
    file = path_of(name)
    if not file.is_file():
        raise ValueError(f"there is no file {name!r}: give a GGUF file, or the folder or name of a saved model")
    for package in ("gguf", "accelerate"):
        check_package(package, "gguf", f"the model {name!r}")
    try:
        check_header(file)
    except ValueError as error:
        raise _not_whole(file, f" ({error})") from None
    return file


def _not_whole(file: Path, reason: str = "") -> ValueError:
    return ValueError(
        f"{str(file)!r} is not a whole GGUF file, perhaps because a download was cut short{reason}: fetch it again"
    )


def _unreadable(file: Path, name: str, error: Exception) -> ValueError:
    """Return an error that says what is wrong with a file that could not be read.

    To parse the file takes seconds, so it is parsed only now.
    """
    from gguf import GGUFReader

    try:
        fields = GGUFReader(file).fields
        architecture = str(fields["general.architecture"].contents())
    except Exception:  # of NumPy, which maps the file, or of Python
        return _not_whole(file)
    if "tokenizer.ggml.tokens" not in fields:
        return ValueError(f"{name!r} holds no tokenizer: give a GGUF file with one, or the folder of the same model")
    return ValueError(
        f"transformers {transformers.__version__} cannot read {name!r}, a GGUF file of the architecture "
        f"{architecture!r}: give the folder or name of the same model ({first_line(error)})"
    )
