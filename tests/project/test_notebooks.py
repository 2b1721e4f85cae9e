"""The notebooks of the documentation run in a kernel of their own, and hold the output of such a run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from paths import ROOT
from processes import OFFLINE, PATIENCE, forked_python

from vpo_agent.measure.notices import LITTLE, MUCH

nbclient = pytest.importorskip("nbclient", reason="needs the docs extra, which the dev extra installs")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cells: list[nbformat.NotebookNode]) -> list[str]:
    """What each cell prints up to the first that needs a language model, whose numbers differ between processors."""
    first = next(place for place, cell in enumerate(cells) if "vpo_agent" in cell.source)
    return ["".join(one.text for one in cell.outputs if one.get("name") == "stdout") for cell in cells[:first]]


def kinds(cell: nbformat.NotebookNode) -> tuple[str, ...]:
    """The kinds of output of a cell, without messages such as progress bars."""
    return tuple(sorted({one.output_type for one in cell.outputs if one.get("name") != "stderr"}))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_holds(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**OFFLINE, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    # The kernel is forked with matplotlib loaded, so it is told to show figures.
    monkeypatch.setattr(sys, "executable", forked_python())
    held, run = (nbformat.read(notebook, as_version=4) for _ in range(2))
    for cell in code(run):  # Training takes fewer steps.
        cell.source = cell.source.replace('"steps": 20', '"steps": 2').replace(
            '"eval_prompts": 30', '"eval_prompts": 3'
        )
    where = {"metadata": {"path": str(tmp_path)}}
    inline = ["--matplotlib=inline"]
    nbclient.NotebookClient(
        run, timeout=PATIENCE, kernel_name="python3", resources=where, extra_arguments=inline
    ).execute()
    assert list(map(kinds, code(run))) == list(map(kinds, code(held)))
    assert printed(code(run)) == printed(code(held))


def test_the_quickstart_holds_the_advice_that_training_prints_today() -> None:
    """The maze's base is near the exact front, so that no training for a search is advised."""
    text = (ROOT / "docs" / "notebooks" / "quickstart.ipynb").read_text(encoding="utf-8")
    (utility, front) = re.findall(r"together score ([\d.]+), and the exact fronts allow ([\d.]+), so a search", text)[0]
    assert 1 - MUCH < float(utility) / float(front) < 1 - LITTLE
    assert "a search over 30 answers has little to gain from training" in text
    assert "can make a search better than the model" not in text
