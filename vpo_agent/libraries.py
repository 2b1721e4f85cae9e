"""Versions of the libraries: those that a checkpoint was written with, and those that are required."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from packaging.requirements import Requirement

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


def check_libraries(*extras: str) -> None:
    """Raise ValueError if a library that this package requires is missing, too old or too new.

    Packages of ``extras``, such as ``"lora"``, may be missing: the caller checks that, and says what they are for.
    """
    try:
        stated = requires("vpo-gym") or []
    except PackageNotFoundError:  # a source tree that is not installed
        return
    for requirement in map(Requirement, stated):
        marker = requirement.marker
        needed_by = [extra for extra in ("", *extras) if marker is None or marker.evaluate({"extra": extra})]
        if not needed_by:
            continue
        needed = f"{requirement.name}{requirement.specifier}"
        advice = f"pip install '{needed}'"
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            if "" not in needed_by:
                continue
            raise ValueError(f"vpo-gym needs {requirement.name}, which is not installed: {advice}") from None
        if not requirement.specifier.contains(found, prereleases=True):
            raise ValueError(f"vpo-gym needs {needed}, but version {found} is installed: {advice}")


def check_package(name: str, extra: str, feature: str) -> None:
    """Raise ValueError unless a package that a feature needs is installed in a version that its extra allows."""
    if find_spec(name) is None:
        raise ValueError(f"{feature} needs the package {name}: pip install 'vpo-gym[{extra}]'")
    check_libraries(extra)
