"""Read rows of local files and Hugging Face data sets as validated objects.

A source is the path of a ``.json``, ``.jsonl`` or ``.ndjson`` file (an array of rows, or one row per line), optionally
with ``.gz``; a ``.parquet`` file; or ``hf:org/name`` or ``hf:org/name:config`` for a data set of the Hugging Face hub.
The caller's function interprets a row; the errors of this module say where the row came from.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args
from uuid import UUID

from pydantic import ValidationError

from envs_data.parsing import parse_json

OnBadRow = Literal["error", "skip"]
RowT = TypeVar("RowT")

HUB = "hf:"
JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
SHOWN_CHARS = 40
"""Characters of a bad value that a message shows."""
MOST_CHARS = 1 << 28
"""Most characters of a line, and of an array of rows: a compressed megabyte can hold a gigabyte."""
MOST_UNPACKED, MOST_PER_BYTE = 1 << 29, 50
"""Most bytes of the unpacked rows of a file: the first number, or the second number times the size of the file if that
is more. A kilobyte of parquet can hold a text of a megabyte 20,000 times."""
BYTES_OF_A_VALUE = 64
"""Fewest bytes that a value of a row takes in Python, with its share of the row."""
ENDINGS = (*JSON_ENDINGS, *(f"{ending}.gz" for ending in JSON_ENDINGS), ".parquet")


class BadRow(ValueError):
    """Raised for a row that does not fit its schema.

    Args:
        field: Name of the field at fault, such as ``"answer"``; empty for the row as a whole.
        reason: What is wrong with it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"field {field!r}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class LoadedRows(NamedTuple, Generic[RowT]):
    """The rows of a source, in order."""

    rows: tuple[RowT, ...]
    skipped: int
    """Number of bad rows that were left out."""
    first_skipped: str
    """Place and reason of the first skipped row; empty if there is none."""


def load_rows(
    source: str | Sequence[Mapping[str, Any]],
    read_row: Callable[[Mapping[str, Any]], RowT],
    *,
    split: str = "train",
    on_bad_row: OnBadRow = "error",
) -> LoadedRows[RowT]:
    """Read every row of a source.

    Args:
        source: A path, or ``hf:org/name[:config]``, see the module; or the rows themselves.
        read_row: Turns a raw row into a validated one, or raises :class:`BadRow` or pydantic's error.
        split: Split of a Hugging Face data set; files have no splits.
        on_bad_row: ``"error"`` stops at the first bad row; ``"skip"`` leaves bad rows out and counts them.

    Raises:
        ValueError: The source cannot be read, a row is bad, or no row is good; one sentence that names the place.
    """
    if on_bad_row not in get_args(OnBadRow):
        raise ValueError(f"unknown on_bad_row {on_bad_row!r}: choose one of {', '.join(get_args(OnBadRow))}")
    raw_rows: Iterable[tuple[str, object]]
    if not isinstance(source, str):
        origin, raw_rows = "the given rows", ((f"row {number}", row) for number, row in enumerate(source, start=1))
    elif source.startswith(HUB):
        origin, raw_rows = f"{source} ({split})", _hub_rows(source, split)
    else:
        origin, raw_rows = source, _file_rows(source)
    rows: list[RowT] = []
    skipped, first_reason = 0, ""
    for place, raw in raw_rows:
        try:
            if isinstance(raw, BadRow):
                raise raw
            if not isinstance(raw, Mapping):
                raise BadRow("", f"a row is a JSON object, got {type(raw).__name__}")
            rows.append(read_row(raw))
        except ValueError as error:
            reason = f"{origin}, {place}, {_reason(error)}"
            if on_bad_row == "error":
                raise ValueError(reason) from None
            first_reason = first_reason or reason
            skipped += 1
    if not rows:
        if skipped:
            raise ValueError(f"{origin} has no good row: all {skipped} were skipped; the first: {first_reason}")
        raise ValueError(f"{origin} is empty: it holds no rows")
    return LoadedRows(tuple(rows), skipped, first_reason)


def _reason(error: ValueError) -> str:
    """Return what is wrong with a row, with its field, from the error of its reader."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ")
    elif first["type"] == "missing":
        message = first["msg"]
    else:
        wanted = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        message = f"{wanted.partition(' after validation')[0]}, got {_shown(first['input'])}"
    return f"field {field!r}: {message}" if field else message


def _shown(value: object) -> str:
    """Return a short value as JSON, and a name for the type of a long one."""
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value, default=lambda other: type(other).__name__)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _file_rows(source: str) -> Iterator[tuple[str, object]]:
    """Yield each row of a file with its place; a line that is not JSON is a :class:`BadRow`."""
    name = source.lower()
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"{source} is a folder: name one file in it")
    if not name.endswith(ENDINGS):
        raise ValueError(f"{source}: unknown kind of file; a source ends in {', '.join(ENDINGS)}, or is hf:org/name")
    if not path.exists():
        raise ValueError(f"{source}: no such file; give the path of a file, or hf:org/name for a data set")
    try:
        if path.stat().st_size == 0:
            raise ValueError(f"{source} is empty: it holds no rows")
        yield from _parquet_rows(path, source) if name.endswith(".parquet") else _json_rows(path, source)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{source}: the gzip file is damaged or cut short ({error})") from None
    except OSError as error:
        raise ValueError(f"{source}: cannot be read ({error.strerror or _first_line(error)})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}: the file is not UTF-8 text ({error.reason} at byte {error.start})") from None


def _json_rows(path: Path, source: str) -> Iterator[tuple[str, object]]:
    with gzip.open(path) if source.lower().endswith(".gz") else path.open("rb") as raw:
        # utf-8-sig drops the byte order mark of some editors.
        text = io.TextIOWrapper(raw, encoding="utf-8-sig")
        unpacked, most = 0, _most_unpacked(path)
        for number, line in enumerate(iter(lambda: text.readline(MOST_CHARS + 1), ""), start=1):
            if len(line) > MOST_CHARS:
                raise ValueError(f"{source}: line {number} is longer than {MOST_CHARS:,} characters")
            unpacked += len(line)
            if unpacked > most and isinstance(raw, gzip.GzipFile):
                raise _too_large(source, most)
            if not line.strip():
                continue
            if line.lstrip().startswith("["):
                array = line + text.read(MOST_CHARS)
                if text.read(1):
                    raise ValueError(f"{source} is longer than {MOST_CHARS:,} characters: write one row per line")
                try:
                    rows = parse_json(array, any_length=True, most_values=None)
                except ValueError as error:
                    raise ValueError(f"{source}: not JSON ({error})") from None
                for position, row in enumerate(rows, start=1):
                    yield f"row {position}", _encodable(row, array)
                return
            try:
                row = _encodable(parse_json(line, any_length=True), line)
            except ValueError as error:
                row = BadRow("", f"not JSON ({error})")
            yield f"line {number}", row


def _encodable(row: object, text: str) -> object:
    """Return the row, or a :class:`BadRow` if it holds a lone surrogate, which only an escape in ``text`` can cause."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            return BadRow("", f"half of a surrogate pair, which is not a character: {error.object[error.start]!a}")
    return row


