"""What the packages offer by name, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from types import ModuleType
from typing import Literal, get_origin

import pytest

import envs_data
import vpo_agent
import vpo_agent.search
import vpo_envs
from vpo_agent.command import main

PACKAGES = (vpo_envs, vpo_agent, vpo_agent.search)
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_public_name_is_there_and_documented(package: ModuleType, name: str) -> None:
    value = getattr(package, name)
    assert value.__doc__ or get_origin(value) is Literal
    assert name in dir(package)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_another_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"{package.__name__}.*Trianer"):
        _ = package.Trianer


def loaded_after(script: str) -> set[str]:
    """The modules that a fresh process holds after a script."""
    command = [sys.executable, "-c", f"{script}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_agent_loads_nothing_heavy() -> None:
    assert not {"torch", "transformers", "numpy", "pydantic", "matplotlib"} & loaded_after("import vpo_agent")


def test_importing_the_environments_loads_no_task_and_nothing_heavy() -> None:
    loaded = loaded_after("import vpo_envs")
    heavy = {"torch", "transformers", "pygame", "mo_gymnasium", "pydantic", "scipy", "matplotlib"}
    assert not heavy & loaded
    common = {f"vpo_envs.common.{name}" for name in ("imports", "paths", "trust", "wording")}
    light = {"vpo_envs.common", "vpo_envs.registration", *common}
    # The rest is Gymnasium's and NumPy's; what it takes is measured by benchmarks/envs.py.
    assert {name for name in loaded if name.startswith("vpo_envs.")} == light


def test_reward_models_load_torch_only_when_one_is_named() -> None:
    loaded = loaded_after("import gymnasium, vpo_envs\ngymnasium.make('vpo/RewardModels-v0')")
    assert "vpo_envs.tasks.reward_models.scorers" in loaded
    assert not {"torch", "transformers"} & loaded


def test_making_a_task_loads_that_task_alone() -> None:
    loaded = loaded_after("import gymnasium, vpo_envs\ngymnasium.make('vpo/Maze-v0')")
    assert "vpo_envs.tasks.maze" in loaded
    assert (
        not {"vpo_envs.tasks.code", "vpo_envs.tasks.eureqa", "vpo_envs.tasks.musique", "vpo_envs.tasks.tools", "torch"}
        & loaded
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_says_what_it_is_without_loading_anything_slow(option: str) -> None:
    script = (
        f"from vpo_agent.command import main\ntry: main([{option!r}])\nexcept SystemExit as end: assert not end.code"
    )
    assert not {"torch", "transformers", "scipy", "pydantic", "matplotlib", "tqdm"} & loaded_after(script)


def test_the_packages_and_the_command_have_one_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    installed = version("vpo-gym")
    assert capsys.readouterr().out == f"vpo-gym {installed}\n"
    assert {envs_data.__version__, vpo_envs.__version__, vpo_agent.__version__} == {installed}
