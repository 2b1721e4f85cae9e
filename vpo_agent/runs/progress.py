"""Progress bar of a training run, with a line for each step that needs attention."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from vpo_envs.wording import counted


def progress_bar(label: str, steps: int, done: int) -> Any:
    """Return a progress bar on standard error for ``steps``, of which ``done`` were taken before; a context manager."""
    interval = 0.1 if sys.stderr.isatty() else 30
    return tqdm(total=steps, initial=done, unit="step", desc=label, dynamic_ncols=True, mininterval=interval)


def show_step(bar: Any, row: Mapping[str, Any], *, bad: bool, failure: str = "") -> None:
    """Advance by the step of ``row``.

    Args:
        bar: The progress bar.
        row: The train row of the step.
        bad: Whether the step was skipped because its loss or gradient was not finite.
        failure: Why the scorer failed, if it did and that is to be shown.
    """
    skipped = f", {row['skipped_steps']} skipped" if row["skipped_steps"] else ""
    bar.set_postfix_str(f"set score {row['set_score']:.3f}, {row['tokens_per_second']:,.0f} tokens/s{skipped}")
    bar.update()
    if row["invalid_rollouts"]:
        left_out = counted(row["invalid_rollouts"], "rollout")
        bar.write(f"step {row['step']}: {left_out} left out because the scorer failed{failure and f': {failure}'}")
    if bad:
        bar.write(f"step {row['step']}: skipped because its loss or gradient is not finite")
