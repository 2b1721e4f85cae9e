"""A folder that is written completely or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


def check_folder(out: Path, mark: str) -> None:
    """Raise a ValueError unless ``out`` is new, empty, or an earlier report, which holds the file ``mark``, by name."""
    if out.name in ("", ".."):
        raise ValueError(f"{str(out)!r} is not the name of a folder that can be replaced: choose another --out")
    if out.is_dir():
        if any(out.iterdir()) and not (out / mark).is_file():
            raise ValueError(f"{str(out)!r} holds something other than a report: choose another --out")
    elif out.exists():
        raise ValueError(f"{str(out)!r} is a file, not a folder: choose another --out")


@contextmanager
def whole_folder(out: Path, mark: str) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces ``out`` once the block has written everything."""
    check_folder(out, mark)
    aside = out.with_name(f".{out.name}.{uuid4().hex}.part")
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"cannot write the folder {str(out)!r}: {error.strerror}") from error
    try:
        yield aside
        check_folder(out, mark)
        if out.exists():
            before = aside.with_suffix(".old")
            out.rename(before)
            aside.rename(out)
            shutil.rmtree(before)
        else:
            aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
