"""The verdict of a comparison."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.report.methods import Method
from vpo_agent.report.verdict import adjustment, compared, verdict


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


def said(methods: list[Method], baseline: Method) -> list[str]:
    return verdict(compared(methods, baseline))


def test_the_best_method_leads_where_the_interval_excludes_zero() -> None:
    strong, weak = method("vpo", 0.9), method("grpo", 0.4)
    first, *_, last = said([strong, weak], weak)
    assert first.startswith(
        "PASS: With 3 answers drawn singly, weighting unknown (utility@3), vpo leads grpo by .500 [.3"
    )
    assert first.endswith(": .900 against .400.")
    assert last.startswith("PASS: With 3 answers, one of which must pass (pass@3), vpo leads grpo by .500 [.3")


def test_the_baseline_may_lead_and_equal_methods_are_level() -> None:
    strong, weak = method("grpo", 0.9), method("vpo", 0.4)
    lines = said([strong, weak], strong)
    assert all(line.startswith("FAIL: With 3") for line in lines)
    assert all("grpo leads vpo by .500 [.3" in line for line in lines)
    alike = said([method("a", 0.5), method("b", 0.5)], method("b", 0.5))
    assert all(line.startswith("INCONCLUSIVE: With 3") for line in alike)
    assert all("b and a do not differ significantly, by .000 [.000, .000]" in line for line in alike)


def test_trained_methods_are_also_set_against_the_untrained_model() -> None:
    base, better, worse = method("base, 1 answer", 0.5), method("vpo", 0.9), method("grpo", 0.1)
    *duels, last = said([base, better, worse], worse)
    assert [line.partition(" (")[2].partition(")")[0] for line in duels] == ["utility@3", "pass@3"]
    assert not any("base" in line for line in duels)
    assert last.startswith("PASS for vpo, FAIL for grpo: With 3 answers")
    assert "vpo gains .400 [.2" in last
    assert "grpo loses .400 [.2" in last
    assert last.endswith("against the base, 1 answer.")


def test_a_verdict_is_adjusted_over_all_that_it_compares() -> None:
    """The best of many methods is ahead by a difference that a single one would have significantly."""
    grpo, best = method("grpo", 0.5), method("best", 0.6)
    others = [method(f"other {number}", 0.5) for number in range(6)]
    (alone, *_) = compared([grpo, best], grpo)
    assert alone.said == "PASS"
    comparisons = compared([grpo, *others, best], grpo)
    assert [one.adjusted for one in comparisons] == pytest.approx(
        stats.false_discovery_control([one.p for one in comparisons])
    )
    sentence = verdict(comparisons)[0]
    assert sentence.startswith("INCONCLUSIVE: With 3 answers")
    assert "best and grpo do not differ significantly, by .100 [.0" in sentence
    assert "(only the unadjusted 95 % interval excludes 0): .600 against .500." in sentence
    assert f"adjusted over the {len(comparisons)} differences of the verdict" in adjustment(comparisons)
    assert comparisons[0].as_json()["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("label", ["vpo", "base"])
def test_a_method_alone_has_no_verdict(label: str) -> None:
    only = method(label, 0.5)
    assert said([only], only) == []
    assert adjustment([]) == ""


def test_methods_are_set_against_the_better_base_however_many_answers_it_writes() -> None:
    weak, strong, trained = method("base, 3 answers", 0.1), method("base, 1 answer", 0.9), method("vpo", 0.5)
    last = said([weak, strong, trained], weak)[-1]
    assert last.startswith("FAIL: With 3 answers")
    assert last.endswith("against the base, 1 answer.")
