"""The file of a pool: it reads back whole, and anything else is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import D, M, N, R, random_pool

from vpo_agent.pareto.pool import Pool

TEXTS = ("<answer>Zürich 東京</answer>", "", "half a pair \ud83d", 'line\nbreak \x00 "quotes"')
SOURCE = {
    "env": "vpo/Maze-v0",
    "env_kwargs": {"preset": "embedded-easy"},
    "seed": 3,
    "method": "vpo",
    "temperature": 0.7,
}


def full_pool() -> Pool:
    """A pool that says where it comes from, with the texts of its responses."""
    tokens = np.arange(N * R, dtype=np.int32).reshape(N, R)
    return replace(random_pool(), responses=(TEXTS,) * N, tokens=tokens, source=SOURCE)


@pytest.mark.parametrize("fronts", [True, False])
def test_a_pool_survives_its_file(tmp_path: Path, fronts: bool) -> None:
    pool = full_pool() if fronts else random_pool(fronts=False)
    path = tmp_path / "pool.npz"
    pool.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["pool.npz"]
    again = Pool.load(path)
    for name in ("rewards", "status", "active", "scalar_weights", "indices"):
        np.testing.assert_array_equal(getattr(again, name), getattr(pool, name))
        assert getattr(again, name).dtype == getattr(pool, name).dtype
    assert again.objectives == pool.objectives
    assert again.responses == pool.responses
    assert again.source == pool.source
    np.testing.assert_array_equal(again.tokens, pool.tokens)
    if pool.fronts is None:
        assert again.fronts is None
    else:
        assert again.fronts is not None
        for mine, theirs in zip(again.fronts, pool.fronts, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("content", [None, b"", b"not a pool", b"PK\x03\x04 half an archive"])
def test_a_pool_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pool.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read the pool of answers '.*pool.npz'"):
        Pool.load(path)


def test_a_file_from_before_texts_were_kept_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    with np.load(path) as data:
        kept = {name: data[name] for name in data.files if name not in ("responses", "tokens", "source")}
    np.savez_compressed(path, **kept)
    old = Pool.load(path)
    assert old.responses is old.tokens is None
    assert old.source == {}
    np.testing.assert_array_equal(old.rewards, full_pool().rewards)


def test_texts_take_the_room_of_their_bytes(tmp_path: Path) -> None:
    """One long response among short ones; in an array of fixed width each would take what the longest takes."""
    rows = [["x"] * R for _ in range(N)]
    rows[0][0] = "y" * 10_000
    path = tmp_path / "pool.npz"
    replace(random_pool(), responses=tuple(map(tuple, rows))).save(path)
    with np.load(path) as data:
        assert data["responses"].dtype == np.uint8
        assert data["responses"].nbytes < 10_000 + 10 * N * R


@pytest.mark.parametrize("content", [b"[]", b'"text"', b"[[1]]", b"{", b"\xff"])
def test_texts_that_are_none_are_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    with np.load(path) as data:
        kept = {name: data[name] for name in data.files}
    np.savez(path, **{**kept, "responses": np.frombuffer(content, dtype=np.uint8)})
    with pytest.raises(ValueError, match="cannot read the pool"):
        Pool.load(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    with np.load(path) as data:
        kept = {name: data[name] for name in data.files}
    np.savez(path, **{**kept, "objectives": np.array(["a", "b", "c"], dtype=object)})
    with pytest.raises(ValueError, match="cannot read the pool"):
        Pool.load(path)


def test_a_damaged_file_is_no_pool_or_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    written = path.read_bytes()
    random = np.random.default_rng(0)
    messages = set()
    for _ in range(200):
        at = random.integers(len(written) - 20)
        path.write_bytes(written[:at] + random.bytes(20) + written[at + 20 :])
        try:
            assert np.array_equal(Pool.load(path).rewards, full_pool().rewards)
        except ValueError as error:
            messages.add(str(error).split("'")[0])
    assert messages == {"cannot read the pool of answers "}


def test_a_lone_array_is_no_pool(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="cannot read the pool"):
        Pool.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": np.zeros((N, R, D), np.float32)}, r"shape \(N, R, m, d\)"),
        ({"rewards": np.zeros((N, 0, M, D), np.float32)}, "none of them 0"),
        ({"status": np.zeros((N, R), np.int8)}, "need status of shape"),
        ({"active": np.ones((N, D + 1), bool)}, "need active of shape"),
        ({"scalar_weights": np.ones((N + 1, D))}, "need scalar_weights of shape"),
        ({"indices": np.arange(N + 1)}, "need indices of shape"),
        ({"objectives": ("a", "b")}, "have 3 objectives, but 2 are named"),
        ({"fronts": (np.ones((1, D)),)}, "need as many fronts"),
        ({"fronts": (np.ones((1, D + 1)),) * N}, r"a front must have shape \(f, 3\)"),
        ({"tokens": np.ones((N, R + 1), np.int32)}, "need tokens of that shape"),
        ({"responses": (("a",) * R,) * (N - 1)}, "need as many responses"),
        ({"responses": (("a",) * (R + 1),) * N}, "need as many responses"),
    ],
)
def test_arrays_that_do_not_fit_together_are_no_pool(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(random_pool(), **changes)


def test_a_save_that_fails_leaves_the_file_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    before = path.read_bytes()

    def full_disk(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space"):
        random_pool(1).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["pool.npz"]
