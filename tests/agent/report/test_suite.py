"""The page of a study of several tasks: its numbers are those of the pools, found another way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from vpo_agent.measure.intervals import Band
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.preferences import answers_under_preferences, fronts_under_preferences
from vpo_agent.report.looks import PALETTE
from vpo_agent.report.suite import write_suite
from vpo_agent.report.suite_figures import draw_diversity, draw_worths
from vpo_agent.report.suite_runs import TaskRuns, read_task
from vpo_agent.report.suite_tables import (
    KS,
    Table,
    Worth,
    diversity_table,
    levels_table,
    preferences_table,
    questions_table,
    search_table,
    steps_table,
    worth_of_tasks,
    worth_table,
)
from vpo_envs.pareto import BestSets

N, D, ANSWERS = 4, 3, 30
WIDTHS = {"vpo": 3, "vpo-alpha1000": 3, "vpo-credit": 3, "set_rl": 1, "max_at_k": 1, "grpo": 1}
TOKENS = {1: 10, 3: 24}
"""Tokens of a rollout by its number of answers."""
COMPROMISE = 0.45


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
        tokens=np.full((N, rollouts), TOKENS[width], dtype=np.int32),
    )


Curve = Callable[[int, str], Sequence[float]]


def flat(seed: int, arm: str) -> Sequence[float]:
    return (0.3, 0.4, 0.5)


def make_task(
    folder: Path,
    shares: Mapping[str, float],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    curve: Curve = flat,
    family: str | None = None,
    level: float | None = None,
) -> TaskRuns:
    """Run folders of the arms, whose answers are specialists in the ``shares``, read as one task."""
    folders, labels = [], []
    for arm, share in shares.items():
        for seed in seeds:
            run = folder / f"{arm}-seed{seed}"
            run.mkdir(parents=True)
            rng = np.random.default_rng([*map(ord, folder.name + arm), seed])
            make_pool(rng, WIDTHS[arm], share).save(run / "pool_after.npz")
            before = make_pool(np.random.default_rng([seed, WIDTHS[arm]]), WIDTHS[arm], 0.5)
            before = Pool(**{**vars(before), "source": {"seed": seed, "step": 0, "num_answers": WIDTHS[arm]}})
            before.save(run / "pool_before.npz")
            settings = {"env": "vpo/Maze-v0", "model": "tiny-maze", "method": "vpo", "seed": seed}
            (run / "config.json").write_text(json.dumps(settings))
            rows = [
                {"kind": "eval", "step": 10 * place, "expected_utility": value, "diversity": 1 + share - value}
                for place, value in enumerate(curve(seed, arm))
            ]
            (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
            folders.append([run])
            labels.append(arm)
    return read_task(folder.name, folders, labels, family=family, level=level)


def rows_of(table: Table) -> list[dict[str, str]]:
    head, body, align = table
    assert {len(row) for row in body} <= {len(head)} == {len(align)}
    return [dict(zip(head, row, strict=True)) for row in body]


def row_of(table: Table, **wanted: str) -> dict[str, str]:
    (found,) = [row for row in rows_of(table) if wanted.items() <= row.items()]
    return found


def numbers(cell: str) -> list[float]:
    return [float(part) for part in cell.replace("[", "").replace("]", "").replace(",", "").split()]


def pools_of(folder: Path, arm: str) -> list[Pool]:
    return [Pool.load(folder / f"{arm}-seed{seed}" / "pool_after.npz") for seed in range(3)]


def utility_by_subsets(pool: Pool, count: int) -> float:
    """E_w[max w·r] over all subsets of ``count`` rollouts, by enumeration, with weightings drawn at random."""
    weights = np.random.default_rng(0).dirichlet(np.ones(D), size=20_000)
    per_rollout = np.einsum("wd,nrmd->nrmw", weights, pool.rewards.astype(float)).max(axis=2)
    subsets = combinations(range(per_rollout.shape[1]), count)
    return float(np.mean([per_rollout[:, list(chosen)].max(axis=1).mean() for chosen in subsets]))


def t_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    return stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))


ALL = {"vpo": 0.9, "vpo-alpha1000": 0.4, "vpo-credit": 0.95, "set_rl": 0.8, "max_at_k": 0.3, "grpo": 0.1}


def test_utility_at_k_is_that_of_all_subsets_of_whole_rollouts(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"vpo": 0.9, "grpo": 0.1})
    table = search_table([task], "utility", "grpo")
    row = row_of(table, method="vpo")
    for k, rollouts in ((3, 1), (6, 2)):
        each = np.array([utility_by_subsets(pool, rollouts) for pool in pools_of(tmp_path / "maze", "vpo")])
        expected = (each.mean(), *t_interval(each))
        assert numbers(row[f"utility@{k}"]) == pytest.approx(expected, abs=4e-3), k
    assert row["seeds"] == "3"
    # With every specialist and the compromise the front's utility is the integral of max(w1, w2, w3, .45).
    weights = np.random.default_rng(1).dirichlet(np.ones(D), size=200_000)
    front = float(row_of(table, method="exact front")["utility@30"])
    assert front == pytest.approx(np.maximum(weights.max(axis=1), COMPROMISE).mean(), abs=2e-3)


def test_the_ratio_to_the_baseline_has_welchs_interval_on_the_logarithms(tmp_path: Path) -> None:
    arms = ("vpo", "vpo-alpha1000")
    task = make_task(tmp_path / "maze", {"vpo": 0.9, "vpo-alpha1000": 0.1})
    table = search_table([task], "best", "vpo-alpha1000")
    found = numbers(row_of(table, method="vpo")["best@3 over vpo-alpha1000"])
    logs = [np.log([pool.scalar().max(axis=2).mean() for pool in pools_of(tmp_path / "maze", arm)]) for arm in arms]
    band = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    expected = np.exp([logs[0].mean() - logs[1].mean(), band.low, band.high])
    assert found == pytest.approx(expected, abs=6e-3)


def test_the_base_is_the_pool_before_training_once_for_each_number_of_answers(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", ALL)
    assert list(task.bases) == ["base, 1 answer a rollout", "base, 3 answers a rollout"]
    table = search_table([task], "best", "grpo")
    for arm, label in (("grpo", "base, 1 answer a rollout"), ("vpo-credit", "base, 3 answers a rollout")):
        pools = [Pool.load(tmp_path / "maze" / f"{arm}-seed{seed}" / "pool_before.npz") for seed in range(3)]
        best = np.mean([pool.scalar().max(axis=(1, 2)).mean() for pool in pools])
        assert numbers(row_of(table, method=label)["best@30"])[0] == pytest.approx(best, abs=6e-4)


def test_pooling_weighs_families_alike(tmp_path: Path) -> None:
    tasks = [
        make_task(tmp_path / "maze-1", {"grpo": 0.1}, family="maze", level=1),
        make_task(tmp_path / "maze-2", {"grpo": 0.5}, family="maze", level=2),
        make_task(tmp_path / "code", {"grpo": 0.9}),
    ]
    table = search_table(tasks, "utility", "grpo")
    each = [numbers(row_of(table, task=task.label, method="grpo")["utility@30"])[0] for task in tasks]
    together = numbers(row_of(table, task="3 of 3 tasks", method="grpo")["utility@30"])[0]
    assert together == pytest.approx((each[0] + each[1]) / 4 + each[2] / 2, abs=1e-3)


def test_an_arm_that_some_tasks_lack_is_pooled_over_the_others(tmp_path: Path) -> None:
    tasks = [
        make_task(tmp_path / name, {"grpo": 0.1, **more})
        for name, more in (("a", {"vpo": 0.9}), ("b", {"vpo": 0.9}), ("c", {}))
    ]
    rows = rows_of(search_table(tasks, "utility", "grpo"))
    assert [row["task"] for row in rows if row["method"] == "vpo"] == ["a", "b", "2 of 3 tasks"]
    assert [row["task"] for row in rows if row["method"] == "grpo"] == ["a", "b", "c", "3 of 3 tasks"]


def test_the_vector_the_chain_and_credit_are_compared_by_seed(tmp_path: Path) -> None:
    tasks = [make_task(tmp_path / name, ALL) for name in ("maze", "code")]
    table = questions_table(tasks)
    assert [row["difference"] for row in rows_of(table)[::3]] == [
        "vpo − grpo",
        "vpo − max_at_k",
        "vpo − vpo-alpha1000",
        "set_rl − max_at_k",
        "vpo − set_rl",
        "vpo-credit − vpo",
    ]
    at_three = {
        (arm, task): np.array([utility_by_subsets(pool, 3 // WIDTHS[arm]) for pool in pools_of(tmp_path / task, arm)])
        for arm in ("vpo", "set_rl")
        for task in ("maze", "code")
    }
    differences = {task: at_three["vpo", task] - at_three["set_rl", task] for task in ("maze", "code")}
    differences["2 of 2 tasks"] = (differences["maze"] + differences["code"]) / 2
    for task, each in differences.items():
        found = numbers(row_of(table, task=task, difference="vpo − set_rl")["utility@3"])
        assert found == pytest.approx((each.mean(), *t_interval(each)), abs=6e-3), task


def test_equal_tokens_are_those_of_the_longer_rollout_and_of_the_smaller_pool(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"vpo": 0.9, "set_rl": 0.8})
    row = row_of(questions_table([task]), difference="vpo − set_rl")
    # A rollout of three costs 24 tokens, one answer 10: 2.4 answers. All of vpo's pool costs 240 tokens: 24 answers.
    vpo, single = (pools_of(tmp_path / "maze", arm) for arm in ("vpo", "set_rl"))
    few = [
        utility_by_subsets(mine, 1) - 0.6 * utility_by_subsets(other, 2) - 0.4 * utility_by_subsets(other, 3)
        for mine, other in zip(vpo, single, strict=True)
    ]
    assert numbers(row["tokens of a rollout"])[0] == pytest.approx(np.mean(few), abs=2e-3)
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(D), size=4000)
    scores = [np.einsum("wd,nrd->nrw", weights, pool.rewards[:, :, 0].astype(float)) for pool in single]
    drawn = [np.mean([one[:, rng.permutation(ANSWERS)[:24]].max(axis=1).mean() for _ in range(200)]) for one in scores]
    many = np.mean([utility_by_subsets(mine, 10) for mine in vpo]) - np.mean(drawn)
    assert numbers(row["tokens of a pool"])[0] == pytest.approx(many, abs=4e-3)


def test_the_factor_per_level_is_the_slope_of_the_logarithms(tmp_path: Path) -> None:
    levels = [
        make_task(tmp_path / f"maze-{level}", {"vpo": 0.9, "grpo": 0.8 - 0.3 * level}, family="maze", level=level)
        for level in (2, 0, 1)
    ]
    rows = rows_of(levels_table(levels, "grpo"))
    assert [(row["level"], row["task"]) for row in rows[:3]] == [("0", "maze-0"), ("1", "maze-1"), ("2", "maze-2")]
    column = "utility@30, vpo over grpo"
    ratios = [numbers(row[column])[0] for row in rows]
    # Over three levels a step apart, the slope is half the difference of the last and the first.
    assert rows[3]["level"] == "factor per level"
    assert ratios[3] == pytest.approx(np.sqrt(ratios[2] / ratios[0]), abs=0.01)


def test_tasks_without_a_level_have_no_table_of_levels(tmp_path: Path) -> None:
    assert not levels_table([make_task(tmp_path / "maze", {"vpo": 0.9, "grpo": 0.1})], "grpo")[1]


def test_preferences_are_expected_bests_at_corners_edges_and_the_centre() -> None:
    pool = make_pool(np.random.default_rng(5), 3, 0.7)
    found = answers_under_preferences(pool, 6)

    def expected(weights: NDArray[np.float64]) -> float:
        scores = (pool.rewards.astype(float) @ weights).max(axis=2)
        return float(np.mean([scores[:, list(pair)].max(axis=1).mean() for pair in combinations(range(10), 2)]))

    assert found.corner == pytest.approx(np.mean([expected(corner) for corner in np.eye(D)]))
    edges = [(np.eye(D)[i] + np.eye(D)[j]) / 2 for i, j in combinations(range(D), 2)]
    assert found.edge == pytest.approx(np.mean([expected(edge) for edge in edges]))
    assert found.centre == pytest.approx(expected(np.full(D, 1 / D)))
    lattice = [np.array([i, j, 20 - i - j]) / 20 for i in range(21) for j in range(21 - i)]
    assert found.worst == pytest.approx(min(map(expected, lattice)), abs=0.01)


def test_the_front_under_preferences_is_a_maximum_over_its_points() -> None:
    front = fronts_under_preferences(make_pool(np.random.default_rng(0), 1, 0.5))
    assert front is not None
    assert front == pytest.approx((1.0, 0.5, COMPROMISE, COMPROMISE))


def test_an_objective_that_does_not_count_leaves_the_weighting() -> None:
    whole = make_pool(np.random.default_rng(0), 1, 1.0)
    active = whole.active.copy()
    active[:, 2] = False
    pool = Pool(**{**vars(whole), "active": active})
    found = answers_under_preferences(pool, 1)
    rewards = whole.rewards[:, :, 0, :2].astype(float)
    assert found.corner == pytest.approx(rewards.mean())
    # The weights of an edge with the third objective are all on the other one, so two edges of three are corners.
    assert found.edge == pytest.approx(rewards.mean())
    assert found.centre == pytest.approx(rewards.mean())


def test_the_table_of_preferences_holds_a_row_for_few_and_for_many_answers(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"vpo": 0.9, "grpo": 0.1})
    row = row_of(preferences_table([task]), method="grpo", answers="30")
    worst = [answers_under_preferences(pool, 30).worst for pool in pools_of(tmp_path / "maze", "grpo")]
    assert numbers(row["worst"])[0] == pytest.approx(np.mean(worst), abs=6e-4)
    front = row_of(preferences_table([task]), method="exact front")
    assert [float(front[name]) for name in ("corner", "edge", "centre")] == [1.0, 0.5, COMPROMISE]


def test_diversity_is_shown_at_start_middle_and_end(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"grpo": 0.0}, curve=lambda seed, arm: (0.0, 0.1, 0.3 + 0.1 * seed, 0.6, 0.75))
    row = row_of(diversity_table([task]), method="grpo")
    assert [numbers(row[name])[0] for name in ("start", "middle", "end")] == pytest.approx([1.0, 0.6, 0.25])
    assert numbers(row["end over start"]) == pytest.approx([0.25, 0.25, 0.25])


def test_a_seed_that_ends_with_equal_answers_makes_the_share_of_diversity_zero(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"grpo": 0.0}, curve=lambda seed, arm: (0.0, 0.5, 1.0 - 0.1 * seed))
    row = row_of(diversity_table([task]), method="grpo")
    assert numbers(row["end"])[0] == pytest.approx(0.1)
    assert row["end over start"] == "0.00"


def test_runs_without_evaluations_leave_out_their_rows(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", {"vpo": 0.9, "grpo": 0.1}, curve=lambda seed, arm: ())
    assert not diversity_table([task])[1]
    assert not steps_table([task])[1]
    assert draw_diversity([task], tmp_path / "diversity.png") is None


def test_steps_to_vpos_final_utility_are_read_off_the_line_between_evaluations(tmp_path: Path) -> None:
    curves = {
        "vpo": [(0.3, 0.4, 0.5), (0.3, 0.4, 0.5), (0.3, 0.4, 0.5)],
        "vpo-credit": [(0.3, 0.5, 0.6), (0.3, 0.5, 0.6), (0.3, 0.4, 0.4)],
        "vpo-alpha1000": [(0.3, 0.3, 0.4)] * 3,
        "grpo": [(0.3, 0.6, 0.6)] * 3,
    }
    task = make_task(tmp_path / "maze", dict.fromkeys(curves, 0.5), curve=lambda seed, arm: curves[arm][seed])
    table = steps_table([task])
    assert [row["method"] for row in rows_of(table)] == ["vpo", "vpo-credit", "vpo-alpha1000"]
    share, runs = "share of VPO's steps, mean curve", "each run that reaches it"
    assert row_of(table, method="vpo")[share] == "1.00"
    credit = row_of(table, method="vpo-credit")
    # The mean curve has 7/15 in the middle and 8/15 at the end.
    assert (credit[share], credit[runs]) == ("0.75", "0.50, 0.50")
    alpha = row_of(table, method="vpo-alpha1000")
    assert (alpha[share], alpha[runs]) == ("not reached", "none")


def test_tasks_in_the_figure_of_worths_are_told_apart_in_the_order_of_the_axis(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    names = [f"task {number}" for number in range(9)]
    gain = Band(1.2, 1.1, 1.3)
    fronts = [BestSets(0.4, 0.6, 0.6 - number / 50) for number in range(9)]
    worths = [Worth(name, front, None, (gain, gain)) for name, front in zip(names, fronts, strict=True)]
    assert draw_worths(worths[::-1], tmp_path / "worths.png", "vpo, 150 steps") is not None
    (legend,) = drawn[0].legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert [text.split(" (")[0] for text in texts[:9]] == names
    points = [line for line in drawn[0].axes[0].lines if line.get_markersize() == 8]
    assert len({(point.get_marker(), to_hex(point.get_markerfacecolor())) for point in points}) == 9
    assert not {to_hex(point.get_color()) for point in points} & set(PALETTE)


def test_worths_stand_beside_the_gain_over_a_large_alpha(tmp_path: Path) -> None:
    task = make_task(tmp_path / "maze", ALL)
    (worth,) = worth_of_tasks([task])
    weights = np.random.default_rng(0).dirichlet(np.ones(D), size=100_000)
    specialists = weights.max(axis=1).mean()
    assert worth.fronts is not None
    assert worth.fronts.set_worth == pytest.approx(specialists / COMPROMISE, abs=0.01)
    assert worth.fronts.vector_worth == pytest.approx(specialists / COMPROMISE, abs=0.01)
    table = search_table([task], "utility", "vpo-alpha1000")
    (row,) = rows_of(worth_table([worth]))
    for k in (3, 30):
        assert (
            row[f"utility@{k}, vpo over vpo-alpha1000"]
            == row_of(table, method="vpo")[f"utility@{k} over vpo-alpha1000"]
        )


def test_the_page_holds_every_table_that_the_runs_can_fill_and_the_figures(tmp_path: Path) -> None:
    tasks = [make_task(tmp_path / "maze", ALL), make_task(tmp_path / "code", {"grpo": 0.1})]
    printed = write_suite(tasks, "grpo", tmp_path)
    page = (tmp_path / "suite.md").read_text(encoding="utf-8")
    assert printed in page
    assert all(f"utility@{k} |" in printed for k in KS)
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert "## Levels of difficulty" not in headings
    assert len(headings) == 7
    for name in ("suite_diversity.png", "suite_worths.png"):
        assert f"]({name})" in page
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_task_with_the_baseline_alone_still_has_its_page(tmp_path: Path) -> None:
    write_suite([make_task(tmp_path / "code", {"grpo": 0.1}, seeds=[0])], "grpo", tmp_path)
    page = (tmp_path / "suite.md").read_text(encoding="utf-8")
    assert "| code | grpo | 1 |" in page
    assert "What the vector" not in page
    assert not (tmp_path / "suite_worths.png").exists()
