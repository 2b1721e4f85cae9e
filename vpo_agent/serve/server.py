"""The HTTP side, in front of the engine: a thread for each connection."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from socket import MSG_PEEK
from typing import Any

from jinja2.exceptions import TemplateError

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.engine import Engine, Job
from vpo_agent.serve.protocol import encode, make_choice, make_rows, read

MOST_BYTES, PATHS = 2**20, ("/v1/completions", "/v1/chat/completions")


class Server(ThreadingHTTPServer):
    """Serves a policy as ``name``, and as ``default``; raises a ValueError if the address cannot be used."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128
    engine: Engine

    def __init__(self, host: str, port: int, name: str, *, rows: int = 64, most_tokens: int = 4096) -> None:
        self.name, self.rows, self.most_tokens, self.encoding = name, rows, most_tokens, threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, UnicodeError) as error:
            raise ValueError(f"cannot listen on {host}:{port} ({error}): choose another --port or --host") from None
        self.base_url = f"http://{host}:{self.server_port}/v1"

    def handle_error(self, *_: Any) -> None:
        """Print no traceback for a client that has left."""

    def answer(self, policy: LMPolicy) -> None:
        """Answer requests until :meth:`shutdown` or an exception such as Ctrl-C."""
        self.engine = Engine(policy, self.rows)
        try:
            self.serve_forever(poll_interval=0.05)
        finally:
            self.engine.queue.put(None)
            self.engine.thread.join()
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 60
    server: Server

    def do_GET(self) -> None:
        card = {"id": self.server.name, "object": "model", "created": 0, "owned_by": "vpo-gym"}
        self._send(200 if self.path == "/v1/models" else 404, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        try:
            status, reply = 200, self._answers()
        except Exception as error:
            known = isinstance(error, ValueError | TemplateError)
            message = str(error) if known else f"the model failed: {error}"
            status, reply = 400 if known else 500, {"error": {"message": message, "type": "error", "code": None}}
            self.close_connection = True  # The unread rest of a body is no next request.
        self._send(status, reply)

    def _answers(self) -> dict[str, Any]:
        # Read further than the limit, so that the sender gets to read the error.
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 32 * MOST_BYTES))
        if self.path not in PATHS or len(body) > MOST_BYTES:
            raise ValueError(f"this server has {' and '.join(PATHS)}, for bodies of at most {MOST_BYTES:,} bytes")
        policy, asked, chat = self.server.engine.policy, read(body), self.path == PATHS[1]
        if asked.model not in ("default", self.server.name):
            raise ValueError(f"unknown model {asked.model!r}: this server has {self.server.name!r}, or 'default'")
        if bool(asked.messages) != chat or bool(asked.prompt) == chat:
            raise ValueError(f"{self.path} takes {'messages' if chat else 'a prompt'}")
        with self.server.encoding:
            prompt = encode(asked, policy)
        # The last token is never read, so it needs no position.
        positions = policy.cached_model.most_positions or 2**31
        most = min(self.server.most_tokens, positions - len(prompt) + 1)
        # OpenAI's defaults: 16 tokens of plain text, or as many as fit in a chat.
        limit = asked.max_tokens or (most if chat else min(most, 16))
        if not 0 < limit <= most:
            raise ValueError(f"max_tokens is {limit}; behind this prompt of {len(prompt)} tokens {most} are possible")
        job = Job(prompt, make_rows(asked, policy, limit))
        self.server.engine.queue.put(job)
        while not wait([job], timeout=0.5).done:
            if select([self.connection], [], [], 0)[0] and not self.connection.recv(1, MSG_PEEK):
                job.cancel()
        job.result()
        made = sum(len(row.tokens) for row in job.rows)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}
        head = {"id": f"{time.time_ns():x}", "created": int(time.time()), "model": self.server.name, "usage": usage}
        choices = [{"index": i, **make_choice(asked, policy, prompt, row)} for i, row in enumerate(job.rows)]
        return {**head, "object": "chat.completion" if chat else "text_completion", "choices": choices}

    def _send(self, status: int, reply: dict[str, Any]) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...
