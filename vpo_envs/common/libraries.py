"""The libraries that this distribution and its extras require."""

from __future__ import annotations

import functools
from importlib import metadata
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement


@functools.cache
def version(name: str) -> str:
    """Return the installed version of a package, which takes milliseconds to look up; PackageNotFoundError if none."""
    return metadata.version(name)


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
            installed = version(requirement.name)
        except PackageNotFoundError:
            if "" not in needed_by:
                continue
            raise ValueError(f"vpo-gym needs {requirement.name}, which is not installed: {advice}") from None
        if not requirement.specifier.contains(installed, prereleases=True):
            raise ValueError(f"vpo-gym needs {needed}, but version {installed} is installed: {advice}")


def check_package(name: str, extra: str, feature: str) -> None:
    """Raise ValueError unless a package that a feature needs is installed in a version that its extra allows."""
    if find_spec(name) is None:
        raise ValueError(f"{feature} needs the package {name}: {install_command(extra)}")
    check_libraries(extra)


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra: from the repository if this code runs from one."""
    root = Path(__file__).parents[2]
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'vpo-gym[{extra}]'"
    folder = "." if root == Path.cwd() else root
    return f"pip install -e '{folder}[{extra}]'"
