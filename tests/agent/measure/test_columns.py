"""Every column that a run writes is defined, and every definition is of a column that is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import toys
from paths import ROOT

from vpo_agent.command import main
from vpo_agent.config import TrainConfig
from vpo_agent.measure.columns import TIMING_COLUMNS, TRAIN_COLUMNS, WARM_START_COLUMNS
from vpo_agent.runs.rows import read_rows
from vpo_agent.trainer import Trainer

sys.path.insert(0, str(ROOT / "docs" / "site"))

import metrics


def written(file: Path, kind: str) -> set[str]:
    """The columns of the rows of a kind, those of single numbers of answers and of single k under one name."""
    rows = [row for row in read_rows(file) if row["kind"] == kind]
    names = {name.partition("_of_")[0] for row in rows for name in row}
    return {"OBJECTIVE" if name in ("left", "right") else metrics.without_k(name) for name in names}


def test_a_run_writes_the_columns_that_are_defined(
    letters_config: Callable[..., TrainConfig], broken_model: Path
) -> None:
    trainer = Trainer(letters_config(model=str(broken_model), num_answers=[1, 3], eval_every=1))
    trainer.train()
    assert written(trainer.folder.metrics, "train") == set(TRAIN_COLUMNS)
    assert written(trainer.folder.timings, "train") == {"kind", "step", *TIMING_COLUMNS}
    # No letter takes too long.
    assert written(trainer.folder.metrics, "eval") == set(metrics.evaluation_columns()) - {"answers_timed_out"}


def test_a_warm_start_writes_the_columns_that_are_defined(tmp_path: Path) -> None:
    short = ["--positions", "96", "--steps", "1", "--batch", "2", "--eval-prompts", "2", "--eval-answers", "3"]
    assert main(["warm-start", "--env", toys.SHOWN_LETTERS_ID, *short, "--answers", "3", "--out", str(tmp_path)]) == 0
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert {name.replace("(m=3)", "(m=M)") for name in row} == set(WARM_START_COLUMNS)


def test_the_page_of_columns_holds_the_definitions() -> None:
    assert metrics.PAGE.read_text(encoding="utf-8") == metrics.page(), "write it again: python docs/site/metrics.py"
