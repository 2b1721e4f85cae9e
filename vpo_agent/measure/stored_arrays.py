"""Arrays from an ``.npz`` file that may be anybody's: sizes and kinds are checked before anything is unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MOST_BYTES = 1 << 27
"""Unpacked size that every file may have."""
USUAL_RATIO = 20
"""How many times its own size a larger file may unpack to; texts compress to a fifth, and repeated ones further."""
MOST_HEADER = 4096
"""Longest header of an array, in bytes."""
_PART = 1 << 20


class TooLarge(ValueError):
    """A file is larger than an untrusted file may be."""


def most_bytes(path: Path) -> int:
    """Return how many bytes an untrusted file may unpack to."""
    return max(MOST_BYTES, USUAL_RATIO * path.stat().st_size)


def read_arrays(
    path: Path, form_of: Callable[[str], tuple[str, int] | None], *, any_size: bool = False
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file.

    Args:
        path: The file.
        form_of: Returns the kind of number, as of ``dtype.kind``, and the number of axes of the array with a name;
            ``None`` for an array to leave out.
        any_size: Whether the file may unpack to any size.

    Raises:
        TooLarge: The file unpacks to too much.
        Exception: The file is damaged, or an array is not of its kind; zipfile and zlib raise half a dozen types.
    """
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        if not any_size and unpacked > most_bytes(path):
            raise TooLarge(f"it unpacks to {unpacked:,} bytes, too many for an untrusted file")
        for member in members:
            name = member.filename.removesuffix(".npy")
            form = form_of(name)
            if form is None:
                continue
            # What NumPy writes; others may ask for a dictionary of gigabytes.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} is compressed in a way that NumPy does not write")
            with archive.open(member) as file:
                arrays[name] = _read_array(file, name, form, member.file_size)
    return arrays


def _read_array(file: IO[bytes], name: str, form: tuple[str, int], size: int) -> NDArray[Any]:
    """Read an array from a member of ``size`` bytes, which its header must account for."""
    version = npy.read_magic(file)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, in_fortran_order, dtype = read_header(file, max_header_size=MOST_HEADER)
    kind, axes = form
    # Without the size of an element, an array of any length has no bytes.
    if dtype.kind != kind or not dtype.itemsize or len(shape) != axes or min(shape, default=0) < 0:
        raise ValueError(f"{name} has the type {dtype} and {len(shape)} axes")
    if file.tell() + prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{name} is not as large as its header says")
    array = np.empty(prod(shape), dtype=dtype)
    # Not with `readinto`, which would unpack a whole member at once, whatever it says about its size.
    place, room = 0, array.view(np.uint8)
    while part := file.read(min(_PART, len(room) - place)):
        room[place : place + len(part)] = np.frombuffer(part, dtype=np.uint8)
        place += len(part)
    if place < len(room):
        raise ValueError(f"{name} is cut short")
    return array.reshape(shape, order="F" if in_fortran_order else "C")
