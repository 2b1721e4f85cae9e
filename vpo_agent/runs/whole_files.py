"""Files that are whole or absent: texts and checkpoints that are written aside, and hashed to detect damage.

This module loads no torch, so that a report on finished runs takes seconds.
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

from envs_data.parsing import read_object
from vpo_envs.common.libraries import version

MANIFEST = "manifest.json"
NOT_OF_THE_MODEL = ("optimizer.safetensors", "state.json", "generators.json", "generators.safetensors", MANIFEST)
"""Files of a checkpoint that only a resumed run reads; the rest is a model folder."""
ASIDE = ".writing_"
_DAMAGED = "damaged_"


class DamagedCheckpoint(ValueError):
    """A file of a checkpoint is missing or has changed."""


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
            f"{', '.join(reasons)}, and there is no intact checkpoint to continue from: restore one from a copy, or "
            "give --overwrite instead of --resume, which deletes the run and starts again"
        )
    return None, []


def write_manifest(folder: Path) -> None:
    """Write the SHA-256 of every file in a folder, which :func:`check_checkpoint` compares."""
    write_json(folder / MANIFEST, {"sha256": _hashes(folder)}, indent=2)


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


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new one."""
    aside = path.with_name(f".{path.name}.writing")
    try:
        aside.write_text(text, encoding="utf-8")
        flush_to_disk(aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    """Write a JSON file."""
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


def delete_checkpoint(checkpoint: Path) -> None:
    """Rename a checkpoint, then delete it, so that a partly deleted one never looks complete."""
    if checkpoint.exists():
        aside = checkpoint.with_name(ASIDE + checkpoint.name + "_deleted")
        checkpoint.rename(aside)
        shutil.rmtree(aside)


def flush_to_disk(path: Path) -> None:
    """Return when a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_RECORDED = ("vpo-gym", "torch", "transformers", "numpy", "safetensors", "tokenizers", "peft")


def library_versions() -> dict[str, str]:
    """Return the installed versions, by library."""
    versions = {"python": platform.python_version()}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
