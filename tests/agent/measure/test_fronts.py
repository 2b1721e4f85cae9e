"""Fronts, against counting cells and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vpo_agent.measure.metrics import coverage, hypervolume

GRID = st.integers(0, 4).map(lambda value: value / 4)


@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=GRID))
@settings(max_examples=60, deadline=None)
def test_hypervolume_counts_the_cells_that_are_dominated(points: np.ndarray) -> None:
    """From −0.25 to 1 in steps of a quarter: five cells a side, each wholly inside or outside."""
    corners = itertools.product(range(5), repeat=points.shape[1])
    upper = [np.array(corner) / 4 for corner in corners]
    inside = sum(bool((points >= corner).all(axis=1).any()) for corner in upper)
    assert hypervolume(points, reference=-0.25) == pytest.approx(inside / len(upper))


def test_hypervolume_of_nothing_and_of_everything() -> None:
    assert hypervolume(np.zeros((0, 3))) == 0
    assert hypervolume(np.ones((2, 3))) == pytest.approx(1)
    assert hypervolume(np.full((1, 2), -0.5)) == 0


def test_hypervolume_gives_up_on_many_points_in_many_objectives() -> None:
    assert hypervolume(np.random.default_rng(0).random((60, 16))) is None
    assert hypervolume(np.ones((2, 40))) is None


def test_coverage_is_the_share_of_the_front_attained() -> None:
    front = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.2, 0.9]])
    assert coverage(front, front) == 1.0
    assert coverage(front, [[0.6, 0.5], [0.0, 1.0 - 1e-9]]) == 0.5
    assert coverage(front, [[0.0, 0.99]]) == 0.0
    assert coverage(front, [[0.0, 0.99]], tolerance=0.02) == 0.25
