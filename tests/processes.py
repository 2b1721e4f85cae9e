"""What processes started by the tests share."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """Called in a new process, have Ctrl-C reach it, also where the tests run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
