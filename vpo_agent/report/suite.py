"""A study of several tasks on one page: what each arm reaches on each task, and what explains it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vpo_agent.report.methods import title
from vpo_agent.report.page import Page, markdown_table
from vpo_agent.report.suite_figures import draw_diversity, draw_worths
from vpo_agent.report.suite_runs import TaskRuns
from vpo_agent.report.suite_tables import (
    Table,
    diversity_table,
    levels_table,
    preferences_table,
    questions_table,
    search_table,
    steps_table,
    worth_of_tasks,
    worth_table,
)
from vpo_agent.runs.checkpoints import write_text_atomically


def write_suite(tasks: Sequence[TaskRuns], baseline: str, folder: Path) -> str:
    """Write ``suite.md`` and its figures into the folder of a study, and return the table of utility@k in Markdown.

    Args:
        tasks: The finished runs of each task. A table leaves out what no run can fill.
        baseline: The arm by whose values those of the others are divided, where a task has it.
        folder: The folder of the study.
    """
    page = Page("The arms on every task")
    page.paragraph(
        "Test instances; means with 95 % intervals over seeds. Where k is a multiple of the answers in a rollout, "
        "rollouts are drawn whole. A row of several tasks has means over families of tasks, geometric ones of ratios."
    )
    utility, worths = search_table(tasks, "utility", baseline), worth_of_tasks(tasks)

    def add(heading: str, about: str, table: Table, figure: Path | None = None) -> None:
        if table[1]:
            page.heading(heading)
            page.paragraph(about)
            page.table(*table)
            if figure is not None:
                page.figure(figure, heading)

    add("utility@k", "Expected utility of the best of k answers for a weighting that is unknown.", utility)
    best = "Expected best scalar reward of k answers."
    add("best@k", best, search_table(tasks, "best", baseline))
    add(
        "Diversity through training",
        "Mean L1 distance between the reward vectors of all answers to a validation prompt. End over start is a "
        "geometric mean over seeds: 0, which has no interval, if one seed ends with equal answers.",
        diversity_table(tasks),
        draw_diversity(tasks, folder / "suite_diversity.png"),
    )
    add(
        "What the vector, the chain and credit add",
        "Differences of utility, paired by seed: at equal answers; at the tokens of one rollout of the arm that writes "
        "more; and at those of the pool that holds fewer.",
        questions_table(tasks),
    )
    add(
        "Levels of difficulty",
        "The last row of a family is the factor by which the ratio changes from one level to the next, fitted for each "
        "seed.",
        levels_table(tasks, baseline),
    )
    add(
        "Preferences chosen after training",
        "Expected reward of the best of some answers where one objective alone counts (corner), two alike (edge), all "
        "alike (centre), and under the weighting that is served worst.",
        preferences_table(tasks),
    )
    add(
        "Steps to VPO's final utility",
        "When the utility of a rollout on validation prompts, linear between evaluations, reaches what VPO's runs have "
        "on average after their last step.",
        steps_table(tasks),
    )
    add(
        "Gain over alpha = 1000 and the worth of the vector",
        "Worths of a set and of the vector, and what drawn weightings gain over nearly equal ones.",
        worth_table(worths),
        draw_worths(worths, folder / "suite_worths.png", title([one for task in tasks for one in task.arms.values()])),
    )
    write_text_atomically(folder / "suite.md", page.markdown())
    return markdown_table(*utility)
