"""The file of a pool: it reads back whole, and anything else is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import D, M, N, R, random_pool

from vpo_agent.estimators.weights import draw_weights
from vpo_agent.measure.measures import REPORT_WEIGHTS, measures
from vpo_agent.measure.pool import Pool, merge_pools

TEXTS = ("<answer>Zürich 東京</answer>", "", "half a pair \ud83d", 'line\nbreak \x00 "quotes"')
SOURCE = {"env": "vpo/Maze-v0", "env_kwargs": {"preset": "paper"}, "seed": 3, "method": "vpo", "temperature": 0.7}


def full_pool() -> Pool:
    """A pool that says where it comes from, with the texts of its responses."""
    tokens = np.arange(N * R, dtype=np.int32).reshape(N, R)
    return replace(random_pool(), responses=(TEXTS,) * N, tokens=tokens, tasks=("0a", "0b", "0a"), source=SOURCE)


@pytest.mark.parametrize("fronts", [True, False])
def test_a_pool_survives_its_file(tmp_path: Path, fronts: bool) -> None:
    pool = full_pool() if fronts else random_pool(fronts=False)
    path = tmp_path / "pool.npz"
    pool.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["pool.npz"]
    again = Pool.load(str(path) if fronts else path)
    for name in ("rewards", "status", "active", "scalar_weights", "indices"):
        np.testing.assert_array_equal(getattr(again, name), getattr(pool, name))
        assert getattr(again, name).dtype == getattr(pool, name).dtype
    assert again.objectives == pool.objectives
    assert again.responses == pool.responses
    assert again.tasks == pool.tasks
    assert again.source == pool.source
    np.testing.assert_array_equal(again.tokens, pool.tokens)
    if pool.fronts is None:
        assert again.fronts is None
    else:
        assert again.fronts is not None
        for mine, theirs in zip(again.fronts, pool.fronts, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_pool_without_texts_takes_a_few_kilobytes(tmp_path: Path) -> None:
    """200 prompts, 30 answers to each of ten kinds: what a study publishes of a run."""
    rng = np.random.default_rng(0)
    pool = Pool(
        rewards=np.eye(10, 3, dtype=np.float32)[rng.integers(10, size=(200, 10, 3))],
        status=np.zeros((200, 10, 3), dtype=np.int8),
        active=np.ones((200, 3), dtype=bool),
        scalar_weights=np.full((200, 3), 1 / 3),
        indices=np.arange(200),
        objectives=("gold", "silver", "bronze"),
        fronts=(np.eye(3),) * 200,
        tokens=rng.integers(20, 30, size=(200, 10)).astype(np.int32),
        tasks=tuple(rng.bytes(8).hex() for _ in range(200)),
        source=SOURCE,
    )
    path = tmp_path / "pool.npz"
    pool.save(path)
    assert path.stat().st_size < 8_000


@pytest.mark.parametrize("content", [None, b"", b"not a pool", b"PK\x03\x04 half an archive"])
def test_a_pool_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pool.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read the sample file '.*pool.npz'"):
        Pool.load(path)


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
    with pytest.raises(ValueError, match="cannot read the sample file"):
        Pool.load(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    full_pool().save(path)
    with np.load(path) as data:
        kept = {name: data[name] for name in data.files}
    np.savez(path, **{**kept, "objectives": np.array(["a", "b", "c"], dtype=object)})
    with pytest.raises(ValueError, match="cannot read the sample file"):
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
    assert messages == {"cannot read the sample file "}


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
        ({"tasks": ("0a",)}, "need as many hashes of tasks"),
        ({"tasks": ("0a", "0b", "0a0b")}, "hashes of tasks have different lengths"),
        ({"tokens": np.ones((N, R + 1), np.int32)}, "need tokens of that shape"),
        ({"responses": (("a",) * R,) * (N - 1)}, "need as many responses"),
        ({"responses": (("a",) * (R + 1),) * N}, "need as many responses"),
    ],
)
def test_arrays_that_do_not_fit_together_are_no_pool(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(random_pool(), **changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rewards_that_are_no_numbers_are_named_by_their_objective(bad: float, tmp_path: Path) -> None:
    pool = random_pool()
    rewards = pool.rewards.copy()
    rewards[1, 0, 0, 2] = bad
    with pytest.raises(ValueError, match="some rewards of bronze are NaN or infinite"):
        replace(pool, rewards=rewards)
    pool.rewards[1, 0, 0, 2] = bad
    pool.save(tmp_path / "pool.npz")
    with pytest.raises(ValueError, match="some rewards of bronze are NaN or infinite"):
        Pool.load(tmp_path / "pool.npz")


def test_merged_pools_answer_in_equal_shares() -> None:
    specialists = [replace(random_pool(seed, answers=1), active=np.ones((N, D), bool)) for seed in range(3)]
    specialists = [replace(pool, scalar_weights=np.eye(D)[[i] * N]) for i, pool in enumerate(specialists)]
    shared = [replace(pool, fronts=specialists[0].fronts) for pool in specialists]
    merged = merge_pools(shared)
    assert merged.rewards.shape == (N, R, 3, D)
    np.testing.assert_allclose(merged.scalar_weights, 1 / 3)
    values = {one.name: one.values for one in measures(merged)}
    weights = rank_weights(D)
    for prompt in range(N):
        scores = [pool.rewards[prompt, :, 0].astype(float) @ weights.T for pool in shared]
        # One answer from each specialist, then two from each, by trying all rollouts.
        for count in (1, 4):
            drawn = [
                np.max([one[list(chosen)].max(axis=0) for one in scores], axis=0).mean()
                for chosen in combinations(range(R), count)
            ]
            assert values[f"utility@{3 * count} in whole responses"][prompt] == pytest.approx(np.mean(drawn), rel=1e-6)


def rank_weights(d: int) -> np.ndarray:
    return draw_weights([0], num_objectives=d, num_weights=REPORT_WEIGHTS)[0].astype(float)


def test_merged_pools_keep_what_they_have_in_common() -> None:
    one, two = full_pool(), replace(full_pool(), source={**SOURCE, "method_options": {"beta": 8}})
    merged = merge_pools([one, replace(two, tokens=two.tokens + 1)], scalar_weights=one.scalar_weights)
    assert merged.source == {**SOURCE, "num_answers": 2 * M}
    assert merged.responses is None
    np.testing.assert_array_equal(merged.tokens, 2 * one.tokens + 1)
    np.testing.assert_array_equal(merged.status, np.concatenate([one.status, two.status], axis=2))
    assert merge_pools([one, replace(two, tokens=None)]).tokens is None
    with pytest.raises(ValueError, match="same prompts"):
        merge_pools([one, replace(two, indices=np.arange(1, N + 1))])
    with pytest.raises(ValueError, match="no pools to merge"):
        merge_pools([])
