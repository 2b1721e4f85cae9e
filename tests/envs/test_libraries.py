"""The command that installs an extra is one that works where the code is."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT

from vpo_envs import libraries
from vpo_envs.libraries import install_command


def test_a_clone_is_installed_from_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("rl") == "pip install -e '.[rl]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("rl") == f"pip install -e '{ROOT}[rl]'"


def test_an_installed_package_is_installed_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "__file__", str(tmp_path / "site-packages" / "vpo_envs" / "libraries.py"))
    assert install_command("rl") == "pip install 'vpo-gym[rl]'"
