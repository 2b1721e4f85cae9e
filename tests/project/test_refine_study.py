"""``studies/refine.py``: it trains, searches and counts, in its smallest form."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT
from processes import run_python


@pytest.mark.slow
def test_the_study_of_feedback_runs(tmp_path: Path) -> None:
    script, options = str(ROOT / "studies" / "refine.py"), ["--out", str(tmp_path), "--seeds", "0"]
    small = ["--model", "tiny-programs", "--warm-steps", "1", "--training-tokens", "1", "--tasks", "3"]
    done = run_python([script, *options, "--arms", "rejection", *small], timeout=3600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rejection-told-0: 1 steps, " in done.stdout
    assert "| arm | best-of-n | evolve | evolve --feedback |" in done.stdout
    assert "evolve --feedback minus " in done.stdout.splitlines()[-1]
    assert {folder.name for folder in tmp_path.iterdir()} == {
        f"{arm}-{told}-0" for arm in ("base", "rejection") for told in ("told", "untold")
    }
