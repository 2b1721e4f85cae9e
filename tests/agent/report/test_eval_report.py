"""``vpo eval`` from a saved pool: its numbers against counting, its folder, and what it says to bad input."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from pools import D, M, N, R, maze_pool, random_pool

from vpo_agent.command import main
from vpo_agent.estimators.weights import draw_weights
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.report.evaluation import evaluate_pool
from vpo_agent.report.figures import default_pairs

pytestmark = pytest.mark.usefixtures("no_figures")

PNG = b"\x89PNG"


def test_whole_rollouts_are_drawn_as_a_unit() -> None:
    pool = random_pool()
    summary = summarise(pool)
    scalar = np.einsum("nrmd,nd->nrm", pool.rewards * pool.active[:, None, None], pool.scalar_weights)
    for prompt in range(N):
        pairs = [max(scalar[prompt, list(two)].ravel()) for two in itertools.combinations(range(R), 2)]
        ks, values = summary.curves["best@k in whole responses"]
        assert values[prompt, ks.tolist().index(2 * M)] == pytest.approx(sum(pairs) / len(pairs), rel=1e-6)


def test_what_comes_within_two_hundredths_of_the_prompts_own_optimum_passes() -> None:
    pool = maze_pool()
    assert pool.fronts is not None
    summary = summarise(pool, k=2)
    for prompt, front in enumerate(pool.fronts):
        scores = pool.rewards[prompt].reshape(-1, pool.rewards.shape[-1]).mean(axis=1)
        passed = scores >= front.mean(axis=1).max() - 0.02 - 1e-6
        pairs = [any(pair) for pair in itertools.combinations(passed, 2)]
        assert summary.measures["pass@1"].values[prompt] == pytest.approx(passed.mean())
        assert summary.measures["pass@2"].values[prompt] == pytest.approx(np.mean(pairs))


def test_a_threshold_of_the_users_own_replaces_it() -> None:
    pool = maze_pool()
    found = summarise(pool, threshold=0.6)
    scores = pool.rewards.mean(axis=-1).reshape(5, -1)
    np.testing.assert_allclose(found.measures["pass@1"].values, (scores >= 0.6 - 1e-6).mean(axis=1))
    assert "0.6" in found.threshold


def test_without_front_and_threshold_nothing_passes_or_fails() -> None:
    summary = summarise(random_pool(fronts=False))
    assert "pass@k" not in summary.curves
    assert not [name for name in summary.measures if name.startswith("pass@") or "coverage" in name]
    assert "hypervolume" in summary.measures


def test_the_exact_front_itself_leaves_nothing_to_gain() -> None:
    """A pool that holds the front of each prompt, and nothing else."""
    pool = maze_pool(prompts=3, rollouts=1, answers=1)
    assert pool.fronts is not None
    most = max(len(front) for front in pool.fronts)
    rewards = np.stack([front[np.arange(most) % len(front)] for front in pool.fronts])[:, :, None].astype(np.float32)
    full = replace(pool, rewards=rewards, status=np.zeros((3, most, 1), np.int8), responses=None)
    values = {name: one.values for name, one in summarise(full).measures.items()}
    assert values["coverage"].tolist() == [1, 1, 1]
    np.testing.assert_allclose(values["pool regret"], 0, atol=1e-6)
    np.testing.assert_allclose(values["hypervolume"], values["front hypervolume"], rtol=1e-5)
    assert values[f"pass@{most}"].tolist() == [1, 1, 1]


def test_pairs_are_chosen_where_the_fronts_conflict() -> None:
    pool = replace(random_pool(), fronts=(np.array([[1, 0, 1], [1, 1, 0], [1, 0.5, 0.5]]),) * N)
    assert default_pairs(pool) == [(1, 2)]


def saved(tmp_path: Path, pool: Pool, name: str = "pool.npz") -> Path:
    path = tmp_path / name
    pool.save(path)
    return path


def test_a_saved_pool_becomes_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # Figures are drawn.
    path = saved(tmp_path, maze_pool())
    assert main(["eval", str(path), "--k", "6"]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "pool_eval"
    assert sorted(file.name for file in out.iterdir()) == [
        "curves.png",
        "eval.json",
        "eval.md",
        "fronts.png",
        "pool.npz",
    ]
    assert all(file.read_bytes().startswith(PNG) for file in out.glob("*.png"))
    found = json.loads((out / "eval.json").read_text(encoding="utf-8"))
    assert (found["k"], found["prompts"], found["curves"]["best@k drawn singly"]["k"][-1]) == (6, 5, 6)
    rows = {row["measure"]: row for row in found["measures"]}
    best = rows["best@6 drawn singly"]
    assert best["low"] <= best["mean"] <= best["high"]
    assert rows["best@1"]["mean"] < best["mean"] <= found["optimum"]
    assert f"| best@6 drawn singly ↑ | 6 answers | {best['mean']:.3f} |" in (out / "eval.md").read_text(
        encoding="utf-8"
    )
    # The verdict comes first, then a few measures.
    three, front = (
        f"{value:.3f}".lstrip("0") for value in (rows["utility@3 in whole responses"]["mean"], found["front_utility"])
    )
    assert re.match(
        rf"Score of the best of 3 answers, .*: {three} \[.*\] of the {front} that the exact front allows\.\n", printed
    )
    assert 2 * printed.count("\n| ") < (out / "eval.md").read_text(encoding="utf-8").count("\n| ")
    page = (out / "eval.md").read_text(encoding="utf-8")
    assert printed.split("\n\n")[1] in page
    for image in ("curves.png", "fronts.png"):
        assert f"({image})" in page
    np.testing.assert_array_equal(Pool.load(out / "pool.npz").rewards, maze_pool().rewards)


def test_the_gains_of_a_set_and_of_the_vector_are_those_of_each_prompts_answers(tmp_path: Path) -> None:
    pool = random_pool()
    text = evaluate_pool(pool, tmp_path / "out")
    gains = json.loads((tmp_path / "out" / "eval.json").read_text(encoding="utf-8"))["gains"]
    assert pool.fronts is not None
    for where, sets in (("among the answers", pool.rewards.reshape(N, R * M, D)), ("on the exact fronts", pool.fronts)):
        utilities = []
        for points, fixed, active in zip(sets, pool.scalar_weights, pool.active, strict=True):
            weights = draw_weights([0], num_objectives=int(active.sum()), num_weights=1 << 14)[0]
            utility = points[:, active].astype(float) @ weights.T
            scalar = points @ fixed
            kept = utility[scalar >= scalar.max() - 0.02]
            utilities.append([best(utility, 1), best(utility, 3), best(kept, 3)])
        one, three, by_scalar = np.mean(utilities, axis=0)
        # Another quadrature than that of the code, which is exact to 4e-4.
        assert gains[where] == pytest.approx({"set": three / one, "vector": three / by_scalar}, rel=1e-3)
        assert f"{gains[where]['set']:.2f} and {gains[where]['vector']:.2f} {where}" in text


def best(utility: Floats, size: int) -> float:
    """The best mean, over weightings, of the maximum of a set of rows, by trying all sets."""
    sets = itertools.combinations(utility, min(size, len(utility)))
    return max(float(np.max(chosen, axis=0).mean()) for chosen in sets)


def test_a_pool_that_does_not_state_its_tokens_says_so(tmp_path: Path) -> None:
    pool = maze_pool()
    assert "generated tokens unknown" in evaluate_pool(pool, tmp_path / "out")
    known = replace(pool, tokens=np.full((5, 4), 7, np.int32))
    text = evaluate_pool(known, tmp_path / "out")
    assert "tokens unknown" not in text
    assert "| tokens | rollout of 3 answers | 7.000 |" in text
    curves = json.loads((tmp_path / "out" / "eval.json").read_text(encoding="utf-8"))["curves"]
    assert curves["utility by generated tokens"]["k"] == [7, 14, 21, 28]
    assert curves["utility by generated tokens"]["mean"] == curves["utility@k in whole responses"]["mean"]


def test_a_folder_is_replaced_by_the_next_evaluation_of_its_own_pool(tmp_path: Path) -> None:
    evaluate_pool(maze_pool(), tmp_path / "out")
    first = (tmp_path / "out" / "eval.json").read_text(encoding="utf-8")
    assert main(["eval", str(tmp_path / "out" / "pool.npz"), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "eval.json").read_text(encoding="utf-8") == first
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_torch_is_not_needed(tmp_path: Path) -> None:
    path = saved(tmp_path, maze_pool())
    script = (
        "import sys; from matplotlib.figure import Figure; from vpo_agent.command import main; "
        "Figure.savefig = lambda figure, path, **_: open(path, 'wb').close(); "
        f"sys.exit(main(['eval', {str(path)!r}]) or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pool_eval" / "eval.json").is_file()


@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        ({}, ["--k", "13"], "k=13 needs as many answers to each prompt, but the sample file holds 12"),
        ({}, ["--k", "0"], "--k must be at least 1, got 0"),
        ({}, ["--temperature", "0.5"], "--temperature cannot change"),
        ({}, ["--checkpoint", "3"], "which is a sample file: leave it out"),
        ({}, ["--threshold", "nan"], "the threshold of pass@k must be a finite number, got nan"),
        ({"env": "vpo/EUREQA-v0", "env_kwargs": {}}, [], "it is from another environment, or from another version"),
        ({"num_answers": 2}, [], "says that a rollout in vpo/Maze-v0 holds 2 answers"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pool: dict[str, Any], options: list[str], message: str
) -> None:
    path = saved(tmp_path, maze_pool(**pool))
    assert main(["eval", str(path), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["pool.npz"], "nothing half-written"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, maze_pool())
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work", encoding="utf-8")
    assert main(["eval", str(path), "--out", str(mine)]) == 2
    assert "holds something other than a report" in capsys.readouterr().err
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("vpo_agent.report.evaluation.draw_fronts", full_disk)
    with pytest.raises(OSError, match="no space"):
        evaluate_pool(maze_pool(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_number_of_a_table_is_finite() -> None:
    for pool in (random_pool(), random_pool(rollouts=1, answers=1), random_pool(fronts=False), maze_pool()):
        for name, one in summarise(pool).measures.items():
            assert all(math.isfinite(value) for value in one.values), name
            assert one.values.shape == (len(pool.indices),)
