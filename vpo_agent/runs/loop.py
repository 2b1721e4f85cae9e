"""The loop of every training: steps, rows and checkpoints, until the last step or until it is stopped."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a training as Ctrl-C does."""


class Training(ABC):
    """A training that is taken step by step; a subclass says what a step is."""

    def __init__(self, steps: int, step: int = 0) -> None:
        self.steps, self.step = steps, step
        self._saved_step = step
        self._held = self._waiting = False

    @abstractmethod
    def train_step(self) -> Any:
        """Take one step and return its row; call ``hold`` before anything changes that cannot be taken back."""

    @abstractmethod
    def record(self, row: Any) -> bool:
        """Write the row of a step, and what else falls due; return whether a checkpoint does."""

    @abstractmethod
    def save(self) -> None:
        """Save a checkpoint of the steps taken."""

    def hold(self) -> None:
        """Delay Ctrl-C until the rows of this step are written and its checkpoint is saved."""
        self._held = True

    def take_steps(self) -> None:
        """Take the steps that are left.

        On Ctrl-C or SIGTERM it saves a checkpoint of the last whole step and raises ``KeyboardInterrupt``: at once
        before :meth:`hold`, otherwise after the rows of the step. A second signal stops at once and saves nothing. A
        ValueError, such as of a prompt that is too long, ends it in the same way.
        """
        with self._signals_handled():
            try:
                while self.step < self.steps:
                    # After the rows of the step, so that a run resumed from the checkpoint has them all.
                    if self.record(self.train_step()):
                        self._save()
                    self._held = False
                    if self._waiting:
                        raise KeyboardInterrupt
            except (KeyboardInterrupt, ValueError):
                if not self._held and self.step > self._saved_step:
                    self._save()
                raise

    def _save(self) -> None:
        self.save()
        self._saved_step = self.step

    @contextlib.contextmanager
    def _signals_handled(self) -> Iterator[None]:
        """Delay Ctrl-C and SIGTERM while a step is held; a second one interrupts at once.

        It works in the main thread, where Python handles signals. A process that ignores a signal, such as one that a
        shell started in the background, keeps ignoring it.
        """
        self._held = self._waiting = False
        former = {
            number: handler for number in STOPS if (handler := signal.getsignal(number)) not in (None, signal.SIG_IGN)
        }
        if threading.current_thread() is not threading.main_thread():
            former.clear()
        try:
            for number in former:
                signal.signal(number, self._interrupt)
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._held or self._waiting:
            raise KeyboardInterrupt
        self._waiting = True
        # Standard error refuses a write from a handler that interrupts another write.
        with contextlib.suppress(RuntimeError):
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)


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
