"""What a command says when it is stopped: how to go on. It loads no torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path


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


@contextlib.contextmanager
def when_stopped(advice: str) -> Iterator[None]:
    """Give a ``KeyboardInterrupt`` of the block this message, unless it has one."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args or (advice,)) from None
