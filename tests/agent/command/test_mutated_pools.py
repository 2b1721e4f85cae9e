"""Pools with bytes, arrays and entries changed at random: a command shows them, or refuses them in one sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import maze_pool

from vpo_agent.command import main

VALUES = [None, [], {}, "x", -1, 0, 10**18, 1e300, True, [["a"]], {"a": []}, "\x1b[2J", "..", 5000 * "a", 2**63]
NUMBERS = [0, -1, 1e30, -1e30, 1e38, np.nan, np.inf, 127]


def mutated(written: bytes, rng: np.random.Generator) -> bytes:
    """The file of a pool after one change."""
    kind = rng.integers(3)
    if kind == 0:
        damaged = bytearray(written)
        for place in rng.integers(len(damaged), size=rng.integers(1, 20)):
            damaged[place] = rng.integers(256)
        return bytes(damaged[: rng.integers(len(damaged))] if rng.random() < 0.3 else damaged)
    with np.load(io.BytesIO(written)) as data:
        arrays: dict[str, Any] = dict(data)
    if kind == 1:
        source = json.loads(arrays["source"].tobytes())
        source[str(rng.choice([*source, "step", "usage"]))] = VALUES[rng.integers(len(VALUES))]
        arrays["source"] = np.frombuffer(json.dumps(source).encode(), dtype=np.uint8)
    else:
        name = str(rng.choice([name for name in arrays if arrays[name].dtype.kind != "U"]))
        array = arrays[name]
        changes = [
            lambda: array[:-1],
            lambda: array.reshape(-1),
            lambda: np.concatenate([array, array]),
            lambda: array.astype(rng.choice(["f4", "f8", "i8", "u1", "U5"])),
            lambda: np.full_like(array, np.float32(rng.choice(NUMBERS))),
        ]
        with np.errstate(all="ignore"):
            arrays[name] = changes[rng.integers(len(changes))]()
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_pool_that_was_changed_at_random_is_shown_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.npz"
    maze_pool(0, prompts=2, rollouts=2).save(path)
    written = path.read_bytes()
    statuses = set()
    for seed in range(30):
        path.write_bytes(mutated(written, np.random.default_rng(seed)))
        statuses.add(status := main(["show", str(path)]))
        said = capsys.readouterr().err
        if status:
            assert status == 2, seed
            assert said.startswith("error: "), seed
            assert said.count("\n") == 1, seed
    assert statuses == {0, 2}
