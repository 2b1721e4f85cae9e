"""Runs compared: one folder with a report in HTML, tables in Markdown and JSON, and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from vpo_agent.measure.intervals import SAID
from vpo_agent.measure.notices import notices
from vpo_agent.measure.sampling import environment_of
from vpo_agent.pages.page import check_folder, whole_folder
from vpo_agent.report.compare_page import make_page
from vpo_agent.report.evaluation import describe
from vpo_agent.report.figures import default_pairs, draw_curves, draw_fronts
from vpo_agent.report.learning_curves import draw_learning
from vpo_agent.report.methods import Method, common_names
from vpo_agent.report.runs import check_comparable, differing_settings, group, lesser_differences, read_runs
from vpo_agent.report.verdict import adjustment, compared, headlines, verdict

MARK = "compare.json"
BASELINE = "grpo"


def compare_runs(
    folders: Sequence[Path | Sequence[Path]],
    labels: Sequence[str] | None = None,
    out: Path = Path("comparison"),
    baseline: str | None = None,
    *,
    k: int | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Compare runs on the same prompts and write the folder ``out``, completely or not at all.

    Runs with the same method and training settings are one method; their seeds may differ. The folder gets
    ``report.html`` (self-contained), ``compare.md``, ``compare.json`` and the figures. It replaces an earlier
    comparison.

    Args:
        folders: Folders of finished runs, folders that ``vpo eval`` wrote, or sample files. A sequence of them is one
            run of policies that answer together, each with an equal share of the answers.
        labels: A label for each; equal ones are one method. Derived from the settings by default.
        out: The output folder.
        baseline: Label of the method that the others are compared with; by default ``"grpo"`` if a method has that
            label, else the first.
        k: Largest k; all answers of the smallest pool by default.
        threshold: The scalar reward at which an answer solves its task; by default within 0.02 of the exact front's
            optimum.

    Returns:
        The content of ``compare.json``: ``verdict``, ``comparisons``, ``methods``, ``measures``, ``differences``,
        ``curves`` and more.

    Raises:
        ValueError: The runs cannot be compared, a label is unknown, ``k`` is more than a pool holds, or
            ``out`` holds something else.
    """
    groups = [[Path(entry)] if isinstance(entry, str | Path) else [Path(part) for part in entry] for entry in folders]
    paths = [path for members in groups for path in members]
    if not paths:
        raise ValueError("there is nothing to compare: give the folders of runs, or sample files")
    for earlier, path in combinations(paths, 2):
        if earlier.resolve() == path.resolve():
            raise ValueError(f"{str(path)!r} is given twice: give each run once")
    check_folder(out, MARK)
    runs = read_runs(groups)
    check_comparable(runs)
    notes = lesser_differences(runs)
    for run in runs:
        environment_of(run.pool, run.name)
    methods = group(runs, labels, k, threshold)
    differing = differing_settings(runs) if labels is None else []
    if differing:
        notes.append(f"Settings other than the method in which the runs differ: {', '.join(differing)}.")
    notes += [f"{run.name}: {notice}" for run in runs for notice in notices(run.pool)]
    single = [method.label for method in methods if len(method.summaries) == 1]
    if single:
        notes.append(f"One seed of {', '.join(single)}: these intervals do not say how training runs differ.")
    by_label = {method.label: method for method in methods}
    if baseline not in (None, *by_label):
        raise ValueError(f"unknown baseline {baseline!r}: choose one of {', '.join(map(repr, by_label))}")
    base_method = by_label.get(baseline or BASELINE, methods[0])
    comparisons = compared(methods, base_method)
    if adjusted_for := adjustment(comparisons):
        notes.append(adjusted_for)
    tables = {
        "verdict": verdict(comparisons),
        "comparisons": [comparison.as_json() for comparison in comparisons],
        **_make_tables(methods, base_method, notes),
    }
    tables["pools"] = [{"path": run.name, "holds": describe(run.pool)} for run in runs]
    with whole_folder(out, MARK) as folder:
        drawn = {
            "curves": draw_curves(methods, folder / "curves.png"),
            "learning": draw_learning(methods, folder / "learning.png"),
            "fronts": draw_fronts(methods, default_pairs(runs[0].pool), folder / "fronts.png"),
        }
        page = make_page(tables, {name: path for name, path in drawn.items() if path is not None})
        # A model can write half a surrogate pair, which UTF-8 cannot encode.
        (folder / "compare.md").write_text(page.markdown(), encoding="utf-8", errors="replace")
        (folder / "report.html").write_text(page.html(), encoding="utf-8", errors="replace")
        (folder / MARK).write_text(json.dumps(tables, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return tables


def _make_tables(methods: Sequence[Method], baseline: Method, notes: Sequence[str]) -> dict[str, Any]:
    """Return the numbers of the comparison as plain JSON values."""
    measures, differences = [], []
    summary = methods[0].summaries[0]
    for name in common_names(methods):
        measure = summary.measures[name]
        # Methods may differ in the unit, such as in the answers of a rollout.
        units = dict.fromkeys(run.measures[name].unit for method in methods for run in method.summaries)
        head = {"measure": name, "unit": " or ".join(units), "better": measure.better}
        values_of_baseline = baseline.values(name)
        for method in methods:
            values = method.values(name)
            row = {**head, "meaning": measure.meaning, "method": method.label, **method.band(values).as_json()}
            measures.append({**row, "each_seed": values.mean(axis=1).tolist()})
            if method is not baseline:
                band = method.band(values, values_of_baseline)
                level = method.p_value(name, baseline) if measure.headline else None
                differences.append({**head, "method": method.label, **band.as_json(), "p": level})
    return {
        "baseline": baseline.label,
        "prompts": summary.pool.prompts_in_words(),
        "interval": SAID if any(len(method.summaries) > 1 for method in methods) else "95 % interval over prompts",
        "k": summary.k,
        "headlines": headlines(methods),
        "objectives": list(summary.pool.objectives),
        **summary.ceilings(),
        "passes": summary.threshold or None,
        "notes": list(notes),
        "methods": [
            {"method": method.label, "seeds": list(method.seeds), "runs": len(method.summaries)} for method in methods
        ],
        "measures": measures,
        "differences": differences,
        "curves": {
            method.label: {name: _curve(method, name) for name in common_names([method], "curves")}
            for method in methods
        },
    }


def _curve(method: Method, name: str) -> dict[str, Any]:
    ks, values = method.curve(name)
    return {"k": ks.tolist(), **method.band(values).as_json(), "each_seed": values.mean(axis=1).tolist()}
