"""Delays Ctrl-C until a training step is complete."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupts:
    """Delays Ctrl-C in the block of :meth:`handled` while :attr:`held`; a second Ctrl-C interrupts at once.

    It works in the main thread, where Python handles signals. A process that ignores SIGINT, such as one that a shell
    started in the background, keeps ignoring it.
    """

    def __init__(self) -> None:
        self.held = False
        """Whether an interrupt waits for :meth:`release`."""
        self._waiting = False
        self._former: Any = None

    def release(self) -> None:
        """Stop delaying interrupts, and raise the one that was waiting."""
        self.held = False
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGINT in a block of code."""
        self.held = self._waiting = False
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(former):
            yield
            return
        self._former = former
        signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.held or self._waiting:
            self._former(number, frame)
            return
        self._waiting = True
        # Standard error refuses a write from a handler that interrupts another write.
        with contextlib.suppress(RuntimeError):
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)
