"""Loads the programs in studies/, which belong to no package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from paths import ROOT

STUDIES = ROOT / "studies"


def load_study(name: str) -> ModuleType:
    """Return ``studies/<name>.py`` as a module; it may import others that lie beside it."""
    sys.path.insert(0, str(STUDIES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(STUDIES))
