"""The notebooks of the documentation run in a kernel of their own, and hold the output of such a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT
from processes import OFFLINE, PATIENCE

nbclient = pytest.importorskip("nbclient", reason="needs the docs extra, which the dev extra installs")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def outputs(notebook: Path) -> list[tuple[str, ...]]:
    """The kinds of output of each code cell, without messages such as progress bars."""
    cells = nbformat.read(notebook, as_version=4).cells
    return [kinds(cell) for cell in cells if cell.cell_type == "code"]


def kinds(cell: nbformat.NotebookNode) -> tuple[str, ...]:
    return tuple(sorted({one.output_type for one in cell.outputs if one.get("name") != "stderr"}))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_holds(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**OFFLINE, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own, which shows figures
    run = nbformat.read(notebook, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(run, timeout=PATIENCE, kernel_name="python3", resources=where).execute()
    assert [kinds(cell) for cell in run.cells if cell.cell_type == "code"] == outputs(notebook)
