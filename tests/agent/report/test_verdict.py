"""The verdict of a comparison."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.report.methods import Method
from vpo_agent.report.verdict import _heading, adjustment, compared, verdict


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


def test_a_headline_says_what_is_measured_who_is_higher_and_by_how_much() -> None:
    strong, weak = method("vpo", 0.9), method("grpo", 0.4)
    first, second = said([strong, weak], weak)
    head = "Score of the best of 3 answers, averaged over random weightings, drawn singly (utility@3): "
    assert first.startswith(f"{head}vpo is higher than grpo by .500 [.3")
    assert first.endswith("]: .900 against .400 (PASS).")
    assert second.startswith(
        "Share of tasks that one of 3 answers solves (pass@3): vpo is higher than grpo by .500 [.3"
    )


def test_the_baseline_may_be_higher_and_equal_methods_do_not_differ() -> None:
    strong, weak = method("grpo", 0.9), method("vpo", 0.4)
    lines = said([strong, weak], strong)
    assert all("vpo is lower than grpo by .500 [.3" in line for line in lines)
    assert all(line.endswith("]: .400 against .900 (FAIL).") for line in lines)
    other = method("b", 0.5)
    alike = said([method("a", 0.5), other], other)
    assert all("a does not differ significantly from b, by .000 [.000, .000]: .500" in line for line in alike)
    assert all(line.endswith("(INCONCLUSIVE).") for line in alike)


def test_every_headline_sets_each_trained_method_against_the_better_base() -> None:
    weak, base = method("base, 1 answer", 0.2), method("base, 3 answers", 0.5)
    better, same, worse = method("vpo", 0.9), method("max_at_k", 0.5), method("grpo", 0.1)
    headlines = said([weak, base, better, same, worse], worse)
    assert [re.findall(r"\((\w+@3)\)", line) for line in headlines] == [["utility@3"], ["pass@3"]]
    for line in headlines:
        duel, _, against_base = line.partition(" The better base (base, 3 answers) has .500: ")
        assert ": vpo, the best of the 2 others, is higher than grpo by .800 [" in duel
        vpo, max_at_k, grpo = against_base.split("; ")
        assert re.fullmatch(r"vpo is higher by \.400 \[.*\] \(PASS\)", vpo)
        assert max_at_k == "max_at_k does not differ significantly, by .000 [.000, .000] (INCONCLUSIVE)"
        assert re.fullmatch(r"and grpo is lower by \.400 \[.*\] \(FAIL\)\.", grpo)
    comparisons = compared([weak, base, better, same, worse], worse)
    assert f"adjusted over the {len(comparisons)} differences" in adjustment(comparisons)
    assert len(comparisons) == 2 * (2 + 3), "two with the baseline and three with the base, in each headline"
    assert [one.adjusted for one in comparisons] == pytest.approx(
        stats.false_discovery_control([one.p for one in comparisons])
    )


def test_a_baseline_that_is_a_base_and_a_method_alone_are_set_against_the_base_only() -> None:
    base, trained, other = method("base", 0.5), method("vpo", 0.9), method("grpo", 0.1)
    for line in said([base, trained, other], base):
        assert re.search(
            r"\): The base has \.500: vpo is higher by .* \(PASS\), and grpo is lower by .* \(FAIL\)\.$", line
        )
    for line in said([base, trained], trained):
        assert re.search(r"\): The base has \.500: vpo is higher by .* \(PASS\)\.$", line)


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
    assert "best, the best of the 7 others, does not differ significantly from grpo, by .100 [.0" in sentence
    assert "]: .600 against .500 (INCONCLUSIVE: only the unadjusted 95 % interval excludes 0)." in sentence
    assert f"adjusted over the {len(comparisons)} differences of the verdict" in adjustment(comparisons)
    assert comparisons[0].as_json()["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("label", ["vpo", "base"])
def test_a_method_alone_has_no_verdict(label: str) -> None:
    only = method(label, 0.5)
    assert said([only], only) == []
    assert adjustment([]) == ""


def test_the_better_base_is_the_one_with_the_higher_mean_however_many_answers_it_writes() -> None:
    weak, strong, trained = method("base, 3 answers", 0.1), method("base, 1 answer", 0.9), method("vpo", 0.5)
    for line in said([weak, strong, trained], weak):
        assert "The better base (base, 1 answer) has .900: vpo is lower by .400" in line


def test_the_measures_are_named_also_for_a_single_answer() -> None:
    headings = [_heading(name) for name in ("utility@1 drawn singly", "best@30 drawn singly", "pass@1")]
    assert headings == [
        "Score of 1 answer, averaged over random weightings, drawn singly (utility@1)",
        "Scalar reward of the best of 30 answers, drawn singly (best@30)",
        "Share of tasks that 1 answer solves (pass@1)",
    ]
