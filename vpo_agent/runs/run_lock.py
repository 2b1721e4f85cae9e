"""One writer for a run: a lock on its folder that ends with the process, however that ends."""

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
    """Holds the lock of a folder until the last reference to it is gone, or the process.

    The lock is one of the whole process: asked for twice, it is the same. The system frees it when the process ends,
    also by SIGKILL, so a lock file that is left lying locks nothing.
    """

    _held: ClassVar[weakref.WeakValueDictionary[Path, RunLock]] = weakref.WeakValueDictionary()

    def __init__(self, handle: int) -> None:
        """Take over an open file that is locked."""
        self._handle = handle
        self._close = weakref.finalize(self, os.close, handle)

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Lock ``folder``, which is there.

        Raises:
            ValueError: Another process holds the lock.
            OSError: The lock file cannot be written.
        """
        folder = folder.resolve()
        held = cls._held.get(folder)
        if held is not None:
            return held
        # Opened for writing, as network file systems ask of an exclusive lock.
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
            print(f"{folder} cannot be locked ({error.strerror}): start no second process on it", file=sys.stderr)
        os.ftruncate(handle, 0)
        # A full disk keeps no one from going on.
        with contextlib.suppress(OSError):
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        lock = cls._held[folder] = cls(handle)
        return lock

    @classmethod
    def _forget_in_child(cls) -> None:
        """A forked child must not hold the lock on when its parent is killed."""
        for lock in list(cls._held.values()):
            lock._close()
        cls._held.clear()


os.register_at_fork(after_in_child=RunLock._forget_in_child)
