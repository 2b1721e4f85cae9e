"""Logging to Weights & Biases or trackio, which are imported only for runs that ask for them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from vpo_agent.config import TrainConfig
from vpo_agent.libraries import check_libraries
from vpo_agent.runs.checkpoints import write_text_atomically

TRACKERS = ("wandb", "trackio")
PROJECT = "vpo-gym"
"""Project of the runs; for Weights & Biases the environment variable ``WANDB_PROJECT`` may name another."""


class Tracker(Protocol):
    """Receives the rows of a run."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add the values of a step, by names such as ``train/loss``."""

    def close(self, *, failed: bool) -> None:
        """End the run; ``failed`` if an error ended it."""


def check_tracker(name: Literal["none", "wandb", "trackio"]) -> None:
    """Check that a tracker is installed in a supported version.

    Raises:
        ValueError: It is not.
    """
    if name == "none":
        return
    if find_spec(name) is None:
        raise ValueError(f"tracker={name} needs the package {name}: pip install 'vpo-gym[{name}]', or leave it out")
    check_libraries(name)


def open_tracker(config: TrainConfig, folder: Path) -> Tracker | None:
    """Start or continue a run at the tracker of the settings; ``None`` if they name none.

    The run's id is stored in the run folder, so that a resumed run continues in the same place.
    """
    if config.tracker == "none":
        return None
    known = folder / "tracker.json"
    if not known.is_file():
        write_text_atomically(known, json.dumps({"id": secrets.token_hex(4)}) + "\n")
    run_id: str = json.loads(known.read_text(encoding="utf-8"))["id"]
    settings = json.loads(config.model_dump_json(exclude={"runs_dir"}))
    return (_Wandb if config.tracker == "wandb" else _Trackio)(folder, run_id, settings)


class _Wandb:
    """A run at Weights & Biases; ``WANDB_MODE=offline`` keeps it in the run folder."""

    def __init__(self, folder: Path, run_id: str, settings: dict[str, Any]) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            project=project, name=folder.name, id=run_id, dir=str(folder), config=settings, resume="allow"
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _Trackio:
    """A run in trackio's local store, which tells runs apart by name, hence the id in the name."""

    def __init__(self, folder: Path, run_id: str, settings: dict[str, Any]) -> None:
        import trackio

        self._run = trackio.init(project=PROJECT, name=f"{folder.name}-{run_id}", config=settings, resume="allow")

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        self._run.finish()
