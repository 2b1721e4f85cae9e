"""Checks of what callers pass: whole numbers and keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from vpo_envs.common.wording import did_you_mean


def check_whole(name: str, value: object, least: int, below: int | None = None) -> None:
    """Raise :class:`ValueError` unless ``value`` is an integer (not a ``bool``) from ``least`` to below ``below``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (below is not None and value >= below):  # type: ignore[operator]  # an integer
        bounds = f"of at least {least}" if below is None else f"from {least} to {below - 1}"
        raise ValueError(f"{name} must be an integer {bounds}, got {value!r}")


def refuse_arguments(env_type: type[Any], unknown: Mapping[str, Any]) -> None:
    """Raise :class:`ValueError` if a constructor was given arguments that it does not take."""
    if not unknown:
        return
    first = next(iter(unknown))
    known = constructor_arguments(env_type)
    # A ValueError, since Gymnasium rewrites the message of a TypeError.
    raise ValueError(
        f"{env_type.__name__} takes no argument {first!r}: {did_you_mean(first, known)}it takes {', '.join(known)}"
    )


def constructor_arguments(env_type: type[Any]) -> dict[str, Any]:
    """Return the arguments of a class and of its bases with their defaults, as far as ``**options`` passes them on."""
    known: dict[str, Any] = {}
    for cls in env_type.__mro__:
        constructor = vars(cls).get("__init__")
        if constructor is None:
            continue
        parameters = list(inspect.signature(constructor).parameters.values())[1:]
        named = {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        known = {**known, **{name: default for name, default in named.items() if name not in known}}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return known
