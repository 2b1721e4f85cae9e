"""Imports the modules that a user names, and remembers them: saved data may use a module only if the user named it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from vpo_envs.common.paths import path_of

FUNCTIONS_ID = "own/Functions-v0"
"""The environment whose objectives are functions of such a module."""
_asked: dict[str, ModuleType] = {}
"""The modules that were asked for, by name or by the path of a file."""


def import_modules(modules: Iterable[str]) -> None:
    """Import modules by name or as the path of a ``.py`` file; ValueError if one fails."""
    for module in modules:
        path = path_of(module).resolve()
        if module.endswith(".py") and not path.is_file():
            raise ValueError(f"cannot import {module!r}: there is no such file")
        try:
            if module.endswith(".py"):
                _asked[str(path)] = _import_file(path)
            else:
                _find_modules_in(Path.cwd())
                _asked[module] = importlib.import_module(module)
        # Code of a user's own may raise anything, or end the process where it is a script.
        except (Exception, SystemExit) as error:
            raise ValueError(f"cannot import {module!r}: {type(error).__name__}: {error}") from error


def asked_modules() -> list[str]:
    """Return the modules that were asked for, by name or by the path of a file."""
    return list(_asked)


def is_imported(module: str) -> bool:
    """Return whether a module, by name or as the path of a ``.py`` file, is imported."""
    return module in sys.modules or _of_file(path_of(module).resolve()) is not None


def asked_module(module: str) -> ModuleType | None:
    """Return a module that was asked for; a file may have moved since, but not changed its name.

    ``None`` if nobody asked for it, though it may be imported.
    """
    if not module.endswith(".py"):
        return _asked.get(module)
    path = path_of(module).resolve()
    same_name = [known for known in _asked if known.endswith(".py") and Path(known).name == path.name]
    return _asked.get(str(path)) or (_asked[same_name[-1]] if same_name else None)


def _of_file(path: Path) -> ModuleType | None:
    loaded = list(sys.modules.values())  # a copy, since a module may import others when it is asked for its file
    return next((module for module in loaded if getattr(module, "__file__", None) == str(path)), None)


def _import_file(path: Path) -> ModuleType:
    if (known := _of_file(path)) is not None:
        return known
    # Under its own name where that is free, so that worker processes can import it as well.
    _find_modules_in(path.parent)
    taken = path.stem in sys.modules or getattr(importlib.util.find_spec(path.stem), "origin", None) != str(path)
    # The same name in every process, by which another one finds its functions.
    name = f"imported_{zlib.crc32(bytes(path)):08x}_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_modules_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
