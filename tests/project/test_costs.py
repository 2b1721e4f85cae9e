"""The page of costs shows what benchmarks/costs.py has measured."""

from __future__ import annotations

import json
import sys

from paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))

import costs

from vpo_agent.presets import BUNDLED


def test_the_page_agrees_with_its_data_file_which_has_every_bundled_model() -> None:
    data = json.loads(costs.DATA.read_text(encoding="utf-8"))
    assert {(row["model"], row["method"]) for row in data["rows"]} == {
        (m, way) for m in BUNDLED for way in costs.METHODS
    }
    assert costs.PAGE.read_text(encoding="utf-8") == costs.page(data), "write it: python benchmarks/costs.py --page"


def test_a_run_is_its_steps_and_two_evaluations() -> None:
    row = {"model": "tiny-maze", "method": "vpo", "weights": 900_000, "step_tokens": 4_000, "peak_mib": 1_536}
    shown = costs.table({"rows": [{**row, "step_seconds": 1.6, "evaluation_seconds": 15.0}]}).splitlines()[-1]
    # 150 steps of 1.6 s and two evaluations of 15 s are 270 s, and 150 steps of 4,000 tokens are 0.60 million.
    assert [cell.strip() for cell in shown.strip("|").split("|")] == [
        "`vpo/Maze-v0`",
        "`maze-compact`",
        "0.9 million",
        "`vpo`",
        "0.60 million",
        "1.60",
        "15",
        "4.5 min",
        "1.5 GiB",
    ]
