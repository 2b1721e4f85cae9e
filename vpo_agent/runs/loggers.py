"""Where the rows of a run are shown while it trains: TensorBoard or Weights & Biases, chosen by ``--log``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from vpo_agent.config import Log
from vpo_envs.common.libraries import check_package


class Logger(Protocol):
    """Shows the numbers of each row."""

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Show the finite numbers of a row, such as those of kind "train" after a step."""

    def close(self) -> None:
        """Write what is left."""


class NoLogger:
    """Shows nothing."""

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`Logger`."""

    def close(self) -> None:
        """See :class:`Logger`."""


class TensorBoardLogger:
    """Writes events that TensorBoard reads; events after ``step`` from before a resume are hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # The rows of a run that starts again from step 0 are all replaced.
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else 0)

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`Logger`."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """See :class:`Logger`."""
        self._writer.close()


class WandbLogger:
    """Sends rows to Weights & Biases, or keeps them in the run folder where ``WANDB_MODE=offline`` says so.

    The run there has the name of the run folder, and a resumed run goes on in it. The project is "vpo-gym" unless
    ``WANDB_PROJECT`` names another.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        check_package("wandb", "wandb", "--log wandb")
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "vpo-gym"),
            name=folder.name,
            id=folder.name,
            dir=str(folder),
            config=dict(settings),
            resume="allow",
        )

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`Logger`."""
        # A step of its own would refuse the rows that a resumed run writes again.
        self._run.log({**{f"{kind}/{name}": value for name, value in values.items()}, "step": step})

    def close(self) -> None:
        """See :class:`Logger`."""
        self._run.finish()


def open_logger(log: Log, folder: Path, settings: Mapping[str, object], step: int) -> Logger:
    """Return the logger of a run in ``folder`` with these settings, after ``step`` steps.

    Raises:
        ValueError: ``wandb`` is not installed.
    """
    if log == "tensorboard":
        return TensorBoardLogger(folder / "tensorboard", step)
    if log == "wandb":
        return WandbLogger(folder, settings)
    return NoLogger()
