"""Calls a function in another process, where texts have other hashes, so that sets of texts have another order."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vpo_envs.common.imports import asked_modules, import_modules
from vpo_envs.common.wording import first_line, told

CODE = "from vpo_envs.checking.elsewhere import answer_call; answer_call()"


class NotElsewhere(Exception):
    """A call cannot be made in another process; the message says why."""


class RaisedElsewhere(Exception):
    """The function raised an error in the other process; the message states it."""


def call_elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a new process with another hash seed.

    The modules that were asked for by ``--import`` are imported there as well.

    Raises:
        NotElsewhere: The function, an argument or the result cannot be pickled, a module is not found there, or the
            function itself says so.
        RaisedElsewhere: The function raised an error.
    """
    try:
        call = pickle.dumps((function, arguments))
    except Exception as error:  # objects of a user's own may raise anything
        raise NotElsewhere(first_line(error)) from None
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder, "reply")
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(reply)],
            input=pickle.dumps((asked_modules(), call)),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if not reply.exists():
            errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise NotElsewhere(errors[-1] if errors else f"the process ended with status {done.returncode}")
        raised, result = pickle.loads(reply.read_bytes())
    if raised is not None:
        raise raised(result)
    return result


def answer_call() -> None:
    """Read a call from standard input, make it, and write what comes of it to the file that the process is given."""
    raised: type[Exception] | None = None
    try:
        modules, call = pickle.load(sys.stdin.buffer)
        import_modules(modules)
        function, arguments = pickle.loads(call)
    except Exception as error:
        raised, result = NotElsewhere, first_line(error)
    else:
        try:
            result = function(*arguments)
        except NotElsewhere as error:
            raised, result = NotElsewhere, str(error)
        except Exception as error:
            raised, result = RaisedElsewhere, told(error)
    Path(sys.argv[1]).write_bytes(pickle.dumps((raised, result)))
