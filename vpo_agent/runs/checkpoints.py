"""Checkpoints: what a resumed run needs, in safetensors and JSON alone, so that reading one runs no code."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from envs_data.parsing import read_object
from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.whole_files import (
    ASIDE,
    checkpoints,
    delete_checkpoint,
    flush_to_disk,
    library_versions,
    write_json,
    write_manifest,
)

_DECISIVE = ("torch", "transformers")
"""Libraries whose version may change what a step computes."""


def save_checkpoint(
    folder: Path, step: int, policy: LMPolicy, optimizer: MasterAdamW, state: dict[str, Any], keep: int
) -> Path:
    """Save everything that a resumed run needs, and delete all but the ``keep`` newest checkpoints.

    The checkpoint is a model folder that ``from_pretrained`` reads, with the files :data:`NOT_OF_THE_MODEL`: the
    optimizer, ``state`` with the versions of the libraries, the global random generators, and a manifest with the
    SHA-256 of every other file. It gets its name only when it is complete.
    """
    target = folder / f"step_{step:06d}"
    aside = folder / f"{ASIDE}{target.name}"
    for abandoned in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(abandoned)
    aside.mkdir(parents=True)
    try:
        policy.save(aside)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in optimizer.state().items()}
        save_file(tensors, aside / "optimizer.safetensors")
        numbers, generators = generator_states()
        save_file(generators, aside / "generators.safetensors")
        write_json(aside / "generators.json", numbers)
        write_json(aside / "state.json", {"step": step, **state, "versions": library_versions()}, indent=2)
        write_manifest(aside)
        for path in (*aside.rglob("*"), aside):
            flush_to_disk(path)
    except BaseException:
        # Free the space: the disk may be full.
        shutil.rmtree(aside, ignore_errors=True)
        raise
    delete_checkpoint(target)
    aside.rename(target)
    flush_to_disk(folder)
    for old in checkpoints(folder)[:-keep]:
        delete_checkpoint(old)
    return target


def load_checkpoint(checkpoint: Path, optimizer: MasterAdamW) -> dict[str, Any]:
    """Restore the optimizer and the global random generators, and return the saved ``state``, with ``step``.

    The weights are read by ``LMPolicy.from_pretrained``. A line on standard error says whether the libraries have
    changed since.

    Raises:
        ValueError: The checkpoint cannot be read, or belongs to another model.
    """
    changed: list[str] = []
    try:
        state: dict[str, Any] = read_object(checkpoint / "state.json")
        saved, installed = state["versions"], library_versions()
        for name in _DECISIVE:
            if name in saved and saved[name] != installed.get(name):
                changed.append(f"{name} {saved[name]}, now {installed.get(name, 'missing')}")
        optimizer.load_state(load_file(checkpoint / "optimizer.safetensors"))
        numbers = read_object(checkpoint / "generators.json")
        restore_generators(numbers, load_file(checkpoint / "generators.safetensors"))
    except Exception as error:  # safetensors raises its own types
        why = f"{error}; it was written with {', '.join(changed)}" if changed else str(error)
        raise ValueError(f"cannot resume from the checkpoint {str(checkpoint)!r}: {why}") from error
    if changed:
        print(
            f"{checkpoint.name} was written with {', '.join(changed)}: the numbers that follow may differ from those "
            "of a run that was never stopped",
            file=sys.stderr,
        )
    return state
