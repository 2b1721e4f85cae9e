"""Starting and stopping the server."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.app import Limits, make_app
from vpo_agent.serve.engine import Engine

STOP_SECONDS = 5
"""Time for connections to end when the server stops."""


@dataclass(frozen=True)
class RunningServer:
    """A server that takes connections."""

    base_url: str
    """The ``base_url`` for OpenAI's clients, such as ``http://127.0.0.1:8000/v1``."""
    model: str
    """Name of the model in requests."""
    engine: Engine


class _Server(uvicorn.Server):
    """Stops the engine first when it shuts down, so open requests fail at once instead of being waited for."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._engine.close(wait=False)
        await super().shutdown(sockets)


def serve(
    policy: LMPolicy,
    *,
    name: str = "policy",
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    ready: Callable[[RunningServer], None] = lambda server: None,
) -> None:
    """Serve a policy until Ctrl-C or SIGTERM.

    Args:
        policy: Nothing else may use or change its model meanwhile.
        name: Name of the model in requests.
        host: Address to listen on. Any other than a loopback address is open to other machines, without a password.
        port: 0: any free port.
        limits: Limits of requests.
        ready: Called when connections are taken.

    Raises:
        ValueError: The address cannot be used.
        KeyboardInterrupt: Ctrl-C, after the server has stopped.
    """
    with listening(host, port) as listener, _server(policy, name, listener, limits or Limits()) as (server, running):
        ready(running)
        server.run(sockets=[listener])


@contextmanager
def serve_in_background(
    policy: LMPolicy, *, port: int = 0, name: str = "policy", host: str = "127.0.0.1", limits: Limits | None = None
) -> Iterator[RunningServer]:
    """Serve a policy from a thread while the block runs; arguments as for :func:`serve`.

    Raises:
        ValueError: The address cannot be used.
        RuntimeError: The server did not start.
    """
    with listening(host, port) as listener, _server(policy, name, listener, limits or Limits()) as (server, running):
        thread = threading.Thread(target=server.run, args=([listener],), name="vpo-serve-http", daemon=True)
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        try:
            yield running
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _server(
    policy: LMPolicy, name: str, listener: socket.socket, limits: Limits
) -> Iterator[tuple[_Server, RunningServer]]:
    engine = Engine(policy, max_rows=limits.rows, max_waiting=limits.waiting)
    config = uvicorn.Config(
        make_app(engine, name, limits),
        http="h11",
        ws="none",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Clients reuse their connections.
        timeout_keep_alive=60,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    try:
        yield _Server(config, engine), RunningServer(f"http://{address}:{port}/v1", name, engine)
    finally:
        engine.close()


def listening(host: str, port: int) -> socket.socket:
    """Open a socket that listens on the address, for the caller to close.

    Raises:
        ValueError: The address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise ValueError(f"cannot listen on {host!r}: {getattr(error, 'strerror', None) or error}") from None
    try:
        # From now on connections wait for the server to start.
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise ValueError(f"cannot listen on {host}:{port}: {reason}; choose another --port or --host") from None
