"""Loads language models: weights, threads, LoRA adapters, recomputed layers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from envs_data.models import find_bundled
from envs_data.parsing import read_object
from envs_data.stated_size import check_adapter_rank, check_stated_modules, check_stated_weights
from vpo_agent.policy.downloads import cannot_load
from vpo_agent.policy.gguf_file import is_gguf, load_gguf
from vpo_envs.common.hub import check_available
from vpo_envs.common.libraries import check_package
from vpo_envs.common.wording import first_line

SMALL = 10_000_000
"""Parameters below which threads are not worth waiting for. On two busy cores, responses of the bundled model with 0.9
million took 1.5 s on one thread and 25 s on two; those of one with 18 million, 5 s and 90 s. Two free cores are up to
twice as fast as one."""
USUAL_THREADS = torch.get_num_threads()
_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_threads = USUAL_THREADS if USUAL_THREADS in (_cores, _cores // 2) else 0
"""Number of threads that PyTorch chose, one per core, or that :func:`fit_threads` set; 0 if a program chose before."""


def fit_threads(model: torch.nn.Module) -> None:
    """Let PyTorch compute models of fewer than :data:`SMALL` parameters on one thread, and others on as many as usual.

    Nothing is changed where ``OMP_NUM_THREADS`` or ``torch.set_num_threads`` has chosen a number. The choice depends on
    the model alone, so a resumed run and an evaluation compute the same sums as the run before.
    """
    global _threads
    if "OMP_NUM_THREADS" in os.environ or torch.get_num_threads() != _threads:
        return
    _threads = 1 if sum(weight.numel() for weight in model.parameters()) < SMALL else USUAL_THREADS
    torch.set_num_threads(_threads)


def load_model(name_or_path: str | Path, dtype: torch.dtype) -> tuple[Any, PreTrainedTokenizerBase]:
    """Read a causal language model and its tokenizer onto the CPU: a bundled one, or from the Hub, a folder or GGUF.

    In float32, saved LoRA adapters are merged into their base model, so the result is an ordinary model. Other formats
    would round small updates away, so adapters stay apart there, as a frozen PEFT model.
    """
    name = find_bundled(name_or_path)
    if is_gguf(name):
        with quiet_transformers():
            return load_gguf(name, dtype)
    try:
        with quiet_transformers():
            check_available(name)
            check_stated_modules(Path(name))
            model, tokenizer = _read_model(name, dtype)
    # Loading goes through several libraries, each with its own exceptions.
    except Exception as error:
        raise cannot_load(name, error) from error
    return model, tokenizer


def lora_config(rank: int) -> Any:
    """Return PEFT's settings for LoRA adapters on every linear layer but the head, with alpha / rank = 2."""
    check_package("peft", "lora", f"lora_rank={rank}")
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")


