"""`studies/decompose_judges.py`: what two judges make of pools whose values are known."""

from __future__ import annotations

import numpy as np
from paths import ROOT
from studies_by_path import load_study

from vpo_agent.measure.pool import Pool

CUSTOMERS = ROOT / "studies" / "decompositions" / "hand.json"


def pool_of(answers: list[list[float]]) -> Pool:
    """One prompt, whose answers are given by what each earns on the five tests of each customer."""
    rewards = np.repeat(np.array(answers, dtype=np.float32), 5, axis=1)[None, :, None, :]
    rewards = np.tile(rewards, (1, 30 // len(answers), 1, 1))
    return Pool(
        rewards=rewards,
        status=np.zeros(rewards.shape[:3], dtype=np.int8),
        active=np.ones((1, 15), dtype=bool),
        scalar_weights=np.full((1, 15), 1 / 15),
        indices=np.arange(1),
        objectives=tuple(f"{name}_{i}" for name in "abc" for i in range(1, 6)),
        fronts=None,
    )


def test_the_judges_agree_on_a_compromise_and_differ_on_specialists() -> None:
    study = load_study("decompose_judges")
    assert study.judged([pool_of([[0.4, 0.4, 0.4]])], CUSTOMERS) == ["0.400"] * 4
    # E[max(w)] of three weights uniform on the simplex is (1 + 1/2 + 1/3) / 3; of the sums of five of fifteen each,
    # which are Dirichlet(5, 5, 5), it is smaller.
    _, tests, _, customers = study.judged([pool_of([[1, 0, 0], [0, 1, 0], [0, 0, 1]])], CUSTOMERS)
    sums = np.random.default_rng(0).dirichlet([5, 5, 5], 400_000).max(axis=1).mean()
    assert abs(float(customers) - 11 / 18) < 2e-3
    assert abs(float(tests) - sums) < 4e-3


def test_intervals_are_over_seeds() -> None:
    study = load_study("decompose_judges")
    cells = study.judged([pool_of([[v, v, v]]) for v in (0.2, 0.4)], CUSTOMERS)
    assert cells == ["0.300 ± 1.271"] * 4  # t(1) = 12.706, times the standard error 0.1
