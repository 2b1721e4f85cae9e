"""What the packages offer by name, and what importing them loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal, get_origin

import pytest

import vpo_agent
import vpo_agent.search
import vpo_envs

PACKAGES = (vpo_envs, vpo_agent, vpo_agent.search)
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]


def names_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """The module that each public name comes from, as a type checker reads the imports of the package."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    found = {alias.name: node.module or "" for node in imports for alias in node.names}
    return {name: module for name, module in found.items() if name in package.__all__}


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_public_name_is_there_and_documented(package: ModuleType, name: str) -> None:
    value = getattr(package, name)
    assert value.__doc__ or get_origin(value) is Literal
    assert name in dir(package)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_type_checkers_see_what_is_loaded(package: ModuleType) -> None:
    seen = names_for_type_checkers(package)
    assert seen.keys() == set(package.__all__)
    for name, module in seen.items():
        assert getattr(import_module(module), name) is getattr(package, name)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_another_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Trianer'"):
        _ = package.Trianer


def loaded_after(script: str) -> set[str]:
    """The modules that a fresh process holds after a script."""
    command = [sys.executable, "-c", f"{script}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_agent_loads_nothing_heavy() -> None:
    assert not {"torch", "transformers", "numpy", "pydantic", "matplotlib", "ray"} & loaded_after("import vpo_agent")


def test_importing_the_environments_loads_no_task_and_nothing_heavy() -> None:
    loaded = loaded_after("import vpo_envs")
    heavy = {"torch", "transformers", "pygame", "mo_gymnasium", "pydantic", "scipy", "matplotlib", "ray"}
    assert not heavy & loaded
    # The rest is Gymnasium's and NumPy's; what it takes is measured by benchmarks/envs.py.
    assert {name for name in loaded if name.startswith("vpo_envs.")} == {"vpo_envs.registration"}


def test_making_a_task_loads_that_task_alone() -> None:
    loaded = loaded_after("import gymnasium, vpo_envs\ngymnasium.make('vpo/Maze-v0')")
    assert "vpo_envs.maze" in loaded
    assert not {"vpo_envs.code", "vpo_envs.eureqa", "vpo_envs.musique", "vpo_envs.tools", "torch"} & loaded


def test_modules_are_attributes_as_after_an_import_of_them() -> None:
    script = "import vpo_envs\nassert vpo_envs.wrappers.PreferenceConditioned is vpo_envs.PreferenceConditioned"
    assert "vpo_envs.wrappers" in loaded_after(script)
