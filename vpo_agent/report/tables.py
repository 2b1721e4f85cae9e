"""Tables of measures, as rows of plain values and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vpo_agent.measure.intervals import over_prompts
from vpo_agent.measure.measures import Measure
from vpo_agent.measure.summary import Summary
from vpo_agent.pages.page import markdown_table

ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}


def measure_rows(summary: Summary) -> list[dict[str, Any]]:
    """Return each measure with its mean and its 95 % interval over prompts."""
    rows = []
    for measure in summary.measures.values():
        band = over_prompts(measure.values, summary.pool.tasks)
        rows.append({**_head(measure), **band.as_json(), "meaning": measure.meaning})
    return rows


def measure_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of :func:`measure_rows` in Markdown."""
    body = [
        [named(row), row["unit"], number(row["mean"]), interval(row["low"], row["high"]), row["meaning"]]
        for row in rows
    ]
    return markdown_table(["measure", "unit", "mean", "95 % interval over prompts", "meaning"], body, "llrrl")


def change_rows(before: Summary, after: Summary) -> list[dict[str, Any]]:
    """Return each measure that both pools have, before and after training.

    ``mean``, ``low`` and ``high`` describe the difference, paired over the same prompts.
    """
    rows = []
    for name, measure in after.measures.items():
        if name not in before.measures:
            continue
        values_before = before.measures[name].values
        row = {
            **_head(measure),
            "before": float(values_before.mean()),
            "after": float(measure.values.mean()),
            **over_prompts(measure.values - values_before, after.pool.tasks).as_json(),
            "headline": measure.headline,
        }
        rows.append(row)
    return rows


def change_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the headline rows of :func:`change_rows` in Markdown, under a text that explains the first three."""
    shown = [row for row in rows if row["headline"]]
    best = [row["measure"] for row in shown if row["measure"].startswith("best@")][-1]
    names_of_first = ("expected utility", best, "diversity")
    first = [row for name in names_of_first for row in shown if row["measure"] == name]
    others = [row for row in shown if row["measure"] not in names_of_first]
    body = []
    for row in [*first, *others]:
        change = [number(row["mean"], signed=True), interval(row["low"], row["high"], signed=True)]
        body.append([named(row), row["unit"], number(row["before"]), number(row["after"]), *change])
    table = markdown_table(["measure", "unit", "before", "after", "difference", "95 % interval"], body, "llrrrr")
    return (
        "Start with the first three rows. Expected utility: what the answers of one response score together when "
        "the weighting of the objectives is unknown. "
        f"{best.capitalize()}: the best scalar reward among that many answers. "
        "Diversity: how far apart their reward vectors are."
        f"\n\n{table}"
    )


def best_on_fronts(ceilings: Mapping[str, Any]) -> str:
    """Return a sentence with the entries of :meth:`Summary.ceilings`; empty if no exact front is known."""
    if ceilings["optimum"] is None:
        return ""
    scalar, utility = number(ceilings["optimum"]), number(ceilings["front_utility"])
    return f"Best on the exact fronts, on average: scalar reward {scalar}, utility {utility}."


def named(row: Mapping[str, Any]) -> str:
    """Return the name of a row's measure, with an arrow in the direction that is better."""
    return str(row["measure"]) + ARROWS[row["better"]]


def number(value: float, signed: bool = False) -> str:
    """Return a number with three digits after the point; -0.000 only where signed, for a number just below zero."""
    return f"{value + 0.0:+.3f}" if signed else f"{round(value, 3) + 0.0:.3f}"


def interval(low: float, high: float, signed: bool = False) -> str:
    """Return an interval in brackets."""
    return f"[{number(low, signed)}, {number(high, signed)}]"


def _head(measure: Measure) -> dict[str, Any]:
    return {"measure": measure.name, "unit": measure.unit, "better": measure.better}
