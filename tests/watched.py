"""What a piece of code opens, starts and connects to, as Python's own audit events tell."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STARTS = {"subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn", "os.system", "pty.spawn"}
CONNECTS = {"socket.connect", "socket.getaddrinfo", "socket.sendto"}

_watches: list[Watch] = []


class Watch:
    """The files that were opened, and the other events, in order."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.started: list[str] = []
        self.connected: list[str] = []

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event."""
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self.opened.append(os.fsdecode(arguments[0]))
        elif event in STARTS:
            self.started.append(f"{event} {arguments}")
        elif event in CONNECTS:
            self.connected.append(f"{event} {arguments}")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watches:
        watch.note(event, arguments)


@contextmanager
def watched() -> Iterator[Watch]:
    """Yield what notes the events of the block; an audit hook stays for the rest of the process, but does nothing."""
    if _hook not in _installed:
        sys.addaudithook(_hook)
        _installed.append(_hook)
    watch = Watch()
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


_installed: list[Any] = []
