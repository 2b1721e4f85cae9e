"""`studies/process_search.py`: its tables, from searches whose values are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from scipy import stats
from studies_by_path import load_study

from vpo_agent.search import InstanceSearch, SearchResult


@pytest.fixture(scope="module")
def study() -> Any:
    return load_study("process_search")


def result(values: list[float]) -> SearchResult:
    """A search that finds one answer on each instance after 10 tokens and no other within 30."""
    instances = tuple(
        InstanceSearch(
            index=index,
            goal="scalar",
            weights=np.ones(1),
            active=np.ones(1, dtype=bool),
            optimum=1.0,
            rewards=np.array([[value], [0.0]], dtype=np.float32),
            status=np.array([0, 1], dtype=np.int8),
            tokens=np.array([10, 20]),
            best_answer="",
        )
        for index, value in enumerate(values)
    )
    return SearchResult("any", ("a",), instances, 30)


def rows(text: str, table: int) -> dict[tuple[str, str], list[str]]:
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in blocks[table].splitlines()[2:]]
    return {(policy, search): rest for policy, search, *rest in cells}


def test_the_tables_hold_means_gains_and_differences_of_gains(study: Any) -> None:
    plain = {"grpo": [0.2, 0.25], "vpo_process": [0.4, 0.5]}
    trees = {"grpo": [0.3, 0.31], "vpo_process": [0.75, 1.0]}
    found = study.at_budget(
        {
            label: {arm: [result([value - 0.1, min(value + 0.1, 1.0)]) for value in arms[arm]] for arm in arms}
            for label, arms in (("best-of-n", plain), ("dvts", trees))
        },
        30,
    )
    text = study.report(found, "grpo", 30)
    reached = rows(text, 0)
    assert reached["grpo", "best-of-n"][0] == "0.225"
    assert reached["grpo", "best-of-n"][3:] == ["0%", "30"]
    assert reached["vpo_process", "dvts"][3] == "25%"
    gain = np.array([0.35, 0.45])
    base = np.array([0.1, 0.06])
    assert rows(text, 1)["vpo_process", "dvts"][0] == "+0.400"
    interval = stats.t.interval(0.95, 1, gain.mean(), stats.sem(gain))
    assert rows(text, 1)["vpo_process", "dvts"][1] == f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"
    interaction = rows(text, 2)["vpo_process", "dvts"]
    assert interaction[0] == "+0.320"
    welch = stats.ttest_ind(gain, base, equal_var=False).confidence_interval()
    assert interaction[1] == f"[{welch.low:+.3f}, {welch.high:+.3f}]"
    assert ("grpo", "dvts") not in rows(text, 2)


def test_only_answers_within_the_budget_count(study: Any) -> None:
    found = study.at_budget({"best-of-n": {"grpo": [result([0.5, 1.0])]}}, 9)
    assert found["best-of-n"]["grpo"].utility.tolist() == [[0.0, 0.0]]
    assert found["best-of-n"]["grpo"].tokens == 9


def test_an_arm_without_a_finished_run_is_named(study: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run of arm 'grpo' is finished: run vpo study first"):
        study.main(
            [str(ROOT / "studies" / "suite.toml"), "--task", "maze", "--runs-dir", str(tmp_path), "--arms", "grpo"]
        )
    with pytest.raises(ValueError, match="has several tasks: name one of them with --task"):
        study.main([str(ROOT / "studies" / "suite.toml"), "--runs-dir", str(tmp_path), "--arms", "grpo"])
