"""Names of a package that are loaded when they are first used, so that importing the package costs nothing.

It stands here since the other two packages both may import this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package takes as its ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: Its name.
        modules: The module inside it that defines each name; these modules are loaded as attributes too.
    """

    def load(name: str) -> Any:
        if name in modules.values():
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules})