def as_json(value: object) -> Any:
    """Return a value of a row as JSON that is the same in every process, whatever its column holds.

    Dates and times become texts in ISO 8601, decimal numbers and identifiers texts, bytes base64, arrays, tuples and
    sets lists, and a number that is NaN null. Of an object of any other type only the name of its type is kept.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(map(as_json, value), key=repr)
    if isinstance(value, date | time | datetime):
        return None if value != value else value.isoformat()  # pandas has a NaT, which is not itself
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID | Fraction):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy
        return as_json(value.tolist())
    return f"<{type(value).__name__}>"


def _parquet_rows(path: Path, source: str) -> Iterator[tuple[str, object]]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError(f"{source}: reading parquet needs pyarrow: pip install pyarrow") from None
    most = _most_unpacked(path)
    try:
        with parquet.ParquetFile(path) as file:
            metadata = file.metadata
            if sum(map(_stated_size, _column_chunks(metadata))) > most:
                raise _too_large(source, most)
            # Texts that are repeated are repeated in memory only once their size is known.
            texts = [
                column.path for column in map(metadata.schema.column, range(metadata.num_columns)) if _is_text(column)
            ]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            number = unpacked = 0
            for batch in file.iter_batches():
                unpacked += sum(map(_unpacked_size, batch.columns))
                if unpacked > most:
                    raise _too_large(source, most)
                names, columns = batch.schema.names, [_column_values(column) for column in batch.columns]
                for values in zip(*columns, strict=True):
                    number += 1
                    yield f"row {number}", dict(zip(names, values, strict=True))
    except pyarrow.ArrowException as error:
        raise ValueError(f"{source}: not a readable parquet file ({_first_line(error)})") from None


def _most_unpacked(path: Path) -> int:
    return max(MOST_UNPACKED, MOST_PER_BYTE * path.stat().st_size)


def _too_large(source: str, most: int) -> ValueError:
    return ValueError(f"{source}: its rows unpack to more than {most:,} bytes: divide it into smaller files")


def _column_chunks(metadata: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the chunks of a parquet file, each with its column."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for number in range(group.num_columns):
            yield group.column(number), metadata.schema.column(number)


def _stated_size(chunk_of_column: tuple[Any, Any]) -> int:
    """Return the bytes of a chunk as its metadata state them, where each value is an object of Python."""
    chunk, column = chunk_of_column
    return int(max(chunk.total_uncompressed_size, chunk.num_values * max(BYTES_OF_A_VALUE, column.length)))


def _is_text(column: Any) -> bool:
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL")


def _unpacked_size(array: Any) -> int:
    """Return the bytes of an array of pyarrow, with a text for each time that it occurs."""
    types, compute = import_module("pyarrow").types, import_module("pyarrow.compute")
    if isinstance(array, import_module("pyarrow").ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0) + int(array.indices.nbytes)
    if types.is_struct(array.type):
        return sum(map(_unpacked_size, array.flatten()))
    if types.is_map(array.type):
        return _unpacked_size(array.keys) + _unpacked_size(array.items)
    if types.is_nested(array.type):
        return _unpacked_size(array.flatten())
    return int(array.nbytes)


def _column_values(column: Any) -> list[Any]:
    """Return the values of a column of parquet; those that Python has no type for, such as the year 10000, as text."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        try:
            values = column.cast("string").to_pylist()
        except NotImplementedError:
            values = [f"<{column.type}>"] * len(column)
    return values


def _hub_rows(source: str, split: str) -> Iterator[tuple[str, object]]:
    match = re.fullmatch(r"hf:([\w.-]+(?:/[\w.-]+)?)(?::([\w.-]+))?", source)
    if match is None:
        raise ValueError(f"{source!r} does not name a data set: write hf:org/name or hf:org/name:config")
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise ValueError(f"{source}: reading from the Hugging Face hub needs datasets: pip install datasets") from None
    name, config = match.groups()
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the hub's client raises errors of many libraries
        reason = f"{source}: split {split!r} cannot be loaded ({type(error).__name__}: {_first_line(error)})"
        if isinstance(error, ConnectionError):
            reason += "; check the name and the network, or load a file instead"
        raise ValueError(reason) from None
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]
