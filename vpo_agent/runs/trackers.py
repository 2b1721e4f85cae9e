"""Logging to Weights & Biases, which is imported only for runs that ask for it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vpo_agent.config import TrainConfig
from vpo_agent.runs.checkpoints import write_text_atomically


class Tracker:
    """A run at Weights & Biases, which receives the rows of a run.

    The id of the run there is stored in the run folder, so that a resumed run continues in the same place.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        import wandb

        known = folder / "tracker.json"
        if not known.is_file():
            write_text_atomically(known, json.dumps({"id": secrets.token_hex(4)}) + "\n")
        # WANDB_MODE=offline keeps the run in its folder.
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "vpo-gym"),
            name=folder.name,
            dir=str(folder),
            **json.loads(known.read_text(encoding="utf-8")),
            config=json.loads(config.model_dump_json(exclude={"runs_dir"})),
            resume="allow",
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add the values of a step, by names such as ``train/loss``."""
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """End the run; ``failed`` if an error ended it."""
        self._run.finish(exit_code=int(failed))
