"""The acceptance of a GPU: its reduced form runs on a CPU, and a verdict that fails is the exit status."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from paths import ROOT
from processes import forked_python, run_python

sys.path.append(str(ROOT / "benchmarks"))

import gpu_acceptance as acceptance
from gpu_acceptance import FAILED, MISSING, NEEDS_GPU, PASSED, Row


@pytest.mark.slow
def test_the_reduced_form_runs_on_a_cpu_and_names_what_needs_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "table.md"
    script = str(ROOT / "benchmarks" / "gpu_acceptance.py")
    # Only the peak of memory needs processes that have loaded everything anew.
    forking = (
        "import multiprocessing, runpy, sys\n"
        "forked = multiprocessing.get_context('fork')\n"
        "multiprocessing.get_context = lambda how: forked\n"
        f"sys.executable = {forked_python()!r}\n"
        f"runpy.run_path({script!r}, {{}}, '__main__')"
    )
    done = run_python(["-c", forking, "--reduced", "--out", str(out)], timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert re.match(r".*CPU.*, torch \S+, transformers \S+, \d{4}-\d\d-\d\d:\n\n\| check \|", text)
    rows = [Row(*line[2:-2].split(" | ")) for line in text.splitlines()[4:]]
    verdicts = {row.what: row.verdict for row in rows}
    assert set(verdicts.values()) <= {PASSED, NEEDS_GPU, MISSING}
    needs_gpu = {"CUDA tests", "speed, built in", "speed, TRL", "memory, sampling"}
    for what in (*needs_gpu, "learning, tiny-maze in bfloat16, 1 steps"):
        assert verdicts[what] == NEEDS_GPU, what
    assert verdicts["bf16 gap of log-probabilities, native"] == PASSED


def test_a_check_that_ends_early_fails_in_a_row_of_its_own() -> None:
    def check() -> Iterator[Row]:
        yield Row("first", "1", "1", PASSED)
        raise RuntimeError("no kernel | for this shape\nand more")

    rows = acceptance.rows_of(check, "second")
    assert [(row.what, row.verdict) for row in rows] == [("first", PASSED), ("second", FAILED)]
    assert acceptance.table(rows, "a card").splitlines()[-1] == (
        "| second | RuntimeError: no kernel / for this shape | runs to its end | failed |"
    )
    assert acceptance.status(rows) == 1
    assert acceptance.status([rows[0], Row("third", "", "", NEEDS_GPU)]) == 0


def test_checks_are_not_run_once_the_time_is_up() -> None:
    def passes() -> Iterator[Row]:
        yield Row("first", "1", "1", PASSED)

    def never_ends() -> Iterator[Row]:
        yield from passes()
        signal.pause()

    late = acceptance.run_checks({"endless": never_ends, "left": passes, "also left": passes}, seconds=0.2)
    assert [(row.what, row.measured) for row in late] == [
        ("first", "1"),
        ("endless", "TimeoutError: time is up"),
        ("left", "not run: time is up"),
        ("also left", "not run: time is up"),
    ]
    assert acceptance.status(late) == 1
    assert [row.verdict for row in acceptance.run_checks({"a": passes, "b": passes}, seconds=60)] == [PASSED, PASSED]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_names_the_reduced_form(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        acceptance.main([])
    assert ended.value.code == 2
    assert "there is no CUDA device: use a machine with one, or --reduced" in capsys.readouterr().err
