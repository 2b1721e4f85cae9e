"""What a command says when it is stopped: how to go on. It loads no torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vpo_envs.common.trust import PROGRAMS
from vpo_envs.registration import arguments_to_trust, env_type, registering_module

if TYPE_CHECKING:
    from vpo_agent.config import TrainConfig


def vpo_command(*words: str) -> str:
    """Return a command of ``vpo`` as it can be pasted here, where its environment may not be active."""
    beside = Path(sys.executable).with_name("vpo")
    if shutil.which("vpo") == str(beside):
        program = ["vpo"]
    elif beside.is_file():
        inside = beside.is_relative_to(Path.cwd())
        program = [os.path.relpath(beside) if inside else str(beside)]
    else:
        program = [sys.executable, "-m", "vpo_agent.command"]
    return shlex.join([*program, *words])


def resume_options(config: TrainConfig, name: str) -> list[str]:
    """Return the options of ``vpo train`` that continue the run of this name."""
    from vpo_agent.config import DEFAULT_RUNS_DIR  # slow to import

    folder = [] if config.runs_dir == DEFAULT_RUNS_DIR else ["--runs-dir", str(config.runs_dir)]
    return ["--resume", "--name", name, *folder, *saved_run_options(config)]


def saved_run_options(config: TrainConfig, *, programs: bool = False) -> list[str]:
    """Return the options with which a command may use a saved run of these settings: ``--import`` and ``--trust``.

    With ``programs``, programs that its answers hold are trusted too.
    """
    module, _, env_id = config.env.rpartition(":")
    modules = dict.fromkeys([*config.imports, *([module] if module else [])])
    if not modules and (registering := registering_module(env_id)):
        modules = {registering: None}
    trusted = [*arguments_to_trust(env_id, config.env_kwargs)]
    if programs and getattr(env_type(env_id), "runs_programs", False):
        trusted.append(PROGRAMS)
    imports = [word for name in modules for word in ("--import", name)]
    return [*imports, *(["--trust", ",".join(trusted)] if trusted else [])]


@contextlib.contextmanager
def when_stopped(advice: str) -> Iterator[None]:
    """Give a ``KeyboardInterrupt`` of the block this message, unless it has one."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args or (advice,)) from None
