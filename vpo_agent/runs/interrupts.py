"""Ctrl-C, held back while a training step is not whole."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """As a context manager, has Ctrl-C wait while :attr:`held`; a second one interrupts at once.

    Only in the main thread, the one that Python lets handle signals, and only where SIGINT has a handler: a process
    that ignores it, as one that a shell started in the background, goes on to do so.
    """

    def __init__(self) -> None:
        self.held = False
        """Whether an interrupt is to wait for :meth:`release`."""
        self._waiting = False
        self._former: Any = None

    def release(self) -> None:
        """Hold interrupts no longer.

        Raises:
            KeyboardInterrupt: One was waiting.
        """
        self.held = False
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        """Take the place of the handler."""
        self.held = self._waiting = False
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(former):
            self._former = former
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the handler its place back."""
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)
            self._former = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.held or self._waiting:
            self._former(number, frame)
            return
        self._waiting = True
        # A handler may come upon the stream in the middle of a write, which it then refuses.
        with contextlib.suppress(RuntimeError):
            print("\nstopping after this step; Ctrl-C again stops at once", file=sys.stderr)
