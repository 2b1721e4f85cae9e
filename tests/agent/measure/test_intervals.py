"""The interval over prompts and seeds, against scipy and by how often it covers the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vpo_agent.measure import intervals
from vpo_agent.measure.intervals import RESAMPLES, adjusted, interval, over_prompts, p_value


def test_prompts_are_resampled_as_in_scipys_bootstrap() -> None:
    values = np.random.default_rng(0).exponential(size=(80, 3))
    band = over_prompts(values)
    for column in range(3):
        sample = (values[:, column],)
        theirs = stats.bootstrap(sample, np.mean, confidence_level=0.95, n_resamples=20_000, method="percentile", rng=1)
        bounds = theirs.confidence_interval
        assert band.mean[column] == pytest.approx(values[:, column].mean())
        assert [band.low[column], band.high[column]] == pytest.approx([bounds.low, bounds.high], abs=0.015)


def test_a_repeated_task_counts_once() -> None:
    """15 tasks, 200 prompts: the interval is as wide as that of the 15, not as that of 200."""
    rng = np.random.default_rng(0)
    tasks = [*range(15), *rng.integers(15, size=185)]
    of_task = rng.random(15)
    repeated = over_prompts(of_task[tasks], [f"task {one}" for one in tasks])
    assert repeated.mean == pytest.approx(of_task[tasks].mean())
    distinct, naive = over_prompts(of_task), over_prompts(of_task[tasks])
    assert repeated.high - repeated.low == pytest.approx(distinct.high - distinct.low, rel=0.15)
    assert naive.high - naive.low < 0.4 * (repeated.high - repeated.low)
    # Where every task occurs equally often, the mean is that of the tasks, and so is the interval.
    assert over_prompts(np.tile(of_task, 4), [*range(15)] * 4) == pytest.approx(distinct)


def test_the_interval_of_equal_values_holds_their_mean() -> None:
    for value in np.linspace(0.01, 0.99, 10):
        band = over_prompts(np.full(200, value))
        assert band.low <= band.mean <= band.high


def test_pairing_cancels_how_hard_the_prompts_are() -> None:
    before = np.random.default_rng(0).random((1, 100))
    assert list(interval(before + 0.05, baseline=before)) == pytest.approx([0.05] * 3)


def test_seeds_alone_have_students_interval_and_their_difference_welchs() -> None:
    """Where all prompts are equal, the second level is all there is."""
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(3, 2)), rng.normal(1, 5, size=(5, 2))
    ours, theirs = (np.repeat(means[:, None], 4, axis=1) for means in (second, first))
    mine, difference = interval(ours), interval(ours, baseline=theirs)
    for column in range(2):
        student = stats.ttest_1samp(second[:, column], 0).confidence_interval(0.95)
        welch = stats.ttest_ind(second[:, column], first[:, column], equal_var=False).confidence_interval(0.95)
        assert [mine.low[column], mine.high[column]] == pytest.approx([student.low, student.high])
        assert [difference.low[column], difference.high[column]] == pytest.approx([welch.low, welch.high])


@pytest.mark.parametrize(("of_prompts", "of_seeds"), [(1.0, 0.0), (0.0, 1.0), (1.0, 0.1), (1.0, 0.3)])
def test_intervals_cover_the_truth_at_least_as_often_as_they_say(of_prompts: float, of_seeds: float) -> None:
    """Three seeds and 60 prompts of a population in which both vary, and the answers too."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(150):
        prompts, seeds = rng.normal(0, of_prompts, (1, 60)), rng.normal(0, of_seeds, (3, 1))
        band = interval(2 + prompts + seeds + rng.normal(0, 0.3, (3, 60)))
        covered.append(band.low <= 2 <= band.high)
    assert np.mean(covered) > 0.92


def test_one_seed_has_the_interval_over_prompts() -> None:
    values = np.random.default_rng(0).random((1, 20))
    assert interval(values) == over_prompts(values[0])
    assert interval(values, baseline=values[:, ::-1]) == over_prompts(values[0] - values[0, ::-1])
    several = interval(np.vstack([values, values + 0.2]), baseline=values)
    assert several.high - several.low > 1, "the spread of two seeds is nearly unknown"


def test_equal_seeds_differ_by_a_point() -> None:
    band = interval(np.full((3, 4), 1.5), baseline=np.ones((2, 4)))
    assert (band.mean, band.low, band.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("values", [np.zeros((0, 2)), np.zeros((1, 1, 1)), np.full((2, 1), np.nan)])
def test_malformed_values_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="one row per prompt"):
        over_prompts(values)


def test_p_values_of_seeds_alone_are_students_and_welchs() -> None:
    rng = np.random.default_rng(2)
    for shift in (0.0, 0.5, 2.0):
        first, second = rng.normal(size=3), rng.normal(shift, 1, size=5)
        ours, theirs = (np.repeat(means[:, None], 4, axis=1) for means in (second, first))
        assert p_value(ours) == pytest.approx(stats.ttest_1samp(second, 0).pvalue)
        welch = stats.ttest_ind(second, first, equal_var=False).pvalue
        assert p_value(ours, baseline=theirs) == pytest.approx(welch)
        assert p_value(theirs, baseline=ours) == pytest.approx(welch)


def test_p_values_of_prompts_alone_are_shares_of_resamples_beyond_zero() -> None:
    for shift in (0.0, 0.1, -0.15):
        values = np.random.default_rng(1).normal(shift, 0.5, size=60)
        theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, rng=1).bootstrap_distribution
        beyond = min((theirs <= 0).mean(), (theirs >= 0).mean())
        assert p_value(values[None]) == pytest.approx(2 * beyond, abs=0.04)
    assert p_value(np.full((1, 10), 0.1)) == 1 / RESAMPLES
    assert p_value(np.zeros((1, 10))) == 1


@pytest.mark.parametrize("seeds", [1, 3])
def test_an_interval_of_the_confidence_of_its_p_value_touches_zero(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    tasks = [number // 2 for number in range(80)]
    for shift in (0.02, -0.05, 0.1):
        ours = rng.normal(0.4 + shift, 0.3, size=(seeds, 80)) + rng.normal(0, 0.03, size=(seeds, 1))
        theirs = rng.normal(0.4, 0.3, size=(2, 80))
        monkeypatch.setattr(intervals, "CONFIDENCE", 1 - p_value(ours, tasks, baseline=theirs))
        band = interval(ours, tasks, baseline=theirs)
        assert min(abs(band.low), abs(band.high)) < 1e-6


def test_adjusted_p_values_are_scipys() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 54):
        levels = rng.random(count) ** 3
        levels[-1] = levels[0]
        assert adjusted(levels.tolist()) == pytest.approx(stats.false_discovery_control(levels))
    assert adjusted([]) == []
