"""Checkpoints: written atomically, so that each is complete or absent, and hashed to detect damage.

They hold only safetensors and JSON, so reading one runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from envs_data.parsing import read_object
from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_envs.common.libraries import version

MANIFEST = "manifest.json"
NOT_OF_THE_MODEL = ("optimizer.safetensors", "state.json", "generators.json", "generators.safetensors", MANIFEST)
"""Files of a checkpoint that only a resumed run reads; the rest is a model folder."""
_ASIDE = ".writing_"
_DAMAGED = "damaged_"


class DamagedCheckpoint(ValueError):
    """A file of a checkpoint is missing or has changed."""


def save_checkpoint(
    folder: Path, step: int, policy: LMPolicy, optimizer: MasterAdamW, state: dict[str, Any], keep: int
) -> Path:
    """Save everything that a resumed run needs, and delete all but the ``keep`` newest checkpoints.

    The checkpoint is a model folder that ``from_pretrained`` reads, with the files :data:`NOT_OF_THE_MODEL`: the
    optimizer, ``state`` with the versions of the libraries, the global random generators, and a manifest with the
    SHA-256 of every other file. It gets its name only when it is complete.
    """
    target = folder / f"step_{step:06d}"
    aside = folder / f"{_ASIDE}{target.name}"
    for abandoned in folder.glob(f"{_ASIDE}*"):
        shutil.rmtree(abandoned)
    aside.mkdir(parents=True)
    try:
        policy.save(aside)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in optimizer.state().items()}
        save_file(tensors, aside / "optimizer.safetensors")
        numbers, generators = generator_states()
        save_file(generators, aside / "generators.safetensors")
        _write_json(aside / "generators.json", numbers)
        _write_json(aside / "state.json", {"step": step, **state, "versions": library_versions()}, indent=2)
        write_manifest(aside)
        for path in (*aside.rglob("*"), aside):
            _flush(path)
    except BaseException:
        # Free the space: the disk may be full.
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _delete(target)
    aside.rename(target)
    _flush(folder)
    for old in checkpoints(folder)[:-keep]:
        _delete(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, oldest first, without incomplete ones; damage is not checked."""
    complete = [path for path in folder.glob("step_*") if path.name.removeprefix("step_").isdecimal() and path.is_dir()]
    return sorted(complete, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step_"))


def newest_whole(folder: Path) -> tuple[Path | None, list[Path]]:
    """Return the newest intact checkpoint, ``None`` without any, and the damaged checkpoints that are newer.

    Damaged checkpoints are named on standard error.

    Raises:
        ValueError: All checkpoints are damaged.
    """
    damaged: list[Path] = []
    reasons: list[str] = []
    for checkpoint in reversed(checkpoints(folder)):
        try:
            check_checkpoint(checkpoint)
        except DamagedCheckpoint as error:
            damaged.append(checkpoint)
            reasons.append(str(error))
            continue
        for reason in reasons:
            print(f"{reason}: continuing from {checkpoint.name}, the one before it", file=sys.stderr)
        return checkpoint, damaged
    if damaged:
        raise ValueError(
            f"{', '.join(reasons)}, and there is no intact one to continue from: restore one from a copy, or give "
            "--overwrite instead of --resume, which deletes the run and starts again"
        )
    return None, []


def write_manifest(folder: Path) -> None:
    """Write the SHA-256 of every file in a folder, which :func:`check_checkpoint` compares."""
    _write_json(folder / MANIFEST, {"sha256": _hashes(folder)}, indent=2)


def check_checkpoint(checkpoint: Path) -> None:
    """Raise DamagedCheckpoint unless every file is as the manifest states."""
    try:
        if not (checkpoint / MANIFEST).is_file():
            raise ValueError(f"{MANIFEST} is missing")
        stated = read_object(checkpoint / MANIFEST)["sha256"]
        present = _hashes(checkpoint)
        for name, sha256 in sorted(stated.items()):
            if name not in present:
                raise ValueError(f"{name} is missing")
            if present[name] != sha256:
                raise ValueError(f"{name} does not match its SHA-256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error) if type(error) is ValueError else f"{MANIFEST} cannot be read"
        raise DamagedCheckpoint(f"the checkpoint {str(checkpoint)!r} is damaged ({why})") from error


def set_aside(damaged: list[Path]) -> None:
    """Rename damaged checkpoints, so that they no longer count as checkpoints."""
    for checkpoint in damaged:
        target = checkpoint.with_name(_DAMAGED + checkpoint.name)
        shutil.rmtree(target, ignore_errors=True)
        checkpoint.rename(target)


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


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new one."""
    aside = path.with_name(f".{path.name}.writing")
    try:
        aside.write_text(text, encoding="utf-8")
        _flush(aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def _write_json(path: Path, value: Any, indent: int | None = None) -> None:
    path.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file but the manifest, by path in the folder."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            with path.open("rb") as file:
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def _delete(checkpoint: Path) -> None:
    """Rename a checkpoint, then delete it, so that a partly deleted one never looks complete."""
    if checkpoint.exists():
        aside = checkpoint.with_name(_ASIDE + checkpoint.name + "_deleted")
        checkpoint.rename(aside)
        shutil.rmtree(aside)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_RECORDED = ("vpo-gym", "torch", "transformers", "numpy", "safetensors", "tokenizers", "peft")
_DECISIVE = ("torch", "transformers")
"""Libraries whose version may change what a step computes."""


def library_versions() -> dict[str, str]:
    """Return the installed versions, by library."""
    versions = {"python": platform.python_version()}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
