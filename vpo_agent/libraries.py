"""The versions of the libraries below: those that a checkpoint was written with, and those that are needed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

_NOTED = ("vpo-gym", "torch", "transformers", "numpy", "safetensors", "tokenizers", "peft")
_DECISIVE = ("torch", "transformers")
"""Libraries whose version may change what a step computes."""


def library_versions() -> dict[str, str]:
    """What is installed, by name."""
    found = {"python": platform.python_version()}
    for name in _NOTED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def changed_versions(saved: Mapping[str, str]) -> list[str]:
    """Decisive libraries that are not those of ``saved``, such as ``"torch 2.6.0, now 2.13.0"``."""
    now = library_versions()
    return [
        f"{name} {saved[name]}, now {now.get(name, 'missing')}"
        for name in _DECISIVE
        if name in saved and saved[name] != now.get(name)
    ]


def check_libraries(*extras: str) -> None:
    """Check that what is installed is what this package states that it needs.

    Args:
        *extras: Extras of this package, such as ``"lora"``, whose packages must be of the right version as well where
            they are installed; whoever needs one checks that it is there, and says what for.

    Raises:
        ValueError: A library is missing, too old or too new.
    """
    try:
        stated = requires("vpo-gym") or []
    except PackageNotFoundError:  # used from a source tree that is not installed
        return
    for requirement in map(Requirement, stated):
        marker = requirement.marker
        needed_by = [extra for extra in ("", *extras) if marker is None or marker.evaluate({"extra": extra})]
        if not needed_by:
            continue
        advice = f"pip install '{requirement.name}{requirement.specifier}'"
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            if "" not in needed_by:
                continue
            raise ValueError(f"vpo-gym needs {requirement.name}, which is not installed: {advice}") from None
        if not requirement.specifier.contains(found, prereleases=True):
            needed = f"{requirement.name}{requirement.specifier}"
            raise ValueError(f"vpo-gym needs {needed}, but version {found} is installed: {advice}")
