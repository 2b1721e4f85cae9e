"""A pool may be anybody's: what its file says about sizes is checked before room is made for them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory import run_within
from pools import random_pool

from vpo_agent.measure import pool as pool_module
from vpo_agent.measure import stored_arrays
from vpo_agent.measure.pool import Pool
from vpo_envs.common.trust import trusting


def header(shape: tuple[int, ...], dtype: str) -> bytes:
    """The beginning of an array in NumPy's format."""
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, {"shape": shape, "fortran_order": False, "descr": dtype})
    return written.getvalue()


def with_member(path: Path, name: str, content: bytes, *, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """A pool with one member of its file replaced."""
    random_pool().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**members, f"{name}.npy": content}.items():
            archive.writestr(member, data, compression if member == f"{name}.npy" else None)
    return path


def refused_within(mebibytes: int, *paths: Path) -> list[str]:
    """The messages with which pools are refused within so much memory, one after the other."""
    code = f"""for path in {list(map(str, paths))!r}:
        try:
            Pool.load(Path(path))
        except ValueError as error:
            print(error)"""
    printed, _ = run_within(mebibytes, "from pathlib import Path; from vpo_agent.measure.pool import Pool", code)
    messages = printed.splitlines()
    assert len(messages) == len(paths)
    return messages


NOT_A_POOL = "is damaged, or was not written by vpo eval or a run"


def test_a_header_makes_no_room_for_what_is_not_there(tmp_path: Path) -> None:
    headers: list[tuple[str, tuple[int, ...], str]] = [
        ("answers", (1 << 20, 1 << 10, 1), "|u1"),
        ("answers", (1 << 40, 1, 1), "|u1"),
        ("vectors", (1 << 40, 3), "<f4"),
        ("front_points", (1 << 31, 3), "<f8"),
        ("objectives", (3,), "<U536870912"),
        ("objectives", (1 << 50,), "<U0"),
        ("tasks", (1 << 62, 0), "|u1"),
        ("indices", (-1,), "|u1"),
        ("source", (1 << 40,), "|u1"),
    ]
    paths = [
        with_member(tmp_path / f"{number}.npz", name, header(shape, dtype) + bytes(64))
        for number, (name, shape, dtype) in enumerate(headers)
    ]
    assert all(NOT_A_POOL in message for message in refused_within(64, *paths))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("answers", "<i8"),
        ("vectors", "<c8"),
        ("statuses", "<U4"),
        ("active", "<f4"),
        ("scalar_weights", "<M8[s]"),
        ("indices", "<f8"),
        ("objectives", "|S4"),
        ("source", "|O"),
        ("front_points", "<i8"),
        ("front_sizes", "<f8"),
    ],
)
def test_an_array_of_another_kind_is_no_pool(name: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    random_pool().save(path)
    with np.load(path) as data:
        shape = data[name].shape
    content = header(shape, dtype) + bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    with pytest.raises(ValueError, match=NOT_A_POOL):
        Pool.load(with_member(path, name, content))


def test_a_file_that_unpacks_to_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    zeros = header((1 << 27,), "|u1") + bytes(1 << 27)
    path = with_member(tmp_path / "pool.npz", "source", zeros)
    assert path.stat().st_size < 1 << 18
    [message] = refused_within(64, path)
    assert "unpacks to 134," in message
    assert "add --trust sizes" in message


def test_a_member_is_not_unpacked_beyond_what_it_says(tmp_path: Path) -> None:
    zeros = header((1 << 27,), "|u1") + bytes(1 << 27)
    path = with_member(tmp_path / "pool.npz", "source", zeros)
    with zipfile.ZipFile(path) as archive:
        stated = archive.getinfo("source.npy").file_size
    said = header((100,), "|u1")
    # In the header of the member, and in the list at the end of the file.
    data = path.read_bytes().replace(stated.to_bytes(4, "little"), (len(said) + 100).to_bytes(4, "little"))
    path.write_bytes(data)
    assert NOT_A_POOL in refused_within(64, path)[0]


def test_a_member_that_asks_for_a_large_dictionary_is_refused(tmp_path: Path) -> None:
    content = header((2,), "|u1") + b"{}"
    path = with_member(tmp_path / "pool.npz", "source", content, compression=zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match=NOT_A_POOL):
        Pool.load(path)


def test_texts_of_many_values_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    paths = []
    for text in (b"[" + b"[]," * (1 << 22) + b"[]]", b'{"a":' * (1 << 22), b"[" * (1 << 23)):
        content = header((len(text),), "|u1") + text
        paths.append(with_member(tmp_path / f"{len(paths)}.npz", "responses", content))
        assert paths[-1].stat().st_size < 1 << 17
    # Room for a few copies of a text, and not for its values.
    assert all(NOT_A_POOL in message for message in refused_within(160, *paths))


@pytest.mark.parametrize(
    ("most", "what"),
    [
        ("MOST_PROMPTS", "3 prompts"),
        ("MOST_ANSWERS", "8 answers to each prompt"),
        ("MOST_OBJECTIVES", "3 objectives"),
    ],
)
def test_a_pool_of_unknown_origin_has_sizes_that_can_be_measured(
    most: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, most, 2)
    pool = random_pool(fronts=False)
    pool.save(tmp_path / "pool.npz")
    with pytest.raises(ValueError, match=f"it has {what}, .* add --trust sizes"):
        Pool.load(tmp_path / "pool.npz")
    with trusting(["sizes"]):
        assert np.array_equal(Pool.load(tmp_path / "pool.npz").rewards, pool.rewards)


def test_rewards_that_unpack_to_much_are_refused_before_room_is_made(tmp_path: Path) -> None:
    """A number of a byte for each answer stands for a vector of a hundred rewards."""
    path = tmp_path / "pool.npz"
    answers = header((2000, 1000, 1), "|u1") + bytes(2_000_000)
    vectors = header((1, 100), "<f4") + bytes(400)
    with_member(path, "answers", answers)
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, "vectors.npy": vectors}.items():
            archive.writestr(name, content)
    [message] = refused_within(160, path)
    assert "it has 800,000,000 bytes of rewards" in message
    assert "add --trust sizes" in message


def test_what_is_trusted_may_unpack_to_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_arrays, "MOST_BYTES", 10)
    monkeypatch.setattr(stored_arrays, "USUAL_RATIO", 0)
    random_pool().save(tmp_path / "pool.npz")
    with pytest.raises(ValueError, match="unpacks to"):
        Pool.load(tmp_path / "pool.npz")
    with trusting(["sizes"]):
        Pool.load(tmp_path / "pool.npz")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scalar_weights", np.full((3, 3), np.nan), "some scalar_weights are NaN or infinite"),
        ("front_points", np.full((6, 3), np.inf), "some points of a front are NaN or infinite"),
        ("statuses", np.full(24, 77, dtype=np.int8), "status 77 is unknown"),
        ("statuses", np.zeros(23, dtype=np.int8), NOT_A_POOL),
        ("answers", np.full((3, 4, 2), 24, dtype=np.uint8), NOT_A_POOL),
        ("front_sizes", np.array([1, 2, 4], dtype=np.uint8), NOT_A_POOL),
    ],
)
def test_values_that_no_pool_has_are_named(name: str, value: Any, message: str, tmp_path: Path) -> None:
    written = io.BytesIO()
    np.save(written, value)
    with pytest.raises(ValueError, match=message):
        Pool.load(with_member(tmp_path / "pool.npz", name, written.getvalue()))
