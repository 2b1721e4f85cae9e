"""The verdict of a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.report.methods import Method
from vpo_agent.report.verdict import verdict


def method(label: str, good: float) -> Method:
    """A method whose first answer of three is right on this share of 40 prompts."""
    n, k = 40, 3
    rewards = np.zeros((n, k, 1, 2), dtype=np.float32)
    rewards[: round(good * n), 0] = 1
    front = np.ones((1, 2))
    pool = Pool(
        rewards=rewards,
        status=np.zeros((n, k, 1), dtype=np.int8),
        active=np.ones((n, 2), dtype=bool),
        scalar_weights=np.full((n, 2), 0.5),
        indices=np.arange(n),
        objectives=("a", "b"),
        fronts=(front,) * n,
        responses=None,
        tokens=None,
        tasks=tuple(f"{index:04x}" for index in range(n)),
        source={},
    )
    return Method(label, (summarise(pool),))


def test_the_best_method_leads_where_the_interval_excludes_zero() -> None:
    strong, weak = method("vpo", 0.9), method("grpo", 0.4)
    first, *_, last = verdict([strong, weak], weak)
    assert first.startswith("With 3 answers drawn singly, weights unknown (utility@3), vpo leads grpo by .500 [.3")
    assert first.endswith(": .900 against .400.")
    assert last.startswith("With 3 answers, one of which must pass (pass@3), vpo leads grpo by .500 [.3")


def test_the_baseline_may_lead_and_equal_methods_are_level() -> None:
    strong, weak = method("grpo", 0.9), method("vpo", 0.4)
    assert all("grpo leads vpo by .500" in line for line in verdict([strong, weak], strong))
    alike = verdict([method("a", 0.5), method("b", 0.5)], method("b", 0.5))
    assert all("b and a do not differ significantly, by .000 [.000, .000]" in line for line in alike)


def test_trained_methods_are_also_set_against_the_untrained_model() -> None:
    base, better, worse = method("base, 1 answer", 0.5), method("vpo", 0.9), method("grpo", 0.1)
    *duels, last = verdict([base, better, worse], worse)
    assert [line.partition(" (")[2].partition(")")[0] for line in duels] == ["utility@3", "pass@3"]
    assert not any("base" in line for line in duels)
    assert "vpo gains .400 [.2" in last
    assert "grpo loses .400 [.2" in last
    assert last.endswith("against the base.")


@pytest.mark.parametrize("label", ["vpo", "base"])
def test_a_method_alone_has_no_verdict(label: str) -> None:
    only = method(label, 0.5)
    assert verdict([only], only) == []
