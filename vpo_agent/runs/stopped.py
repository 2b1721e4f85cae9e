"""The command that goes on after Ctrl-C, as it can be pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
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
