"""The comparison as a page: in Markdown, and in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vpo_agent.report import html
from vpo_agent.report.examples import ExampleSet
from vpo_agent.report.tables import ARROWS, markdown, number

TITLE = "Comparison"
HOW_TO_READ = (
    "An interval over prompts says what other prompts would give with these trained models: prompts are resampled "
    "(4,000 bootstrap samples), and in a difference each prompt is resampled with the answers of both methods to it.",
    "An interval over seeds says what other training runs would give on these prompts: Student's t over the means of "
    "the seeds, and Welch's t for a difference. Of a single seed there is none, and of two it is very wide.",
    "Neither contains the other. A claim about a method, rather than one trained model, needs the one over seeds.",
)
CAPTIONS = {
    "curves": "best@k: expected best scalar reward of k answers drawn from the pool. pass@k: chance that one of k "
    "passes. Bands are 95 % intervals over prompts; thin lines are single training seeds.",
    "differences": "best@k less that of the baseline. Left, the paired 95 % interval over prompts; right, Welch's 95 % "
    "interval over training seeds.",
    "measures": "Thick bars are 95 % intervals over prompts, thin ones over training seeds; open circles are single "
    "seeds.",
    "learning": "Means over seeds; bands run from the lowest to the highest seed. Validation prompts are others than "
    "those of the tables.",
    "fronts": "Where the answers of each method's first run lie (filled, area by share of the answers), and the points "
    "of the exact fronts (rings, area by share of the points).",
    "answers": "What became of all answers, and the mean reward in each objective.",
    "examples": "The first rollout of the first prompts (the first three rollouts where one holds a single answer) of "
    "each method's first run, not chosen by how good they are.",
}
HEADINGS = {
    "curves": "Search curves",
    "differences": "Differences along k",
    "measures": "Key measures",
    "learning": "Learning curves",
    "fronts": "Answers and exact fronts",
    "answers": "Answers",
    "examples": "Examples",
}


def write_markdown(tables: Mapping[str, Any], figures: Mapping[str, Path], path: Path) -> None:
    """The tables and links to the figures beside the file."""
    lines = [f"# {TITLE}", "", *[f"- {line}" for line in facts(tables)], ""]
    head, body, align = means_table(tables)
    lines += ["## Means", "", markdown(head, body, align), ""]
    if tables["differences"]:
        head, body, align = differences_table(tables)
        lines += [f"## Differences from {tables['baseline']}", "", markdown(head, body, align), ""]
    lines += ["## How to read the intervals", "", *[f"- {line}" for line in HOW_TO_READ], ""]
    for name, image in figures.items():
        lines += [f"## {HEADINGS[name]}", "", f"![{HEADINGS[name]}]({image.name})", "", CAPTIONS[name], ""]
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")


def write_html(
    tables: Mapping[str, Any],
    figures: Mapping[str, Path],
    examples: Sequence[tuple[str, Sequence[ExampleSet]]],
    path: Path,
) -> None:
    """The same as one file with its images inside."""
    parts = [html.heading(TITLE, 1), html.listing(facts(tables))]
    for name in ("curves", "differences", "measures"):
        parts += _figure(figures, name)
    parts += [html.heading("Means"), html.table(*means_table(tables))]
    parts.append(html.paragraph("In brackets, the 95 % interval over prompts, then the one over training seeds.", True))
    if tables["differences"]:
        parts += [html.heading(f"Differences from {tables['baseline']}"), html.table(*differences_table(tables))]
    parts += [html.heading("How to read the intervals"), html.listing(HOW_TO_READ)]
    for name in ("learning", "fronts", "answers", "examples"):
        parts += _figure(figures, name)
    if examples and "examples" not in figures:
        parts += [html.heading(HEADINGS["examples"]), html.paragraph(CAPTIONS["examples"], True)]
        parts += _texts(examples, tables["objectives"])
    parts += [html.heading("Pools"), html.table(["pool", "holds"], _pools(tables), "ll")]
    path.write_text(html.page(TITLE, parts), encoding="utf-8", errors="replace")


def facts(tables: Mapping[str, Any]) -> list[str]:
    """What is compared, in sentences."""
    methods = [
        f"{row['method']} ({row['runs']} seed{'s' * (row['runs'] != 1)})" if row["runs"] else row["method"]
        for row in tables["methods"]
    ]
    found = [f"{', '.join(methods)}; {tables['prompts']} prompts, up to {tables['k']} answers to each."]
    if tables["optimum"] is not None:
        found.append(f"The optimum of the exact fronts is {tables['optimum']:.3f} on average.")
    if tables["passes"]:
        found.append(f"An answer passes with {tables['passes']}.")
    return [*found, *tables["notes"]]


def means_table(tables: Mapping[str, Any]) -> tuple[list[str], list[list[str]], str]:
    """Head, body and alignment: a row for each measure, a column for each method."""
    labels = [row["method"] for row in tables["methods"]]
    cells: dict[str, dict[str, str]] = {}
    arrows = {}
    for row in tables["measures"]:
        arrows[row["measure"]] = ARROWS[row["better"]]
        cells.setdefault(row["measure"], {})[row["method"]] = f"{number(row['mean'])} {_intervals(row, False)}"
    body = [[name + arrows[name], *[found[label] for label in labels]] for name, found in cells.items()]
    return ["measure", *labels], body, "l" + "r" * len(labels)


def differences_table(tables: Mapping[str, Any]) -> tuple[list[str], list[list[str]], str]:
    """Head, body and alignment: a row for each measure and method."""
    body = [
        [
            row["measure"] + ARROWS[row["better"]],
            row["method"],
            number(row["mean"], signed=True),
            _interval(row["over_prompts"], True),
            _interval(row["over_seeds"], True),
        ]
        for row in tables["differences"]
    ]
    head = ["measure", "method", "difference", "95 % interval over prompts", "95 % interval over seeds"]
    return head, body, "llrrr"


def _intervals(row: Mapping[str, Any], signed: bool) -> str:
    seeds = "" if row["over_seeds"] is None else f" {_interval(row['over_seeds'], signed)}"
    return _interval(row["over_prompts"], signed) + seeds


def _interval(bounds: Sequence[float] | None, signed: bool) -> str:
    return "one seed" if bounds is None else f"[{number(bounds[0], signed)}, {number(bounds[1], signed)}]"


def _figure(figures: Mapping[str, Path], name: str) -> list[str]:
    if name not in figures:
        return []
    return [html.heading(HEADINGS[name]), html.figure(figures[name], CAPTIONS[name], HEADINGS[name])]


def _texts(examples: Sequence[tuple[str, Sequence[ExampleSet]]], objectives: Sequence[str]) -> list[str]:
    from vpo_agent.report.examples import ANSWER_CHARS, PROMPT_CHARS
    from vpo_envs.command.show import cut

    parts = []
    for place, first in enumerate(examples[0][1]):
        parts += [html.heading(f"Prompt {first.index}", 3), html.text_block(cut(first.prompt, PROMPT_CHARS))]
        for label, sets in examples:
            one = sets[place]
            for answer, status, vector in zip(one.answers, one.status, one.vectors, strict=True):
                rewards = ", ".join(f"{name} {value:.2f}" for name, value in zip(objectives, vector, strict=True))
                parts.append(html.paragraph(f"{label}: {status.name.lower().replace('_', ' ')}; {rewards}"))
                if answer is not None:
                    parts.append(html.text_block(cut(answer.strip(), ANSWER_CHARS)))
    return parts


def _pools(tables: Mapping[str, Any]) -> list[list[str]]:
    return [[row["path"], row["holds"]] for row in tables["pools"]]
