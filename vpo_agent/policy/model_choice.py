"""Which model a command works with, on which device and in which number format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from envs_data.models import find_bundled
from vpo_envs.common.wording import counted

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ModelChoice:
    """A model, where it is, and how it computes; a command chooses once, at its start."""

    name: str
    """Name of the model as the settings give it."""
    path: str
    """A folder, a GGUF file, or a name on the Hugging Face Hub."""
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, name_or_path: str | Path, *, device: str = "auto", dtype: str = "auto") -> ModelChoice:
        """Return the choice that settings make; nothing is read or downloaded.

        Args:
            name_or_path: A bundled model (``"tiny-maze"``), a name on the Hugging Face Hub, a folder or a GGUF file.
            device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
            dtype: ``"auto"`` (bfloat16 on a GPU, float32 on a CPU), ``"float32"`` or ``"bfloat16"``.

        Raises:
            ValueError: The device or the number format is unknown, or this machine has no such device.
        """
        chosen_device = choose_device(device)
        name = str(name_or_path)
        return cls(name, find_bundled(name), chosen_device, choose_dtype(dtype, chosen_device))


def choose_device(device: str) -> torch.device:
    """Return the device that a setting names; ``"auto"`` is a GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}: give auto, cpu, cuda or cuda:0")
    if chosen.type == "cuda":
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not gpus:
            raise ValueError(f"device {device!r} asks for a GPU, but PyTorch sees none: use --device cpu")
        if (chosen.index or 0) >= gpus:
            raise ValueError(
                f"device {device!r} does not exist: PyTorch sees {counted(gpus, 'GPU')}, cuda:0 to cuda:{gpus - 1}"
            )
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Return the number format that a setting names; ``"auto"`` is bfloat16 on a GPU and float32 on a CPU."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}: choose one of auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]
