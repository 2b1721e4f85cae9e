"""Intervals over prompts and over seeds, against scipy and by how often they cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vpo_agent.measure.intervals import difference_over_seeds, over_prompts, over_seeds


def test_prompts_are_resampled_as_in_scipys_bootstrap() -> None:
    values = np.random.default_rng(0).exponential(size=(80, 3))
    band = over_prompts(values, confidence=0.9, resamples=20_000)
    for column in range(3):
        sample = (values[:, column],)
        theirs = stats.bootstrap(sample, np.mean, confidence_level=0.9, n_resamples=20_000, method="percentile", rng=1)
        interval = theirs.confidence_interval
        assert band.mean[column] == pytest.approx(values[:, column].mean())
        assert [band.low[column], band.high[column]] == pytest.approx([interval.low, interval.high], abs=0.01)


def test_a_single_column_may_be_flat() -> None:
    values = np.random.default_rng(0).random((4, 1))
    for function in (over_prompts, over_seeds):
        flat, table = function(values[:, 0]), function(values)
        assert flat is not None
        assert table is not None
        assert list(flat) == [array[0] for array in table]


def test_the_interval_of_equal_values_holds_their_mean() -> None:
    for value in np.linspace(0.01, 0.99, 50):
        band = over_prompts(np.full(200, value))
        assert band.low <= band.mean <= band.high


def test_the_bootstrap_is_deterministic_in_its_seed() -> None:
    values = np.random.default_rng(0).random(30)
    assert over_prompts(values, seed=1) == over_prompts(values, seed=1)
    assert over_prompts(values, seed=1) != over_prompts(values, seed=2)


def test_pairing_cancels_how_hard_the_prompts_are() -> None:
    before = np.random.default_rng(0).random(100)
    assert list(over_prompts(before + 0.05 - before)) == pytest.approx([0.05] * 3)


def test_one_prompt_has_an_interval_of_no_width() -> None:
    assert list(over_prompts([0.3])) == pytest.approx([0.3] * 3)


def test_columns_share_their_resamples() -> None:
    column = np.random.default_rng(0).random((20, 1))
    band = over_prompts(np.hstack([column, column]))
    assert band.low[0] == band.low[1]


def test_seeds_have_students_interval() -> None:
    values = np.random.default_rng(1).normal(size=(4, 2))
    band = over_seeds(values)
    assert band is not None
    for column in range(2):
        theirs = stats.ttest_1samp(values[:, column], 0).confidence_interval(0.95)
        assert [band.low[column], band.high[column]] == pytest.approx([theirs.low, theirs.high])


def test_a_difference_over_seeds_is_welchs() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(3, 2)), rng.normal(1, 5, size=(5, 2))
    band = difference_over_seeds(first, second)
    assert band is not None
    for column in range(2):
        theirs = stats.ttest_ind(second[:, column], first[:, column], equal_var=False).confidence_interval(0.95)
        assert [band.low[column], band.high[column]] == pytest.approx([theirs.low, theirs.high])


def test_intervals_over_three_seeds_cover_the_truth_as_often_as_they_say() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.0, size=(3, 4000))
    band = over_seeds(values)
    assert band is not None
    assert np.mean((band.low <= 2) & (band.high >= 2)) == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval() -> None:
    assert over_seeds(np.ones((1, 2))) is None
    assert difference_over_seeds(np.ones((1, 2)), np.ones((3, 2))) is None


def test_equal_seeds_differ_by_a_point() -> None:
    band = difference_over_seeds(np.ones((2, 1)), np.full((3, 1), 1.5))
    assert band is not None
    assert (band.mean[0], band.low[0], band.high[0]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("values", [np.zeros((0, 2)), np.zeros((1, 1, 1)), np.full((2, 1), np.nan)])
def test_malformed_values_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="one row per prompt"):
        over_prompts(values)
