"""A study of several tasks on one page: what each method reaches on each task, and its ratio to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.pareto.intervals import difference_over_seeds
from vpo_agent.report.page import markdown_table
from vpo_agent.report.tables import number
from vpo_agent.runs.checkpoints import write_text_atomically

SHOWN = ("utility@1", "utility@3 by rollouts", "utility@30", "best@30", "diversity")
COMPARED = ("utility@3 by rollouts", "utility@30")
"""Measures whose ratio to the baseline is shown as well."""


def write_suite(tables: Mapping[str, Mapping[str, Any]], baseline: str, path: Path) -> str:
    """Write a Markdown table with a row for each task and method, and return it.

    Args:
        tables: What :func:`vpo_agent.report.compare.compare_runs` returned for each task.
        baseline: The method by whose values those of the others are divided, where a task has it.
        path: The file to write.
    """
    rows = []
    for task, table in tables.items():
        seeds = {(row["measure"], row["method"]): row["each_seed"] for row in table["measures"]}
        if table["front_utility"] is not None:
            rows.append([task, "exact front", "", "", *[""] * (len(SHOWN) - 1), *[""] * len(COMPARED)])
            rows[-1][3 + SHOWN.index("utility@30")] = number(table["front_utility"])
        for method in [one["method"] for one in table["methods"]]:
            row = [task, method, str(len(seeds["diversity", method]))]
            row += [number(np.mean(seeds[name, method])) if (name, method) in seeds else "" for name in SHOWN]
            row += [
                _ratio(seeds[name, baseline], seeds[name, method])
                if method != baseline and {(name, baseline), (name, method)} <= seeds.keys()
                else ""
                for name in COMPARED
            ]
            rows.append(row)
    over = [f"{name} over {baseline}" for name in COMPARED]
    text = markdown_table(["task", "method", "seeds", *SHOWN, *over], rows, "llr" + "r" * (len(SHOWN) + len(COMPARED)))
    write_text_atomically(path, text + "\n")
    return text


def _ratio(baseline: Sequence[float], other: Sequence[float]) -> str:
    """Return the ratio of two means, with the 95 % interval of Welch's t over seeds on the logarithms.

    There is no ratio to nothing, and no interval for a single seed.
    """
    if min(*baseline, *other) <= 0:
        return ""
    value = f"{np.mean(other) / np.mean(baseline):.2f}"
    band = difference_over_seeds(np.log(baseline), np.log(other))
    return value if band is None else f"{value} [{np.exp(band.low):.2f}, {np.exp(band.high):.2f}]"
