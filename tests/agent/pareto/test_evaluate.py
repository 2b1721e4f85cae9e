"""Evaluation: what a pool is worth, against counting it out."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from pools import D, M, N, R, random_pool

from vpo_agent.estimators.weights import draw_weights
from vpo_agent.pareto.evaluate import (
    REPORT_WEIGHTS,
    best_at_k_curve,
    compare,
    measures,
    optimum,
    sample_pool,
    table,
)
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_envs import Status


def test_best_at_k_is_the_mean_over_all_subsets() -> None:
    pool = random_pool()
    found = measures(pool)
    for prompt in range(N):
        scores = [float(answer @ pool.scalar_weights[prompt]) for answer in pool.rewards[prompt].reshape(-1, D)]
        for k in (1, 3):
            subsets = [max(subset) for subset in itertools.combinations(scores, k)]
            assert found[f"best@{k}"][prompt] == pytest.approx(sum(subsets) / len(subsets), rel=1e-6)
    assert "best@10" not in found, "a pool of eight answers has no best of ten"


def test_utility_and_regret_are_means_over_the_reports_weights() -> None:
    pool = random_pool()
    found = measures(pool)
    weights = draw_weights(
        np.zeros(N, dtype=np.uint64), num_objectives=D, num_weights=REPORT_WEIGHTS, active=pool.active
    )
    assert pool.fronts is not None
    for prompt in range(N):
        draws = weights[prompt].astype(float)
        per_rollout = [
            sum(max(float(w @ answer) for answer in rollout) for w in draws) / len(draws)
            for rollout in pool.rewards[prompt]
        ]
        pooled = sum(max(float(w @ answer) for answer in pool.rewards[prompt].reshape(-1, D)) for w in draws) / len(
            draws
        )
        ideal = sum(max(float(w @ point) for point in pool.fronts[prompt]) for w in draws) / len(draws)
        assert found["expected utility"][prompt] == pytest.approx(np.mean(per_rollout), rel=1e-5)
        assert found["pool utility"][prompt] == pytest.approx(pooled, rel=1e-5)
        assert found["regret"][prompt] == pytest.approx(ideal - np.mean(per_rollout), rel=1e-5)
        assert found["pool regret"][prompt] == pytest.approx(ideal - pooled, rel=1e-5)


def test_diversity_is_the_mean_distance_of_pairs() -> None:
    pool = random_pool()
    found = measures(pool)
    for prompt in range(N):

        def mean_distance(vectors: np.ndarray, prompt: int = prompt) -> float:
            pairs = itertools.combinations(vectors[:, pool.active[prompt]].astype(float), 2)
            return float(np.mean([np.abs(a - b).sum() for a, b in pairs]))

        whole = mean_distance(pool.rewards[prompt].reshape(-1, D))
        within = np.mean([mean_distance(rollout) for rollout in pool.rewards[prompt]])
        assert found["diversity"][prompt] == pytest.approx(whole, rel=1e-5)
        assert found["set diversity"][prompt] == pytest.approx(within, rel=1e-5)


def test_objectives_and_statuses_are_shares_of_the_answers() -> None:
    pool = random_pool()
    found = measures(pool)
    for prompt in range(N):
        status = pool.status[prompt].ravel().tolist()
        assert found["gold"][prompt] == pytest.approx(pool.rewards[prompt, :, :, 0].mean(), rel=1e-5)
        unreadable = sum(s in (Status.MISSING, Status.UNPARSABLE) for s in status)
        assert found["answers unreadable"][prompt] == pytest.approx(unreadable / len(status))
        assert found["answers repeated"][prompt] == pytest.approx(status.count(Status.DUPLICATE) / len(status))
    assert found["bronze"][1] == 0, "an inactive objective counts nothing"
    assert "answers without a score" not in found


def test_answers_whose_scorer_failed_are_shown() -> None:
    pool = random_pool()
    pool.status[0, 0, 0] = Status.INVALID
    assert measures(pool)["answers without a score"].tolist() == [1 / (R * M), 0, 0]


def test_without_fronts_there_is_no_regret() -> None:
    pool = random_pool(fronts=False)
    assert not [name for name in measures(pool) if "regret" in name]
    assert optimum(pool) is None


def test_optimum_is_the_best_point_of_each_front() -> None:
    pool = random_pool()
    assert pool.fronts is not None
    best = [
        max(float(point @ weights) for point in front)
        for front, weights in zip(pool.fronts, pool.scalar_weights, strict=True)
    ]
    assert optimum(pool) == pytest.approx(sum(best) / N)


def test_a_comparison_pairs_the_prompts() -> None:
    before = {"best@1": np.array([0.1, 0.5, 0.9]), "only before": np.zeros(3)}
    after = {"best@1": before["best@1"] + 0.25, "only after": np.zeros(3)}
    (row,) = compare(before, after)
    assert row.measure == "best@1"
    assert [row.before, row.after] == pytest.approx([0.5, 0.75])
    assert row.difference.mean == pytest.approx(0.25)
    assert row.difference.low == pytest.approx(0.25), "every prompt gained the same, whatever the prompts' spread"
    assert row.difference.high == pytest.approx(0.25)


def test_the_table_is_markdown() -> None:
    before = {"best@1": np.array([0.5, 0.5]), "regret": np.array([0.3, 0.3])}
    after = {"best@1": np.array([0.75, 0.75]), "regret": np.array([0.1, 0.1])}
    assert table(compare(before, after)).splitlines() == [
        "| measure | before | after | difference | 95 % interval |",
        "|---|---:|---:|---:|---:|",
        "| best@1 | 0.500 | 0.750 | +0.250 | [+0.250, +0.250] |",
        "| regret | 0.300 | 0.100 | -0.200 | [-0.200, -0.200] |",
    ]


def test_the_curve_passes_through_best_at_k() -> None:
    pool = random_pool(rollouts=5)
    curve = best_at_k_curve(pool)
    found = measures(pool)
    values = dict(zip(curve.ks.tolist(), curve.mean.tolist(), strict=True))
    assert values[1] == pytest.approx(found["best@1"].mean())
    assert values[10] == pytest.approx(found["best@10"].mean())
    assert (np.diff(curve.mean) >= -1e-12).all()


def test_a_sampled_pool_knows_how_to_make_its_environment_again(letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = make_text_env(toys.LETTERS_ID, split="validation", num_answers=2, data_seed=5)
    more = {"method": "vpo", "step": 7}
    pool = sample_pool(
        env, policy, [4], rollouts=1, max_new_tokens=9, temperature=0.5, seed=[1], fronts=False, source=more
    )
    assert pool.source["env"] == toys.LETTERS_ID
    assert pool.source["env_kwargs"] == {"data_seed": 5}
    assert {name: pool.source[name] for name in ("split", "num_answers", "temperature", "method", "step")} == {
        "split": "validation",
        "num_answers": 2,
        "temperature": 0.5,
        "method": "vpo",
        "step": 7,
    }


def test_a_sampled_pool_holds_the_environments_own_view(letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = toys.LettersEnv(split="test", num_answers=3)
    settings: dict[str, Any] = {"rollouts": 3, "max_new_tokens": 14, "temperature": 1.0, "seed": [1]}
    pool = sample_pool(env, policy, range(2, 6), **settings)
    assert pool.rewards.shape == (4, 3, 3, 2)
    assert pool.indices.tolist() == [2, 3, 4, 5]
    assert pool.objectives == ("left", "right")
    np.testing.assert_allclose(pool.scalar_weights, 0.5)
    assert pool.fronts is not None
    assert sorted(pool.fronts[0].tolist()) == sorted(map(list, (toys.LETTERS[letter] for letter in "abce")))
    assert optimum(pool) == pytest.approx(0.5)
    known = dict(pool.source)
    other = sample_pool(env, policy, range(3, 7), **settings)
    assert known.pop("tasks") != other.source["tasks"]
    assert known == {"split": "test", "num_answers": 3, "max_new_tokens": 14, "temperature": 1.0}
    weighted = sample_pool(env, policy, range(2, 6), **settings, scalar_weights=[3.0, 1.0], sample_batch=3)
    np.testing.assert_array_equal(weighted.rewards, pool.rewards)
    np.testing.assert_allclose(weighted.scalar_weights, [[0.75, 0.25]] * 4)
    assert optimum(weighted) == pytest.approx(0.75)
    assert pool.responses is not None
    tasks = [env.task(index) for index in range(2, 6) for _ in range(3)]
    again = env.score_batch(tasks, [text for row in pool.responses for text in row])
    np.testing.assert_array_equal(again.rewards.reshape(pool.rewards.shape), pool.rewards)
    assert all(math.isfinite(value) for values in measures(weighted).values() for value in values)
