"""A lock on a run folder, so that only one process writes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import weakref
from pathlib import Path
from typing import ClassVar

LOCK_FILE = ".lock"


class RunLock:
    """Holds the lock of a folder until the last reference to it is gone or the process ends.

    A process has one lock per folder, however often it takes it. The system frees the lock when the process ends, even
    by SIGKILL, so a leftover lock file locks nothing.
    """

    _held: ClassVar[weakref.WeakValueDictionary[Path, RunLock]] = weakref.WeakValueDictionary()

    def __init__(self, folder: Path) -> None:
        """Lock a folder; errors as for :meth:`take`."""
        self._folder = folder
        self._own(_locked(folder))

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Lock an existing folder; ValueError if another process has locked it, OSError if it cannot be written."""
        folder = folder.resolve()
        held = cls._held.get(folder)
        if held is not None:
            held.renew()
            return held
        lock = cls._held[folder] = cls(folder)
        return lock

    def renew(self) -> None:
        """Lock the folder again if somebody has removed its lock file; errors as for :meth:`take`."""
        try:
            stands = os.path.samestat(os.stat(self._folder / LOCK_FILE), os.fstat(self._handle))
        except FileNotFoundError:
            stands = False
        if not stands:
            handle = _locked(self._folder)
            self._close()
            self._own(handle)

    def _own(self, handle: int) -> None:
        self._handle = handle
        self._close = weakref.finalize(self, os.close, handle)

    @classmethod
    def _forget_in_child(cls) -> None:
        """Release the locks in a forked child, which would otherwise keep them after its parent is killed."""
        for lock in list(cls._held.values()):
            lock._close()
        cls._held.clear()


def _locked(folder: Path) -> int:
    """Return the open lock file of a folder, locked and with the name of this process in it."""
    # Network file systems require the file of an exclusive lock to be open for writing.
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 200).decode(errors="replace").strip()
        os.close(handle)
        raise ValueError(
            f"{holder or 'another process'} is writing the run in {str(folder)!r}: wait until it has ended, "
            "or choose another --name"
        ) from None
    except OSError as error:
        print(f"{folder} cannot be locked ({error.strerror}): do not start a second process on it", file=sys.stderr)
    os.ftruncate(handle, 0)
    # The text is only for messages, so a full disk does not matter.
    with contextlib.suppress(OSError):
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return handle


os.register_at_fork(after_in_child=RunLock._forget_in_child)
