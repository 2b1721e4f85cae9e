"""Check that a GGUF file has room for what its header states, since its reader makes an object of each stated value."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

from envs_data.parsing import MOST_VALUES

MAGIC = b"GGUF"
BYTES_OF_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY = 8, 9
WHOLE_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}
"""Kinds of values by their number in a file."""
MOST_LEVELS = 8
"""Deepest nesting of arrays."""
WEIGHTS_PER_BYTE = 8
"""Most weights in a byte of a file: the smallest formats have more than one bit for each."""
_LAYERS = re.compile(r"\.(\w+_)?(block|layer)_count$")
_EXPERTS = re.compile(r"\.expert_\w*count$")
BYTES_OF_AN_EXPERT = 32


def check_header(file: Path) -> None:
    """Raise ValueError with the reason if the header of a GGUF file states more than the file has room for.

    A file that does not begin as GGUF does is left to its reader.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        if opened.read(4) != MAGIC or size < 24:
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Header(data).check()


class _Header:
    """The header of a file, read from its start."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        # A number of the version that fits into two bytes tells the order of bytes.
        self._order = "<" if struct.unpack_from("<I", data, 4)[0] & 0xFFFF else ">"
        self._at = 8

    def check(self) -> None:
        tensors, values = self._number("Q"), self._number("Q")
        self._need(tensors, 24, "tensors")
        self._need(values, 13, "values")
        for _ in range(values):
            name = self._text()
            number = self._value(self._number("I"))
            experts = len(self._data) // BYTES_OF_AN_EXPERT
            for kind, most in ((_LAYERS, tensors), (_EXPERTS, experts)):
                if number is not None and kind.search(name) and number > most:
                    raise _too_many(f"{name}={number:,}", most)
        weights = sum(self._weights() for _ in range(tensors))
        if weights > WEIGHTS_PER_BYTE * len(self._data):
            raise _too_many(f"{weights:,} weights", WEIGHTS_PER_BYTE * len(self._data))

    def _weights(self) -> int:
        """Read the description of a tensor, and return how many weights it has."""
        self._text()
        dimensions = self._number("I")
        self._need(dimensions, 8, "dimensions")
        weights = 1
        for _ in range(dimensions):
            weights *= self._number("Q")
        self._skip(12)
        return weights

    def _value(self, kind: int, level: int = 0) -> int | None:
        """Read a value; return it if it is a whole number."""
        if kind == TEXT:
            self._text()
        elif kind == ARRAY and level < MOST_LEVELS:
            self._array(level + 1)
        elif kind in WHOLE_NUMBERS:
            return self._number(WHOLE_NUMBERS[kind])
        elif kind in BYTES_OF_SCALARS:
            self._skip(BYTES_OF_SCALARS[kind])
        else:
            raise ValueError(f"it has a value of an unknown kind, {kind}, or nests arrays too deeply")
        return None

    def _array(self, level: int) -> None:
        kind, count = self._number("I"), self._number("Q")
        self._need(count, BYTES_OF_SCALARS.get(kind, 8), "values in an array")
        if count > MOST_VALUES:
            raise ValueError(f"it has an array of {count:,} values, more than {MOST_VALUES:,}")
        if kind in BYTES_OF_SCALARS:
            self._skip(count * BYTES_OF_SCALARS[kind])
            return
        for _ in range(count):
            self._value(kind, level)

    def _text(self) -> str:
        length = self._number("Q")
        self._need(length, 1, "bytes of a text")
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "replace")

    def _number(self, form: str) -> int:
        form = self._order + form
        size = struct.calcsize(form)
        self._need(1, size, "values")
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(number)

    def _skip(self, count: int) -> None:
        self._need(count, 1, "bytes")
        self._at += count

    def _need(self, count: int, size: int, what: str) -> None:
        """Raise ValueError unless the file goes on for ``count`` times ``size`` bytes."""
        most = (len(self._data) - self._at) // size
        if count > most:
            raise _too_many(f"{count:,} {what}", most)


def _too_many(stated: str, most: int) -> ValueError:
    return ValueError(f"it states {stated} and has room for {most:,}")