def add_adapters(model: PreTrainedModel, rank: int, *, seed: int = 0, saved: Path | None = None) -> Any:
    """Add trainable LoRA adapters to every linear layer but the head, and freeze everything else.

    With ``saved``, a folder that ``save_pretrained`` wrote, these adapters continue; ``seed`` keys fresh ones.
    """
    config = lora_config(rank)
    from peft import PeftModel, get_peft_model

    if saved is not None:
        try:
            with quiet_transformers():
                return PeftModel.from_pretrained(model, str(saved), is_trainable=True)
        except Exception as error:  # of PEFT, safetensors or the Hub's client
            raise ValueError(f"cannot read the adapters in {str(saved)!r}: {first_line(error)}") from error
    # PEFT draws from the global generator, which the run's seed does not determine.
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def recompute_layers(model: torch.nn.Module) -> None:
    """Keep only the input of each layer of a Hugging Face model for the backward pass, which recomputes the rest.

    Transformers does so in training mode alone, which also turns dropout on, and so adds noise to the ratio between the
    new policy and the one that sampled.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        name = type(model).__name__
        raise ValueError(f"{name} does not support gradient checkpointing: leave gradient_checkpointing out")
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # In evaluation mode nothing draws random numbers.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the progress bars and notices of transformers, and deprecation warnings from PEFT's calls."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _read_model(name: str, dtype: torch.dtype) -> tuple[Any, PreTrainedTokenizerBase]:
    """Read a model and its tokenizer. Adapters may lie on other adapters, and have the tokenizer of their base."""
    if is_gguf(name):
        return load_gguf(name, dtype)
    base = base_of_adapters(name)
    if base is None:
        model, tokenizer = _read_weights(name, dtype), _read_tokenizer(name)
    else:
        check_adapter_rank(Path(name), read_object(Path(name) / "adapter_config.json") if Path(name).is_dir() else {})
        model, tokenizer = _read_model(find_bundled(base), dtype)
        before, after = _resize_for_adapters(model, name)
        if _has_tokenizer(name):
            tokenizer = _read_tokenizer(name)
        elif after > before:
            raise ValueError(
                f"its adapters were saved with the embeddings of {after} tokens, and their base has {before}: copy the "
                "tokenizer with the added tokens into the folder"
            )
        model = _with_adapters(model, name, dtype)
    # Adapters that are added to this model store what they belong to, and are read from other folders as well.
    model.name_or_path = os.path.abspath(name) if Path(name).exists() else name
    return model, tokenizer


def _read_weights(name: str, dtype: torch.dtype) -> Any:
    check_stated_modules(Path(name))
    check_stated_weights(Path(name))
    model_and_report: Any = AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, output_loading_info=True, trust_remote_code=False
    )
    complete, report = model_and_report
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"its files lack the weights {missing[0]}")
    return complete


def _read_tokenizer(name: str) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        name, padding_side="left", trust_remote_code=False
    )
    return tokenizer


def _has_tokenizer(name: str) -> bool:
    """Return whether a folder or a repository of adapters holds a tokenizer; PEFT saves none."""
    options = {"_raise_exceptions_for_missing_entries": False}
    return any(cached_file(name, file, **options) for file in ("tokenizer_config.json", "tokenizer.json"))


def _with_adapters(model: Any, name: str, dtype: torch.dtype) -> Any:
    """Return a model with the adapters in a folder or repository: merged in float32, and frozen otherwise."""
    from peft import PeftModel

    if hasattr(model, "get_base_model"):
        model.load_adapter(name, f"adapters {len(model.peft_config)}")
        model.base_model.set_adapter(list(model.peft_config))
    else:
        model = PeftModel.from_pretrained(model, name)
    if dtype != torch.float32:
        return model.requires_grad_(False)
    _untie_adapted_embedding(model.get_base_model())
    return model.merge_and_unload().requires_grad_(True)


def _untie_adapted_embedding(causal_lm: Any) -> None:
    """Give a model a head of its own if it is tied to an embedding with adapters, which would merge into both."""
    embedding, head = causal_lm.get_input_embeddings(), causal_lm.get_output_embeddings()
    if getattr(embedding, "lora_embedding_A", None) and head.weight is embedding.weight:
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        causal_lm.config.get_text_config().tie_word_embeddings = False


def _resize_for_adapters(model: Any, name: str) -> tuple[int, int]:
    """Give a model embeddings for as many tokens as its adapters were saved with; return the numbers before and after.

    If the adapters have fewer, PEFT reports both numbers.
    """
    from peft.utils.save_and_load import load_peft_weights

    embedding = model.get_input_embeddings()
    (path,) = [path for path, module in model.named_modules() if module is embedding]
    before = after = len(embedding.weight)
    for key, weight in load_peft_weights(name, device="cpu").items():
        if path.rpartition(".")[2] in key.split("."):
            if key.endswith(".weight"):
                after = max(after, weight.shape[0])
            elif key.endswith("lora_embedding_A"):
                after = max(after, weight.shape[1])
    if after > before:
        # The adapters replace what is drawn here.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model.resize_token_embeddings(after, mean_resizing=False)
        model.has_added_tokens = True
    return before, after


def base_of_adapters(name: str) -> str | None:
    """Return the name of the base model if ``name`` holds adapters, otherwise ``None``."""
    if find_spec("peft") is None:
        if (Path(name) / "adapter_config.json").is_file():
            check_package("peft", "lora", "a folder of LoRA adapters")
        return None
    config_file = find_adapter_config_file(name)
    if config_file is None:
        return None
    base = read_object(Path(config_file)).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise ValueError(f"{str(config_file)!r} lacks base_model_name_or_path, the name of the base model: add it")
    return base
