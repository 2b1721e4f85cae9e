"""Markdown tables of measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vpo_agent.pareto.intervals import over_prompts
from vpo_agent.pareto.summary import GROUPS, Summary, meaning
from vpo_agent.report.methods import Method

ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}


def measure_rows(summary: Summary) -> list[dict[str, Any]]:
    """Each measure with its mean and its 95 % interval over prompts, group by group."""
    names = ordered(list(summary.values))
    rows = []
    for name in names:
        band = over_prompts(summary.values[name][:, None])
        about = meaning(name)
        rows.append(
            {
                "measure": name,
                "mean": float(band.mean[0]),
                "low": float(band.low[0]),
                "high": float(band.high[0]),
                "better": about.better,
                "meaning": about.meaning,
            }
        )
    return rows


def measure_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of :func:`measure_rows` in Markdown."""
    body = [
        [
            f"{row['measure']}{ARROWS[row['better']]}",
            number(row["mean"]),
            f"[{number(row['low'])}, {number(row['high'])}]",
            row["meaning"],
        ]
        for row in rows
    ]
    return markdown(["measure", "mean", "95 % interval over prompts", "meaning"], body, "lrrl")


def ordered(names: Sequence[str]) -> list[str]:
    """Names group by group, as they came within a group."""
    return sorted(names, key=lambda name: GROUPS.index(meaning(name).group))


def common_names(methods: Sequence[Method]) -> list[str]:
    """The measures that every method has, group by group."""
    return ordered([name for name in methods[0].names if all(name in method.names for method in methods)])


def number(value: float, signed: bool = False) -> str:
    """Three digits after the point, without a negative zero."""
    rounded = round(value, 3) + 0.0
    return f"{rounded:+.3f}" if signed else f"{rounded:.3f}"


def markdown(head: Sequence[str], body: Sequence[Sequence[str]], align: str) -> str:
    """A table in Markdown; ``align`` has an l or r for each column."""
    bars = {"l": "---", "r": "---:"}
    lines = [head, [bars[side] for side in align], *body]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
