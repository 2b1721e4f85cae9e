"""Write the pages in docs/explore/ and the picture of the first one: `python docs/site/explorers.py runs/conflict`.

The folder holds the runs of `vpo study studies/conflict.toml`. A page shows the better base at utility@3. The picture
needs Chromium (`make browser`); without it the former one stays.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from template import DOCS

from vpo_agent.explore.page import better_base, explore_runs

sys.path.insert(0, str(DOCS.parent / "tests"))

from browser import DRIVER, chromium

TASKS = ("maze", "tools")
PICTURE = DOCS / "images" / "explore.png"
VIEW = (1366, 960)
TYPICAL = """
const policies = everySet().map((sets) => sets.filter((set) => !set.front));
const winning = (set) => set.shares.filter((share) => share > 0).length / 10;
const rows = policies.map((sets) => sets.flatMap((set) => [set.mean, winning(set)]));
const means = rows[0].map((_, i) => average(rows.map((row) => row[i])));
const distances = rows.map((row) => row.reduce((sum, value, i) => sum + (value - means[i]) ** 2, 0));
return distances.indexOf(Math.min(...distances)) + 1;
"""
"""Finds the number of the task whose scores, and numbers of answers that win, are nearest to the means of all tasks."""


def main(study: Path) -> None:
    """Write the pages, each with a run of VPO, a run of GRPO, and the base of both."""
    for task in TASKS:
        vpo, grpo = (study / task / f"{method}-seed0" for method in ("vpo", "grpo"))
        base, label = better_base([run / "pool_before.npz" for run in (vpo, grpo)])
        shown = explore_runs([vpo, grpo, base], ["VPO", "GRPO", label], DOCS / "explore" / f"{task}.html")
        print(f"{task}: {shown.tasks} tasks{shown.lacks}, with the {label}")
    if DRIVER is None:
        print(f"{PICTURE} stays as it is: Chromium is not installed (make browser)")
        return
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
        browser.resize(*VIEW)
        browser.open(DOCS / "explore" / f"{TASKS[0]}.html")
        typical = browser.run(TYPICAL)
        browser.open(DOCS / "explore" / f"{TASKS[0]}.html", f"#i={typical}")
        browser.picture(PICTURE)
        print(f"the picture shows task {typical}, the one nearest to the mean; so should docs/site/landing.md")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/site/explorers.py runs/conflict")
    main(Path(sys.argv[1]))
