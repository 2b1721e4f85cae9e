"""Find the Python that runs inside the sandbox, and the paths that it needs."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from envs_data.parsing import parse_json


class SandboxUnavailable(RuntimeError):
    """No sandbox could be set up, or the host failed; the message says why."""


class Interpreter(NamedTuple):
    """A Python that can be started inside the sandbox."""

    executable: str
    version: str
    paths: tuple[str, ...]
    """Folders and files that it needs to read."""
    links: tuple[tuple[str, str], ...]
    """Symbolic links of the root folder, such as ``("/lib", "usr/lib")``."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables that it needs to start."""
    hidden: tuple[str, ...] = ()
    """Folders below ``paths`` that are hidden: installed packages, including this project, which holds the expected
    outputs of its problems."""


PACKAGES = Path(__file__).parents[2]
"""Folder that the packages of this project lie in."""

PROBE = (
    "import json, sys, sysconfig; get = sysconfig.get_config_var; "
    "here = [p for p in sys.path if p and 'python3' in p and not p.endswith('.zip')]; "
    "print(json.dumps([sys.version.split()[0], [*here, get('LIBDIR') or '']]))"
)
LEFT_OUT = shutil.ignore_patterns(
    "site-packages", "test", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "__pycache__", "config-*"
)


@functools.cache
def interpreter(as_other_user: bool) -> Interpreter:
    """Return the Python for the sandbox, by default the one running now.

    With ``as_other_user``, an unprivileged user must be able to read it. If it is in a folder that other users cannot
    enter, such as root's home, the system's Python of the same version is used, or else a copy, made once per process.
    """
    named = os.environ.get("VPO_SANDBOX_PYTHON")
    running = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in [named] if named else [running, f"/usr/bin/{minor}", f"/usr/local/bin/{minor}"]:
        python = describe(os.path.realpath(candidate))
        if python is not None and not (as_other_user and not all(map(_open_to_all, python.paths))):
            return python
    if named:
        raise SandboxUnavailable(f"VPO_SANDBOX_PYTHON={named} is not a Python that an unprivileged user can reach")
    try:
        copy = staged_copy(running)
    except OSError as error:
        raise SandboxUnavailable(f"{running} cannot be reached by an unprivileged user, nor copied ({error})") from None
    if copy is None:
        raise SandboxUnavailable(
            f"{running} cannot be reached by an unprivileged user; name another in VPO_SANDBOX_PYTHON"
        )
    return copy


def describe(executable: str, environment: tuple[tuple[str, str], ...] = ()) -> Interpreter | None:
    """Return what ``executable`` needs; ``None`` if it is not a Python that starts."""
    probed = _probe(executable, environment)
    if probed is None:
        return None
    version, folders = probed
    system = [path for path in ("/lib", "/lib64", "/usr/lib", "/usr/lib64") if os.path.isdir(path)]
    if environment:
        folders.pop()  # a copy has its libraries beside it; the folder in its configuration is not its own
    wanted = [*system, *folders, executable, "/etc/ld.so.cache", *dict(environment).values()]
    paths = dict.fromkeys(os.path.realpath(path) for path in wanted if path and os.path.exists(path))
    tops = [path for path in paths if not any(path != other and path.startswith(other + "/") for other in paths)]
    links = tuple((path, os.readlink(path)) for path in system if os.path.islink(path))
    return Interpreter(executable, version, tuple(tops), links, environment, installed_packages(tops))


def installed_packages(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders below ``paths`` that hold installed packages or this project."""
    names = [f"{above}{name}" for above in ("", "python3*/") for name in ("site-packages", "dist-packages")]
    folders = [folder for path in paths for name in names for folder in Path(path).glob(name)]
    folders += [PACKAGES / name for name in ("envs_data", "vpo_envs")]
    real = dict.fromkeys(os.path.realpath(folder) for folder in folders if folder.is_dir())
    below = [folder for folder in real if any(folder.startswith(path + "/") for path in paths)]
    return tuple(folder for folder in below if not any(folder.startswith(other + "/") for other in below))


def readable_parts(python: Interpreter) -> list[tuple[str, bool]]:
    """Return the paths that Landlock lets a sandbox read, each with whether all below it is readable, or names alone.

    Its rules cannot exclude a folder from a readable one.
    """
    parts: list[tuple[str, bool]] = []
    left = list(python.paths)
    while left:
        path = left.pop()
        if path in python.hidden:
            continue
        whole = not any(folder.startswith(path + "/") for folder in python.hidden)
        parts.append((path, whole))
        if not whole:
            left += [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
    return parts


def staged_copy(executable: str) -> Interpreter | None:
    """Copy a Python and its library to a folder that every user can read, removed when this process ends."""
    probed = _probe(executable)
    if probed is None:
        return None
    folders = probed[1]
    root = Path(tempfile.mkdtemp(prefix="vpo-python-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    library = next(Path(folder) for folder in folders if Path(folder, "os.py").exists())
    shutil.copytree(library, root / "lib" / library.name, ignore=LEFT_OUT)
    (root / "bin").mkdir()
    shutil.copy2(executable, root / "bin")
    for shared in Path(folders[-1]).glob("libpython3*.so*"):
        shutil.copy2(shared, root / "lib")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return describe(str(root / "bin" / Path(executable).name), (("LD_LIBRARY_PATH", str(root / "lib")),))


def _probe(executable: str, environment: tuple[tuple[str, str], ...] = ()) -> tuple[str, list[str]] | None:
    """Return the version and folders that a Python reports; ``None`` if it does not start."""
    command = [executable, "-s", "-S", "-c", PROBE]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd="/", env=dict(environment), check=True, timeout=60
        )
        version, folders = parse_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return version, folders


def _open_to_all(path: str) -> bool:
    """Return whether every user may read ``path`` and enter every folder above it."""
    if not Path(path).stat().st_mode & 0o004:
        return False
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).parents)
