"""The comparison as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vpo_agent.pages.page import Page, Table
from vpo_agent.report.tables import best_on_fronts, interval, named, number
from vpo_envs.common.wording import counted

HOW_TO_READ = (
    "The unit is what one value describes. A measure per rollout depends on how many answers a rollout holds. Compare "
    "methods that write different numbers of answers by measures of all answers, or by best@k and utility@k.",
    "utility@k is the expected best w·r of k answers, for a weighting w that is uniform on the simplex and unknown "
    "when the answers are drawn. best@k takes the fixed weighting. In whole responses, one response of three answers "
    "is compared with three responses of a method that writes one answer.",
    "A row at a number of tokens gives each method as many whole responses as generate that many tokens per prompt on "
    "average. The numbers run from the longest response of any method to all answers of "
    "the smallest sample file.",
    "Every interval resamples tasks (bootstrap), each with the answers of both methods to it. If a method has several "
    "training seeds, the spread of their means is added (Student's t, for a difference Welch's). The interval of a "
    "method with one seed holds for that trained model alone.",
)
FIGURES = {
    "curves": (
        "Search curves",
        "utility@k: expected best w·r of k answers drawn from all, averaged over random weightings w. best@k: expected "
        "best scalar reward. pass@k: share of tasks that one of k answers solves. Answers are drawn singly; against "
        "tokens, in whole responses. Bands are 95 % intervals; thin lines are single training seeds.",
    ),
    "learning": (
        "Learning curves",
        "Means over seeds; bands run from the lowest to the highest seed. Validation prompts differ from those of the "
        "tables.",
    ),
    "fronts": (
        "Answers and exact fronts",
        "Answers of each method's first run (filled, area by share of the answers) and points of the exact fronts "
        "(rings, area by share of the points).",
    ),
}


def make_page(tables: Mapping[str, Any], figures: Mapping[str, Path]) -> Page:
    """Lay out tables and figures."""
    page = Page("Comparison")
    if tables["verdict"]:
        page.listing(tables["verdict"])
    _add_figures(page, figures, ("curves",))
    page.table(*means_table(tables, brief=True))
    page.paragraph(f"In brackets, the {tables['interval']}.")
    page.listing(facts(tables))
    page.fold("All measures")
    page.table(*means_table(tables))
    page.listing(HOW_TO_READ)
    if tables["differences"]:
        page.fold(f"Differences from {tables['baseline']}")
        body = []
        for row in tables["differences"]:
            cells = [number(row["mean"], signed=True), interval(row["low"], row["high"], signed=True)]
            body.append([named(row), row["unit"], row["method"], *cells])
        page.table(["measure", "unit", "method", "difference", tables["interval"]], body, "lllrr")
    page.fold("Learning and answers")
    _add_figures(page, figures, ("learning", "fronts"))
    page.fold("Pools")
    page.table(["pool", "holds"], [[row["path"], row["holds"]] for row in tables["pools"]], "ll")
    return page


def facts(tables: Mapping[str, Any]) -> list[str]:
    """Describe in sentences what is compared."""
    methods = [f"{row['method']} ({counted(row['runs'], 'seed')})" for row in tables["methods"]]
    answers = counted(tables["k"], "answer")
    sentences = [f"{', '.join(methods)}; {tables['prompts']}, up to {answers} to each."]
    if best := best_on_fronts(tables):
        sentences.append(best)
    if tables["passes"]:
        sentences.append(f"An answer solves its task with {tables['passes']}.")
    return [*sentences, *tables["notes"]]


def means_table(tables: Mapping[str, Any], brief: bool = False) -> Table:
    """Return a table with a row for each measure and a column for each method.

    In brief, it has only the measures of the verdict, and diversity.
    """
    labels = [row["method"] for row in tables["methods"]]
    shown = {*tables["headlines"], "diversity"}
    rows: dict[str, list[str]] = {}
    for row in tables["measures"]:
        if brief and row["measure"] not in shown:
            continue
        cells = rows.setdefault(row["measure"], [named(row), row["unit"]])
        cells.append(f"{number(row['mean'])} {interval(row['low'], row['high'])}")
    return ["measure", "unit", *labels], list(rows.values()), "ll" + "r" * len(labels)


def _add_figures(page: Page, figures: Mapping[str, Path], names: Sequence[str]) -> None:
    for name in names:
        if name in figures:
            heading, caption = FIGURES[name]
            page.heading(heading)
            page.figure(figures[name], heading, caption)
