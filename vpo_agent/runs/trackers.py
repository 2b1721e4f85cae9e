"""Logging to Weights & Biases or trackio, which are imported only for runs that ask for them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vpo_agent.config import TrainConfig
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_envs.libraries import check_package

PROJECT = "vpo-gym"
"""Project of the runs; for Weights & Biases the environment variable ``WANDB_PROJECT`` may name another."""


def check_tracker(name: Literal["none", "wandb", "trackio"]) -> None:
    """Raise ValueError unless a tracker is installed in a supported version."""
    if name != "none":
        check_package(name, name, f"tracker={name}")


def open_tracker(config: TrainConfig, folder: Path) -> Tracker | None:
    """Start or continue a run at the tracker of the settings; ``None`` if they name none."""
    return None if config.tracker == "none" else Tracker(config, folder)


class Tracker:
    """A run at Weights & Biases or trackio, which receives the rows of a run.

    The tracker's id of the run is stored in the run folder, so that a resumed run continues in the same place.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        known = folder / "tracker.json"
        if not known.is_file():
            write_text_atomically(known, json.dumps({"id": secrets.token_hex(4)}) + "\n")
        run_id: str = json.loads(known.read_text(encoding="utf-8"))["id"]
        about = {"config": json.loads(config.model_dump_json(exclude={"runs_dir"})), "resume": "allow"}
        self._run: Any
        self._takes_exit_code = config.tracker == "wandb"
        if config.tracker == "wandb":
            import wandb

            # WANDB_MODE=offline keeps the run in its folder.
            project = os.environ.get("WANDB_PROJECT", PROJECT)
            self._run = wandb.init(project=project, name=folder.name, id=run_id, dir=str(folder), **about)
        else:
            import trackio

            # trackio identifies runs by name, so the name includes the id.
            self._run = trackio.init(project=PROJECT, name=f"{folder.name}-{run_id}", **about)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add the values of a step, by names such as ``train/loss``."""
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """End the run; ``failed`` if an error ended it."""
        self._run.finish(**({"exit_code": int(failed)} if self._takes_exit_code else {}))
