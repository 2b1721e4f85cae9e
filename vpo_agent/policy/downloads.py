"""Whether a model is there, and whether one that a saved file names may be fetched: files may come from anybody."""

from __future__ import annotations

from pathlib import Path

from envs_data.models import BUNDLED_MODELS
from vpo_envs.common.hub import CONFIGS, check_available, is_cached
from vpo_envs.common.paths import path_of
from vpo_envs.common.trust import MODELS, is_trusted
from vpo_envs.common.wording import did_you_mean, first_line


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


def check_model(name: str) -> None:
    """Raise ValueError if a model is certainly missing: no bundled one, not on this machine, and not on the Hub.

    It loads no torch, so a mistake is reported at once.
    """
    if name in BUNDLED_MODELS:
        return
    folder = Path(name)
    if folder.suffix.lower() == ".gguf" and not path_of(name).exists():
        raise ValueError(f"there is no file {name!r}: give a GGUF file, or the folder or name of a saved model")
    try:
        check_available(name)
        if folder.is_dir() and not any((folder / file).is_file() for file in CONFIGS):
            raise ValueError("the folder holds no config.json")
    except ValueError as error:
        raise cannot_load(name, error) from error


def cannot_load(name: str, error: BaseException) -> ValueError:
    """Return the error of a model that cannot be loaded, with the reason."""
    return ValueError(
        f"cannot load the model {name!r}: {did_you_mean(name, BUNDLED_MODELS)}give a folder with a saved model, a "
        f"GGUF file, a bundled model, which needs no download ({', '.join(BUNDLED_MODELS)}), or a name on the "
        f"Hugging Face Hub with network access ({first_line(error)})"
    )
