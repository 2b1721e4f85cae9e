"""Delays Ctrl-C until a training step is complete."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """A context manager that delays Ctrl-C while :attr:`held`; a second Ctrl-C interrupts at once.

    It works in the main thread, where Python handles signals. A process that ignores SIGINT, such as one that a shell
    started in the background, keeps ignoring it.
    """

    def __init__(self) -> None:
        self.held = False
        """Whether an interrupt waits for :meth:`release`."""
        self._waiting = False
        self._former: Any = None

    def release(self) -> None:
        """Stop delaying interrupts.

        Raises:
            KeyboardInterrupt: One was waiting.
        """
        self.held = False
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        """Replace the signal handler."""
        self.held = self._waiting = False
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(former):
            self._former = former
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the signal handler."""
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)
            self._former = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.held or self._waiting:
            self._former(number, frame)
            return
        self._waiting = True
        # Standard error refuses a write from a handler that interrupts another write.
        with contextlib.suppress(RuntimeError):
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)
