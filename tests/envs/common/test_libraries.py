"""The command that installs an extra is one that works where the code is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from paths import ROOT

from vpo_envs.common import libraries
from vpo_envs.common.libraries import install_command


def test_a_clone_is_installed_from_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("rl") == "pip install -e '.[rl]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("rl") == f"pip install -e '{ROOT}[rl]'"


def test_an_installed_package_is_installed_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "__file__", str(tmp_path / "site-packages" / "vpo_envs" / "common" / "libraries.py"))
    assert install_command("rl") == "pip install 'vpo-gym[rl]'"


@pytest.mark.parametrize("found", ["1.17.0", "1.15.2", None])
@pytest.mark.parametrize(
    ("adapter", "package", "feature"),
    [
        ("vpo_envs.adapters.inspect", "inspect_ai", "evaluating with inspect-ai"),
        ("vpo_envs.adapters.verifiers", "verifiers", "running an environment in verifiers"),
        ("vpo_agent.adapters.trl", "trl", "training with TRL"),
    ],
)
def test_an_adapter_says_that_its_package_is_missing_or_of_another_release(
    adapter: str, package: str, feature: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra, name = adapter.split(".")[-1], package.replace("_", "-")
    monkeypatch.setattr(libraries, "requires", lambda _: [f"{name}>=1.16,<1.17; extra == '{extra}'"])
    monkeypatch.setattr(libraries, "version", lambda _: found)
    monkeypatch.setattr(libraries, "find_spec", lambda _: found)
    monkeypatch.delitem(sys.modules, adapter, raising=False)
    said = rf"^{feature} needs the package {package}: pip install -e '.*\[{extra}\]'$"
    if found:
        said = rf"^vpo-gym needs {name}<1\.17,>=1\.16, but version {found} is installed: pip install '{name}<"
    with pytest.raises(ValueError, match=said):
        importlib.import_module(adapter)
