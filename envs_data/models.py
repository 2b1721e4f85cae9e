"""The bundled language models."""

from __future__ import annotations

from pathlib import Path

BUNDLED_MODELS = {
    "tiny-maze": "tiny_maze",
    "tiny-code": "tiny_code",
    "tiny-eureqa": "tiny_eureqa",
    "tiny-musique": "tiny_musique",
    "tiny-tools": "tiny_tools",
    "tiny-countdown": "tiny_countdown",
    "tiny-programs": "tiny_programs",
    "tiny-archive": "tiny_archive",
}
"""Folder of each bundled model, by its name in settings."""


def bundled_model_path(name: str) -> Path:
    """Return the folder of a bundled model, for ``from_pretrained``.

    Raises:
        KeyError: No bundled model has this name.
    """
    return Path(__file__).parent / BUNDLED_MODELS[name]


def find_bundled(name_or_path: str | Path) -> str:
    """Return the folder of a bundled model such as ``"tiny-maze"``; any other name or folder unchanged."""
    name = str(name_or_path)
    return str(bundled_model_path(name)) if name in BUNDLED_MODELS else name
