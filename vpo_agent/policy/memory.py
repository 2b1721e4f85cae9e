"""The memory that this process may still use.

Where the memory of a GPU runs out, PyTorch raises an error, and sampling goes on with fewer responses at a time. On a
CPU there is no such error: Linux promises memory that it does not have, and ends the process that uses it. So sampling
on a CPU compares what it may take with :func:`free_memory` beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

USABLE = 0.9
"""Share of a device's memory that a plan may use; the rest is for kernels, fragments and what formulas leave out."""
ALWAYS_FREE = 2**28
"""Sampling whose cache takes at most this many bytes does not look at the free memory."""
CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows control groups, with which containers and job schedulers limit memory."""
PROCESS = Path("/proc")


def free_memory() -> int | None:
    """Return the bytes that this process may still use, without what can be read again from files; ``None`` if unknown.

    It is the minimum of what the computer has left and what each control group of the process has left.
    """
    return min([*_left_in_computer(), *_left_in_control_groups()], default=None)


def _left_in_computer() -> Iterator[int]:
    with suppress(OSError):
        for line in (PROCESS / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _left_in_control_groups() -> Iterator[int]:
    """Yield the bytes left in each control group of this process that limits memory, and in the groups around it."""
    try:
        lines = (PROCESS / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # The second version of control groups has one tree without a name, the first version a tree for each resource.
        if not controllers:
            root, limit, usage, cached = CONTROL_GROUPS, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, cached = CONTROL_GROUPS / "memory", "total_inactive_file"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # In a container, the path may be that of the host, and the tree begins at the container's own group.
        own = root / path.strip("/")
        for group in (own, *own.parents):
            with suppress(OSError, ValueError):  # Without a limit, the file is missing or says "max".
                left = int((group / limit).read_text()) - int((group / usage).read_text())
                counts = dict(count.split() for count in (group / "memory.stat").read_text().splitlines())
                yield max(0, left + int(counts.get(cached, 0)))
            if group == root:
                break
