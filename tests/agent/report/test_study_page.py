"""The page of a study of several tasks: the cells are those of the comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vpo_agent.measure.measures import name_at
from vpo_agent.report.study import study_table, write_study


def tables(k: int = 12, **means: float) -> dict[str, Any]:
    """What a comparison of methods returns, as far as a study reads it."""
    names = [name_at(kind, one) for kind in ("utility", "best") for one in (1, 3, k)]
    rows = [
        {"measure": name, "method": method, "mean": mean, "low": mean - 0.01, "high": mean + 0.02, "each_seed": [mean]}
        for name in names
        for method, mean in means.items()
    ]
    first = next(iter(means))
    less = [{**row, "mean": row["mean"] - means[first], "p": 0.03} for row in rows if row["method"] != first]
    methods = [{"method": method, "runs": 2} for method in means]
    about: dict[str, Any] = {"verdict": [f"{first} leads."], "prompts": "200 prompts, 15 distinct tasks", "k": k}
    about |= {"interval": "95 % interval over prompts and training seeds"}
    return {
        **about,
        "k": k,
        "front_utility": 0.6,
        "baseline": first,
        "methods": methods,
        "measures": rows,
        "differences": less,
    }


def test_every_method_has_a_row_and_every_task_a_column(tmp_path: Path) -> None:
    tasks = {"maze": tables(grpo=0.4, vpo=0.5), "code": tables(k=30, grpo=0.3)}
    head, body, align = study_table(tasks, "utility@3 drawn singly")
    assert head == ["method", "maze", "code"]
    assert align == "lrr"
    assert body == [
        ["grpo", "0.400 [0.390, 0.420]", "0.300 [0.290, 0.320]"],
        ["vpo", "0.500 [0.490, 0.520]", ""],
        ["vpo − baseline", "**+0.100 [+0.490, +0.520]**", ""],
    ]
    # 0.03 of two comparisons is 0.06 for the one with the smaller level, unless the other is as small.
    more = {**tasks, "code": tables(k=30, grpo=0.3, vpo=0.3)}
    for row in more["code"]["differences"]:
        row["p"] = 0.5
    assert study_table(more, "utility@3 drawn singly")[1][-1] == [
        "vpo − baseline",
        "+0.100 [+0.490, +0.520]",
        "+0.000 [+0.290, +0.320]",
    ]
    printed = write_study(tasks, tmp_path)
    page = (tmp_path / "study.md").read_text(encoding="utf-8")
    assert "| vpo − baseline |" in printed
    assert printed.splitlines()[-1] in page
    verdicts = ["\n".join(f"{task}: {headline}" for headline in one["verdict"]) for task, one in tasks.items()]
    assert printed.split("\n\n")[: len(verdicts)] == verdicts
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## utility@3 drawn singly ↑",
        "## utility@12 drawn singly ↑",
        "## best@3 drawn singly ↑",
        "## best@12 drawn singly ↑",
        "## What was compared",
    ]
    assert "- maze: grpo leads." in page
    assert (
        "maze: 200 prompts, 15 distinct tasks, seeds 2, baseline grpo, 95 % interval over prompts and training seeds; "
        "utility of the exact fronts 0.600."
    ) in page
    assert "](study.png)" in page
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_of_pools_with_two_answers_has_its_page(tmp_path: Path) -> None:
    write_study({"maze": tables(k=1, vpo=0.5)}, tmp_path)
    assert "## utility@1 ↑" in (tmp_path / "study.md").read_text(encoding="utf-8")
