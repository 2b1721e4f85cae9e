"""Versions of the libraries that a checkpoint was written with."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError

from vpo_envs.libraries import version

_RECORDED = ("vpo-gym", "torch", "transformers", "numpy", "safetensors", "tokenizers", "peft")
_DECISIVE = ("torch", "transformers")
"""Libraries whose version may change what a step computes."""


def library_versions() -> dict[str, str]:
    """Return the installed versions, by library."""
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def changed_versions(saved: Mapping[str, str]) -> list[str]:
    """Return the libraries that changed since ``saved`` and may change results, as ``"torch 2.6.0, now 2.13.0"``."""
    now = library_versions()
    return [
        f"{name} {saved[name]}, now {now.get(name, 'missing')}"
        for name in _DECISIVE
        if name in saved and saved[name] != now.get(name)
    ]
