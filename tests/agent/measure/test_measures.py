"""The list of measures, against brute force and exact arithmetic."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from pools import D, M, N, R, random_pool
from scipy.spatial import ConvexHull, HalfspaceIntersection

from vpo_agent.estimators.weights import draw_weights
from vpo_agent.measure.measures import REPORT_WEIGHTS, at_tokens, measures, name_at, rank
from vpo_agent.measure.pool import Floats, Pool
from vpo_envs import Status

WHOLE_RESPONSES = ("best@2 in whole responses", "best@8 in whole responses")


def one_prompt(vectors: Floats) -> Pool:
    """A pool of rollouts of m answers each, (R, m, d), to a single prompt."""
    rollouts, m, d = vectors.shape
    return Pool(
        rewards=vectors[None].astype(np.float32),
        status=np.zeros((1, rollouts, m), np.int8),
        active=np.ones((1, d), bool),
        scalar_weights=np.full((1, d), 1 / d),
        indices=np.arange(1),
        objectives=tuple(f"objective_{i}" for i in range(d)),
        fronts=None,
    )


def values_of(pool: Pool) -> dict[str, Floats]:
    return {one.name: one.values for one in measures(pool)}


def test_best_at_k_is_the_mean_over_all_subsets() -> None:
    pool = random_pool()
    found = values_of(pool)
    for prompt in range(N):
        scores = [float(answer @ pool.scalar_weights[prompt]) for answer in pool.rewards[prompt].reshape(-1, D)]
        for k in (1, 3):
            subsets = [max(subset) for subset in itertools.combinations(scores, k)]
            assert found[name_at("best", k)][prompt] == pytest.approx(sum(subsets) / len(subsets), rel=1e-6)
    singly = ("best@1", "best@3 drawn singly", "best@8 drawn singly")
    assert [name for name in found if name.startswith("best@")] == [*singly, *WHOLE_RESPONSES]


def test_utility_at_k_is_the_mean_over_all_subsets_and_weightings() -> None:
    pool = random_pool()
    found = values_of(pool)
    keys = np.zeros(N, dtype=np.uint64)
    weights = draw_weights(keys, num_objectives=D, num_weights=REPORT_WEIGHTS, active=pool.active).astype(float)
    for prompt in range(N):
        utility = pool.rewards[prompt].astype(float) @ weights[prompt].T
        for k in (1, 3, 8):
            subsets = [
                np.max(chosen, axis=0).mean() for chosen in itertools.combinations(utility.reshape(R * M, -1), k)
            ]
            assert found[name_at("utility", k)][prompt] == pytest.approx(np.mean(subsets), rel=1e-6)
        for count in (1, 4):
            pairs = [np.max(chosen, axis=(0, 1)).mean() for chosen in itertools.combinations(utility, count)]
            assert found[f"utility@{count * M} in whole responses"][prompt] == pytest.approx(np.mean(pairs), rel=1e-6)
    np.testing.assert_allclose(found["utility@2 in whole responses"], found["expected utility"])
    np.testing.assert_allclose(found["utility@8 drawn singly"], found["pool utility"])


def test_answers_of_few_kinds_are_ranked_as_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = random_pool()
    pool = replace(pool, rewards=np.round(2 * pool.rewards) / 2)
    of_kinds = rank(pool)
    monkeypatch.setattr("vpo_agent.measure.measures.FEW_KINDS", 0)
    for mine, theirs in zip(of_kinds, rank(pool), strict=True):
        np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize(("d", "n"), [(2, 6), (3, 6), (4, 5), (5, 4)])
def test_utility_at_k_agrees_with_exact_arithmetic(d: int, n: int) -> None:
    rng = np.random.default_rng(d)
    corners, levels = np.eye(d)[rng.permutation(d)[:n]], rng.integers(0, 5, (n, d)) / 4
    corners = np.vstack([corners, np.full((n - len(corners), d), 0.5)])
    for vectors in (corners, levels, rng.random((n, d)).round(2)):
        found = values_of(one_prompt(vectors[:, None]))
        for k in (1, 3, n):
            subsets = itertools.combinations(vectors, k)
            exact = np.mean([rational_expected_utility(np.unique(chosen, axis=0)) for chosen in subsets])
            assert found[name_at("utility", k)][0] == pytest.approx(exact, abs=4e-4)


def test_rollouts_of_other_sizes_are_measured_at_a_common_number_of_answers() -> None:
    single, sets = random_pool(rollouts=12, answers=1), random_pool(rollouts=4, answers=3)
    names = []
    for pool in (single, sets):
        found = {one.name: one for one in measures(pool, together=3)}
        names.append([name for name in found if "in whole responses" in name])
        assert found["utility@3 in whole responses"].unit == ("3 rollouts of 1" if pool is single else "1 rollout of 3")
    assert names[0] == names[1] == [f"{kind}@{k} in whole responses" for kind in ("best", "utility") for k in (3, 12)]
    values = values_of(single)
    assert not [name for name in values if "in whole responses" in name], "a rollout of one answer is that answer"
    alone = {one.name: one.values for one in measures(single, together=3)}
    np.testing.assert_allclose(alone["utility@3 in whole responses"], values["utility@3 drawn singly"])


def test_a_budget_of_tokens_buys_whole_rollouts() -> None:
    pool = random_pool()
    tokens = np.random.default_rng(0).integers(5, 20, (N, R)).astype(np.int32)
    known = replace(pool, tokens=tokens)
    ranked = rank(known)
    each = tokens.mean()
    by_count = [ranked.rollouts.mean(axis=1), values_of(pool)["utility@8 in whole responses"]]
    np.testing.assert_allclose(at_tokens(known, ranked, each), by_count[0])
    np.testing.assert_allclose(at_tokens(known, ranked, R * each), by_count[1])
    one, two = at_tokens(known, ranked, each), at_tokens(known, ranked, 2 * each)
    np.testing.assert_allclose(at_tokens(known, ranked, 1.25 * each), 0.75 * one + 0.25 * two)
    found = {one.name: one for one in measures(known, budgets=[30])}
    assert found["utility at 30 tokens"].unit == "30 tokens"
    np.testing.assert_allclose(found["utility at 30 tokens"].values, at_tokens(known, ranked, 30))
    np.testing.assert_allclose(found["tokens"].values, tokens.mean(axis=1))
    with pytest.raises(ValueError, match=r"11\.0833 tokens per prompt, .* 44\.3333, .*; got 1000"):
        at_tokens(known, ranked, 1000)
    with pytest.raises(ValueError, match="does not state how many tokens"):
        at_tokens(pool, ranked, 30)


def test_regret_is_what_the_exact_front_is_worth_beyond_the_answers() -> None:
    pool = random_pool()
    found = values_of(pool)
    keys = np.zeros(N, dtype=np.uint64)
    weights = draw_weights(keys, num_objectives=D, num_weights=REPORT_WEIGHTS, active=pool.active).astype(float)
    assert pool.fronts is not None
    ideal = [(front @ draws.T).max(axis=0).mean() for front, draws in zip(pool.fronts, weights, strict=True)]
    np.testing.assert_allclose(found["regret"], ideal - found["expected utility"], rtol=1e-5)
    np.testing.assert_allclose(found["pool regret"], ideal - found["pool utility"], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_fronts_of_a_foreign_dtype_are_worth_the_same(dtype: str) -> None:
    pool = random_pool()
    assert pool.fronts is not None
    foreign = replace(pool, fronts=tuple(np.asarray(front.astype(dtype)) for front in pool.fronts))
    np.testing.assert_allclose(rank(foreign).fronts, rank(pool).fronts, rtol=1e-5)


def test_diversity_is_the_mean_distance_of_pairs() -> None:
    pool = random_pool()
    found = values_of(pool)
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
    found = values_of(pool)
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
    assert values_of(pool)["answers without a score"].tolist() == [1 / (R * M), 0, 0]


def test_without_fronts_there_is_no_regret() -> None:
    pool = random_pool(fronts=False)
    assert not [name for name in values_of(pool) if "regret" in name]
    assert pool.optimum() is None


def test_optimum_is_the_best_point_of_each_front() -> None:
    pool = random_pool()
    assert pool.fronts is not None
    best = [
        max(float(point @ weights) for point in front)
        for front, weights in zip(pool.fronts, pool.scalar_weights, strict=True)
    ]
    assert pool.optimum() == pytest.approx(best)


def rational_expected_utility(points: Floats) -> float:
    """E[max_s w·r_s] in exact fractions, by cutting the simplex until one point is best throughout each piece.

    On a piece where one point is best the utility is linear, and its mean is the mean over the corners.
    """
    rows = [[Fraction(value) for value in row] for row in points.tolist()]
    d = len(rows[0])

    def dot(weight: list[Fraction], row: list[Fraction]) -> Fraction:
        return sum((w * r for w, r in zip(weight, row, strict=True)), Fraction(0))

    def mean(corners: list[list[Fraction]], best: int, rival: int) -> Fraction:
        if rival == len(rows):
            return sum((dot(corner, rows[best]) for corner in corners), Fraction(0)) / d
        lead = [dot(corner, rows[rival]) - dot(corner, rows[best]) for corner in corners]
        i, j = lead.index(max(lead)), lead.index(min(lead))
        if lead[i] <= 0:
            return mean(corners, best, rival + 1)
        if lead[j] >= 0:
            return mean(corners, rival, rival + 1)
        share = lead[i] / (lead[i] - lead[j])
        cut = [a + share * (b - a) for a, b in zip(corners[i], corners[j], strict=True)]
        near, far = list(corners), list(corners)
        near[j], far[i] = cut, cut
        return share * mean(near, best, rival) + (1 - share) * mean(far, best, rival)

    corners = [[Fraction(int(i == j)) for j in range(d)] for i in range(d)]
    return float(mean(corners, 0, 1))


def volume_expected_utility(points: Floats) -> float:
    """E[max_s w·r_s] from the volume of the polytope {(w, t): w on the simplex, max_s w·r_s <= t <= 2}."""
    d = points.shape[1]
    # The last weight is one less the others. A row (a, b) is the half-space a·x + b <= 0.
    under = np.hstack([points[:, :-1] - points[:, -1:], np.full((len(points), 1), -1.0), points[:, -1:]])
    simplex = np.vstack([-np.eye(d - 1, d + 1), [1.0] * (d - 1) + [0.0, -1.0]])
    rows = np.vstack([under, simplex, [0.0] * (d - 1) + [1.0, -2.0]])
    corners = HalfspaceIntersection(rows, np.array([1 / d] * (d - 1) + [1.5])).intersections
    return 2 - float(ConvexHull(corners).volume) * math.factorial(d - 1)


@pytest.mark.parametrize("d", [3, 4, 5])
def test_the_mean_over_prompts_is_exact_to_a_tenth_of_the_last_digit_that_tables_show(d: int) -> None:
    rng = np.random.default_rng(d)
    assert volume_expected_utility(np.eye(d)) == pytest.approx(sum(1 / i for i in range(1, d + 1)) / d)
    errors = []
    for _ in range(50):
        vectors = rng.integers(0, 5, (10, 3, d)) / 4 * rng.choice([0.4, 0.7, 1.0], (10, 3, d))
        found = values_of(one_prompt(vectors))
        per_rollout = np.mean([volume_expected_utility(one) for one in vectors])
        whole = volume_expected_utility(vectors.reshape(-1, d))
        errors.append([found["utility@30 drawn singly"][0] - whole, found["expected utility"][0] - per_rollout])
    assert np.abs(np.mean(errors, axis=0)).max() < 1e-4


def test_every_measure_says_what_one_value_is_of() -> None:
    units = {one.name: one.unit for one in measures(random_pool(rollouts=5, answers=3))}
    assert units["expected utility"] == units["regret"] == units["set diversity"] == "rollout of 3 answers"
    assert units["pool utility"] == units["hypervolume"] == units["diversity"] == "set of 15 answers"
    assert units["best@1"] == "1 answer"
    assert units["pass@10"] == "10 answers"
    assert units["best@15 in whole responses"] == "5 rollouts of 3"
    assert units["gold"] == units["answers repeated"] == "answer"


def test_the_headline_covers_search_utility_the_front_and_each_objective() -> None:
    headline = [one.name for one in measures(random_pool()) if one.headline]
    searches = ["best@1", "best@8 drawn singly", "expected utility"]
    wanted = [*searches, "hypervolume", "coverage", "diversity", "gold", "silver"]
    assert [name for name in wanted if name not in headline] == []


def test_fronts_are_measured_over_active_objectives() -> None:
    pool = random_pool()
    assert pool.fronts is not None
    found = values_of(pool)
    reached = pool.rewards[1].reshape(-1, D)[:, :2].astype(float)
    front = pool.fronts[1][:, :2]
    attained = [any((answer >= point - 1e-6).all() for answer in reached) for point in front]
    assert found["coverage"][1] == np.mean(attained)
