"""What saved files may choose: pools and runs may come from anybody, so what they name beyond themselves is not used.

The user says what is trusted, on the command line with ``--trust``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

MODELS = "models"
"""Name for ``--trust``: a model that a saved file names may be fetched. Also an argument of ``vpo/RewardModels-v0``."""
PROGRAMS = "programs"
"""Name for ``--trust``: programs that a saved file holds as answers may run."""
SIZES = "sizes"
"""Name for ``--trust``: sample files may be larger than the limits for untrusted files."""

_names: set[str] = set()
_values: list[tuple[str, Any]] = []


def trust(names: Iterable[str]) -> None:
    """Let saved files choose what has these names: arguments of environments, :data:`MODELS`, …"""
    _names.update(names)


def trust_values(arguments: Mapping[str, Any]) -> None:
    """Let saved files choose arguments of environments with exactly these values, which the user stated."""
    _values.extend(arguments.items())


def is_trusted(name: str, value: Any = None) -> bool:
    """Return whether saved files may choose what has this name, or this argument with this value."""
    return name in _names or (name, value) in _values


@contextmanager
def trusting(names: Iterable[str]) -> Iterator[None]:
    """Trust these names, and what the block comes to trust, until its end."""
    former_names, former_values = set(_names), list(_values)
    trust(names)
    try:
        yield
    finally:
        _names.intersection_update(former_names)
        _values[:] = former_values
