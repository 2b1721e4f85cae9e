"""Random streams of tasks: a namespace for each generator, three splits, and the i-th task of one."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np

from vpo_envs.contract.arguments import check_whole

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


def split_of_content(content: str) -> Split:
    """Return the split of a task with this content: half go to train, a quarter each to validation and test.

    A generator draws until the content falls into its own split, so no two splits share a task whatever the seeds.
    """
    return ("train", "train", "validation", "test")[crc32(content.encode()) >> 7 & 3]


MAX_STREAM = 2**32
"""Bound of ``data_seed`` and of a task's index: larger numbers could share a NumPy seed sequence."""

GENERATORS = ("generate", "draw")
"""Methods that draw tasks; a class with one of its own has random streams of its own."""

_namespaces: dict[int, str] = {}
"""Name and file of the class that each namespace belongs to."""
_executions: dict[str, object] = {}
"""Spec of the module that last made the class of each name without a stated namespace."""


def stream(namespace: int, split: Split, data_seed: int, index: int) -> np.random.Generator:
    """Return the random generator of the ``index``-th task."""
    check_whole("the index of a task", index, 0, MAX_STREAM)
    return np.random.default_rng(np.random.SeedSequence([namespace, SPLITS.index(split), data_seed, index]))


def claim_namespace(cls: type[Any]) -> None:
    """Claim the namespace that a class states; a class with a generator but no namespace gets one from its name."""
    stated = vars(cls).get("namespace")
    if stated is None and vars(cls).keys().isdisjoint(GENERATORS):
        return
    if stated is not None:
        check_whole(f"the namespace of {cls.__qualname__}", stated, 0, MAX_STREAM)
        if stated in [vars(base).get("namespace") for base in cls.__mro__[1:]]:
            return
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    # By its file, a module has one name whether it is run as a script or imported.
    module_name = ".".join(filter(None, [module.__package__, Path(file).stem])) if module and file else cls.__module__
    name = f"{module_name}.{cls.__qualname__}"
    if stated is None:
        # Each import or reload has a spec of its own; a notebook defines a class again in the same __main__.
        execution = getattr(module, "__spec__", None) if cls.__module__ != "__main__" else None
        if "<locals>" in name or (execution is not None and _executions.get(name) is execution):
            raise TypeError(
                f"several classes can have the name {name}, so they would draw from the same random streams: give "
                f"each a whole number of its own, from 0 to {MAX_STREAM - 1}, as the class attribute namespace"
            )
        _executions[name] = execution
        # The top bit keeps derived numbers apart from the small ones that people choose.
        cls.namespace = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) | 1 << 31
    claimed = f"{name} ({Path(file).resolve()})" if file else name
    owner = _namespaces.setdefault(cls.namespace, claimed)
    if owner != claimed:
        raise TypeError(
            f"{owner} and {claimed} both have namespace {cls.namespace}, so they would draw from the same random "
            "streams: give one of them another number"
        )
