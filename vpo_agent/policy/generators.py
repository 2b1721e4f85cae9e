"""The state of a process's global random generators, for checkpoints.

The project's own random streams are keyed by (seed, step) and need no state. This is for the user's code, such as an
environment or estimator that draws from a global generator.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def generator_states() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the states of the generators of Python and NumPy as JSON values, and those of PyTorch as tensors."""
    version, internal, gauss = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator is what is saved
    numbers = {
        "python": [version, list(internal), gauss],
        "numpy": {**numpy, "state": {"key": numpy["state"]["key"].tolist(), "pos": int(numpy["state"]["pos"])}},
    }
    on_gpus = {f"torch_cuda_{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return numbers, {"torch_cpu": torch.get_rng_state(), **on_gpus}


def restore_generators(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Restore the states from :func:`generator_states`, except those of GPUs that are no longer available."""
    version, internal, gauss = numbers["python"]
    random.setstate((version, tuple(internal), gauss))
    key = np.array(numbers["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state({**numbers["numpy"], "state": {**numbers["numpy"]["state"], "key": key}})  # noqa: NPY002
    torch.set_rng_state(tensors["torch_cpu"])
    for i in range(torch.cuda.device_count()):
        if f"torch_cuda_{i}" in tensors:
            torch.cuda.set_rng_state(tensors[f"torch_cuda_{i}"], i)
