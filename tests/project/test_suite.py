"""``studies/suite.py``: its numbers are those of the pools, found another way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies_by_path import load_study

from vpo_agent.measure.pool import Pool

suite = load_study("suite")
N, D, ANSWERS = 4, 3, 30
WIDTHS = {"vpo": 3, "vpo-alpha1000": 3, "multi_rlvr": 3, "set_rl": 1, "max_at_k": 1, "grpo": 1}
COMPROMISE = 0.45
ALL = {"vpo": 0.9, "vpo-alpha1000": 0.4, "multi_rlvr": 0.95, "set_rl": 0.8, "max_at_k": 0.3, "grpo": 0.1}
Curve = Callable[[int, str], Sequence[float]]


def make_pool(rng: np.random.Generator, width: int, share: float) -> Pool:
    """Answers that are specialists, a ``share`` of them, or else compromises, or worth little."""
    specialists = np.eye(D)[rng.integers(D, size=(N, ANSWERS))]
    good = np.where(rng.random((N, ANSWERS, 1)) < share, specialists, COMPROMISE)
    rewards = good * rng.choice([0.25, 1.0], size=(N, ANSWERS, 1), p=[0.2, 0.8])
    rollouts = ANSWERS // width
    return Pool(
        rewards=rewards.reshape(N, rollouts, width, D).astype(np.float32),
        status=np.zeros((N, rollouts, width), dtype=np.int8),
        active=np.ones((N, D), dtype=bool),
        scalar_weights=np.full((N, D), 1 / D),
        indices=np.arange(N),
        objectives=("gold", "silver", "bronze"),
        fronts=tuple(np.vstack([np.eye(D), np.full(D, COMPROMISE)]) for _ in range(N)),
    )


def make_task(folder: Path, shares: Mapping[str, float], curve: Curve = lambda seed, arm: (0.3, 0.4, 0.5)) -> Any:
    """Data files of a study of one task, read back."""
    arms, results = [], folder / "results" / "study" / "maze"
    results.mkdir(parents=True)
    for arm, share in shares.items():
        method = "vpo" if arm.startswith("vpo") else arm
        arms.append({"label": arm, "settings": {"method": method}})
        for seed in range(3):
            settings = {"env": "vpo/Maze-v0", "model": "tiny-maze", "method": method, "seed": seed}
            values = curve(seed, arm)
            evaluations = {
                "step": [10 * place for place in range(len(values))],
                "expected_utility": list(values),
                "diversity": [1 + share - value for value in values],
            }
            pool = make_pool(np.random.default_rng([*map(ord, arm), seed]), WIDTHS[arm], share)
            source = {"seed": seed, "training": {"settings": settings, "evaluations": evaluations}}
            replace(pool, source=source).save(results / f"{arm}-seed{seed}.npz")
    task = {"label": "maze", "level": 2, "settings": {"env": "vpo/Maze-v0", "model": "tiny-maze"}}
    study = {"name": "study", "seeds": [0, 1, 2], "baseline": "grpo", "tasks": [task], "arms": arms}
    (folder / "study.json").write_text(json.dumps(study))
    (found,) = suite.read_tasks(folder / "study.json", folder / "results")
    return found


def rows_of(table: Any) -> list[dict[str, str]]:
    head, body, align = table
    assert {len(row) for row in body} <= {len(head)} == {len(align)}
    return [dict(zip(head, row, strict=True)) for row in body]


def row_of(table: Any, **wanted: str) -> dict[str, str]:
    (found,) = [row for row in rows_of(table) if wanted.items() <= row.items()]
    return found


def numbers(cell: str) -> list[float]:
    return [float(part) for part in cell.replace("[", "").replace("]", "").replace(",", "").split()]


def utilities(folder: Path, arm: str) -> list[float]:
    """E_w[max w·r] of all answers, the mean over prompts of each seed, with weightings drawn at random."""
    weights = np.random.default_rng(0).dirichlet(np.ones(D), size=20_000)
    pools = [Pool.load(path) for path in sorted(folder.rglob(f"{arm}-seed*.npz"))]
    return [float((pool.rewards.reshape(N, -1, D) @ weights.T).max(axis=1).mean()) for pool in pools]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def task(folder: Path) -> Any:
    return make_task(folder, ALL)


def test_what_is_added_is_the_difference_of_utilities(folder: Path, task: Any) -> None:
    row = row_of(suite.questions_table([task]), difference="vpo − max_at_k")
    mean, low, high = numbers(row["utility@30"])
    assert mean == pytest.approx(np.mean(utilities(folder, "vpo")) - np.mean(utilities(folder, "max_at_k")), abs=3e-3)
    assert low <= mean <= high
    level = row_of(suite.levels_table([task]), level="2")
    ratio = np.mean(utilities(folder, "vpo")) / np.mean(utilities(folder, "grpo"))
    assert numbers(level["utility@30"])[0] == pytest.approx(ratio, abs=5e-3)


def test_worths_stand_beside_the_gain_over_a_large_alpha(folder: Path, task: Any) -> None:
    specialists = np.random.default_rng(0).dirichlet(np.ones(D), size=100_000).max(axis=1).mean()
    row = row_of(suite.worths_table([task]), task="maze")
    for name in ("worth of a set", "of the vector"):
        assert float(row[name]) == pytest.approx(specialists / COMPROMISE, abs=0.01)
    gain = np.mean(utilities(folder, "vpo")) / np.mean(utilities(folder, "vpo-alpha1000"))
    assert numbers(row["utility@30"])[0] == pytest.approx(gain, abs=5e-3)


def test_the_page_holds_every_table_and_the_figure(tmp_path: Path, task: Any) -> None:
    page = suite.explain([task], tmp_path).read_text(encoding="utf-8")
    assert page.count("\n## ") == 5
    assert "](worths.png)" in page
    assert (tmp_path / "worths.png").read_bytes().startswith(b"\x89PNG")


def test_steps_to_vpos_final_utility_are_read_off_the_line_between_evaluations(tmp_path: Path) -> None:
    curves = {
        "vpo": [(0.3, 0.4, 0.5)] * 3,
        "multi_rlvr": [(0.3, 0.5, 0.6), (0.3, 0.5, 0.6), (0.3, 0.4, 0.4)],
        "vpo-alpha1000": [(0.3, 0.3, 0.4)] * 3,
        "grpo": [(0.3, 0.6, 0.6)] * 3,
    }
    task = make_task(tmp_path, dict.fromkeys(curves, 0.5), lambda seed, arm: curves[arm][seed])
    found = {row["method"]: row["share of VPO's steps"] for row in rows_of(suite.training_table([task]))}
    # The mean curve of multi_rlvr has 7/15 in the middle and 8/15 at the end.
    assert found == {"vpo": "1.00", "multi_rlvr": "0.75", "vpo-alpha1000": "not reached", "grpo": ""}
    kept = row_of(suite.training_table([task]), method="grpo")["over the start"]
    assert kept == f"{(1.5 - 0.6) / (1.5 - 0.3):.2f}"


def test_preferences_are_expected_bests_at_corners_edges_and_the_centre() -> None:
    pool = make_pool(np.random.default_rng(5), 3, 0.7)
    found = suite.answers_under_preferences(pool, 6)

    def expected(weights: np.ndarray) -> float:
        scores = (pool.rewards.astype(float) @ weights).max(axis=2)
        return float(np.mean([scores[:, list(pair)].max(axis=1).mean() for pair in combinations(range(10), 2)]))

    assert found.corner == pytest.approx(np.mean([expected(corner) for corner in np.eye(D)]))
    edges = [(np.eye(D)[i] + np.eye(D)[j]) / 2 for i, j in combinations(range(D), 2)]
    assert found.edge == pytest.approx(np.mean([expected(edge) for edge in edges]))
    assert found.centre == pytest.approx(expected(np.full(D, 1 / D)))
