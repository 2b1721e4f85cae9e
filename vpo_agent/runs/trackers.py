"""Weights & Biases and trackio, beside TensorBoard and the files of the run: imported only where a run asks for one."""

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
"""Under which runs appear; the environment variable ``WANDB_PROJECT`` names another one for Weights & Biases."""


class Tracker(Protocol):
    """Where rows go beside the run folder."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add the values of a step, by names such as ``train/loss``."""

    def close(self, *, failed: bool) -> None:
        """End the run there; ``failed`` where an error ended it."""


def check_tracker(name: Literal["none", "wandb", "trackio"]) -> None:
    """Check that a tracker is installed, in a version that suits.

    Raises:
        ValueError: It is not.
    """
    if name == "none":
        return
    if find_spec(name) is None:
        raise ValueError(f"tracker={name} needs the package {name}: pip install 'vpo-gym[{name}]', or leave it out")
    check_libraries(name)


def open_tracker(config: TrainConfig, folder: Path) -> Tracker | None:
    """Start or go on with a run at the tracker that the settings name; ``None`` where they name none.

    The run's id is kept in the run folder, so that a resumed run goes on in the same place.
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
    """A run at Weights & Biases; ``WANDB_MODE=offline`` keeps it on this machine, in the run folder."""

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
    """A run in trackio's own store on this machine; it knows runs by name alone, hence the id in it."""

    def __init__(self, folder: Path, run_id: str, settings: dict[str, Any]) -> None:
        import trackio

        self._run = trackio.init(project=PROJECT, name=f"{folder.name}-{run_id}", config=settings, resume="allow")

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        self._run.finish()
