"""Models on the Hugging Face Hub: whether one is in the local cache, or can be fetched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from vpo_envs.common.wording import first_line

CONFIGS = ("config.json", "adapter_config.json")
SECONDS = 10
"""How long the Hub is waited for."""


def is_cached(name: str) -> bool:
    """Return whether the local cache of the Hub holds the configuration of a model or of adapters."""
    from huggingface_hub import try_to_load_from_cache  # slow to import

    # A name that the Hub cannot have is a ValueError.
    with suppress(ValueError):
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in CONFIGS)
    return False


def check_available(name: str) -> None:
    """Raise ValueError unless a model is on this machine, as a path or in the cache, or the Hub answers that it has it.

    Without network this fails at once, where the libraries that load models try again and again.
    """
    if Path(name).exists() or is_cached(name):
        return
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=SECONDS)
    except Exception as error:  # of several libraries
        raise ValueError(first_line(error)) from error
