"""The random generators of a process, as text and tensors, for a checkpoint.

The project's own streams need none of this: tasks, weights, samples, shuffles and evaluations are keyed by (seed, step)
and made anew at each step. It is for what a user adds, such as an environment or an estimator that draws from a global
generator.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def generator_states() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """States of the global generators: Python's and NumPy's as JSON has them, those of PyTorch as tensors."""
    version, internal, gauss = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator is what is saved
    numbers = {
        "python": [version, list(internal), gauss],
        "numpy": {**numpy, "state": {"key": numpy["state"]["key"].tolist(), "pos": int(numpy["state"]["pos"])}},
    }
    tensors = {"torch_cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"torch_cuda_{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return numbers, tensors


def restore_generators(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Give the global generators the states of :func:`generator_states`; those of GPUs that are gone are left out."""
    version, internal, gauss = numbers["python"]
    random.setstate((version, tuple(internal), gauss))
    key = np.array(numbers["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state({**numbers["numpy"], "state": {**numbers["numpy"]["state"], "key": key}})  # noqa: NPY002
    torch.set_rng_state(tensors["torch_cpu"])
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"torch_cuda_{i}" in tensors:
            torch.cuda.set_rng_state(tensors[f"torch_cuda_{i}"], i)
