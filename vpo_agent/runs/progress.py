"""Progress bar of a training run, with a line for each step that needs attention."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tqdm import tqdm


class Progress:
    """A progress bar on standard error, as a context manager.

    Args:
        label: Stands before the bar.
        steps: Steps of the whole run.
        done: Steps taken before this process started.
    """

    def __init__(self, label: str, steps: int, done: int) -> None:
        interval = 0.1 if sys.stderr.isatty() else 30
        self._bar = tqdm(total=steps, initial=done, unit="step", desc=label, dynamic_ncols=True, mininterval=interval)

    def show(self, row: Mapping[str, Any], *, bad: bool) -> None:
        """Advance by one step.

        Args:
            row: The row of the step.
            bad: Whether the step was skipped because its loss or gradient was not finite.
        """
        skipped = f", {row['skipped_steps']} skipped" if row["skipped_steps"] else ""
        self._bar.set_postfix_str(
            f"set score {row['set_score']:.3f}, {row['tokens_per_second']:,.0f} tokens/s{skipped}"
        )
        self._bar.update()
        if row["invalid_rollouts"]:
            self._bar.write(
                f"step {row['step']}: {row['invalid_rollouts']} rollouts left out because their scorer failed"
            )
        if bad:
            self._bar.write(f"step {row['step']}: skipped because its loss or gradient is not finite")

    def __enter__(self) -> Progress:
        """Return the bar, which is drawn from its creation on."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the bar."""
        self._bar.close()
