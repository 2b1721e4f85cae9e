"""Loads the programs in studies/, which belong to no package."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from paths import ROOT


def load_study(name: str) -> ModuleType:
    """Return ``studies/<name>.py`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "studies" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
