"""Checks of what callers pass: whole numbers, keyword arguments, and vector environments that cannot hold vectors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from vpo_envs.common.wording import did_you_mean


def check_whole(name: str, value: object, least: int, below: int | None = None) -> None:
    """Raise :class:`ValueError` unless ``value`` is an integer (not a ``bool``) from ``least`` to below ``below``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (below is not None and value >= below):  # type: ignore[operator]  # an integer
        bounds = f"of at least {least}" if below is None else f"from {least} to {below - 1}"
        raise ValueError(f"{name} must be an integer {bounds}, got {value!r}")


def refuse_arguments(made_of: type[Any], unknown: Mapping[str, Any]) -> None:
    """Raise :class:`ValueError` if a constructor was given arguments that it does not take."""
    if unknown:
        # It also takes those of its bases, as far as it passes them on.
        known: dict[str, None] = {}
        for cls in made_of.__mro__:
            if init := vars(cls).get("__init__"):
                parameters = list(inspect.signature(init).parameters.values())[1:]
                known |= {p.name: None for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
                if all(p.kind is not p.VAR_KEYWORD for p in parameters):
                    break
        first = next(iter(unknown))
        hint = did_you_mean(first, known)
        # A ValueError, since Gymnasium rewrites the message of a TypeError.
        raise ValueError(f"{made_of.__name__} takes no argument {first!r}: {hint}it takes {', '.join(known)}")


def refuse_scalar_copies() -> None:
    """Raise if ``gym.make_vec(…, vectorization_mode="sync")`` is making an environment without wrappers.

    Gymnasium's ``SyncVectorEnv`` writes each reward into one number, so the first step would fail for a vector. No
    argument tells an environment who makes it, hence the look at the callers.
    """
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code is gym.make_vec.__code__:
            mode, wrappers = (frame.f_locals.get(name) for name in ("vectorization_mode", "wrappers"))
            if mode is gym.VectorizeMode.SYNC and not wrappers:
                raise ValueError(
                    "vectorization_mode='sync' keeps one number per reward, and this environment's rewards are "
                    "vectors: leave it out, or make the rewards scalar with wrappers=[…LinearReward…]"
                )
            return
