"""A policy behind the endpoint of ``vpo serve``, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.server import Server


@contextmanager
def served(policy: LMPolicy, name: str = "policy", **settings: Any) -> Iterator[Server]:
    server = Server("127.0.0.1", 0, name, **settings)
    thread = threading.Thread(target=server.answer, args=(policy,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
