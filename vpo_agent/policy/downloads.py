"""Whether a model that a saved file names may be fetched: runs and entries may come from anybody."""

from __future__ import annotations

from contextlib import suppress

from envs_data.models import BUNDLED_MODELS
from vpo_envs.common.paths import path_of
from vpo_envs.common.trust import MODELS, is_trusted

CONFIGS = ("config.json", "adapter_config.json")


def check_saved_model(name: str, owner: str) -> None:
    """Raise ValueError if a model that ``owner`` names is not on this machine, unless such models are trusted.

    To fetch one tells others that the file was opened, and loads what its author chose.
    """
    if name in BUNDLED_MODELS or is_trusted(MODELS) or path_of(name).exists() or is_cached(name):
        return
    raise ValueError(
        f"{owner} names the model {name!r}, which is not on this machine and is fetched only if you trust it: add "
        f"--trust {MODELS}"
    )


def is_cached(name: str) -> bool:
    """Return whether the local cache of the Hub holds the configuration of a model or of adapters."""
    from huggingface_hub import try_to_load_from_cache  # slow to import

    # A name that the Hub cannot have is a ValueError.
    with suppress(ValueError):
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in CONFIGS)
    return False
