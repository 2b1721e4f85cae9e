"""A queue before the one decoder, whose requests join its batch between two tokens, and the HTTP side."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from select import select
from socket import MSG_PEEK
from typing import Any

import torch
from jinja2.exceptions import TemplateError

from vpo_agent.policy.decoding import Row
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.protocol import chat_of, encode, make_choice, make_rows, read_request
from vpo_agent.serve.requests import BadRequest, Forbidden, body_parts, check_sender, own_names
from vpo_envs.common.wording import counted

MOST_BYTES = 2**20
"""Longest body of a request."""
MOST_UNREAD = 32 * MOST_BYTES
"""How much of a longer body is read and thrown away, so that its sender comes to read the answer."""
REFUSALS = (TemplateError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What templates of chats and tokenizers raise at texts that they do not take."""
STOP_S = 1.0
"""Seconds that a batch may take to end, and its clients to be told, when the server stops."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Job(Future[None]):
    """The rows that continue one prompt; done when all of them have ended."""

    def __init__(self, prompt: Sequence[int], rows: Sequence[Row]) -> None:
        super().__init__()
        self.prompt = prompt
        self.rows = rows
        self.waiting = deque(rows)
        """Rows that have not joined the batch."""


class Engine:
    """Samples the rows of all jobs in one batch, of at most ``most_rows``, from a thread that owns the policy's model.

    An answer depends on its prompt, settings and seed, not on the rest of the batch, up to the rounding of the model's
    arithmetic.
    """

    def __init__(self, policy: LMPolicy, most_rows: int) -> None:
        self.policy, self._most_rows = policy, most_rows
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        """Takes jobs; ``None`` ends the engine and fails those that are not done."""
        self._jobs: list[Job] = []
        """Jobs that are not done."""
        self._decoder = policy.decoder()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            while not self._jobs or not self.queue.empty():
                job = self.queue.get()
                if job is None:
                    self._end(list(self._jobs), RuntimeError("the server is stopping"))
                    return
                self._jobs.append(job)
            try:
                self._advance()
            # Out of memory, or a bug: the jobs in the batch fail, and the next ones are served.
            except Exception as error:
                self._decoder = self.policy.decoder()
                self._end([job for job in self._jobs if len(job.waiting) < len(job.rows)], error)
            else:
                self._end([job for job in self._jobs if job.cancelled() or all(row.finish_reason for row in job.rows)])

    @torch.no_grad()
    def _advance(self) -> None:
        """Let rows of one job join the batch, and sample a token for each row."""
        first = next((job for job in self._jobs if job.waiting and not job.cancelled()), None)
        room = self._most_rows - sum(row.finish_reason is None for row in self._decoder.rows)
        if first is not None and self._decoder.open and room > 0:
            joining = [first.waiting.popleft() for _ in range(min(room, len(first.waiting)))]
            model = self.policy.cached_model
            self._decoder.join(model.read(*model.pad([first.prompt])), [0] * len(joining), joining)
        self._decoder.step()

    def _end(self, jobs: Sequence[Job], error: Exception | None = None) -> None:
        """End jobs, with the error that ended them if there is one."""
        for job in jobs:
            for row in job.rows:
                row.finish_reason = row.finish_reason or "stop"
            if job.set_running_or_notify_cancel():
                if error is None:
                    job.set_result(None)
                else:
                    job.set_exception(error)
            self._jobs.remove(job)


class Server(ThreadingHTTPServer):
    """Serves a policy as ``name``, and as ``default``; raises a ValueError if the address cannot be used."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128
    engine: Engine

    def __init__(
        self, host: str, port: int, name: str, *, rows: int = 64, max_tokens: int = 4096, allowed: Sequence[str] = ()
    ) -> None:
        self.name, self.rows, self.max_tokens = name, rows, max_tokens
        self.hosts = own_names() | {name.lower().rstrip(".") for name in (host, *allowed)}
        """Names under which requests may reach this server, beside addresses."""
        self.replying: set[_Handler] = set()
        """Handlers in the middle of a request."""
        self.encoding = threading.Lock()
        """Held while a prompt is encoded, for which tokenizers are not safe to use from several threads."""
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
            # A pass of a large model takes minutes; the thread ends with the process.
            deadline = time.monotonic() + STOP_S
            self.engine.thread.join(STOP_S)
            while self.replying and time.monotonic() < deadline:
                time.sleep(0.01)
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 60
    server: Server

    def do_GET(self) -> None:
        def card() -> tuple[int, Any]:
            has_template = self.server.engine.policy.chat.is_chat
            model = {"id": self.server.name, "object": "model", "created": 0, "owned_by": "vpo-gym"}
            model["chat_template"] = has_template
            return 200 if self.path == "/v1/models" else 404, {"object": "list", "data": [model]}

        self._reply(card)

    def do_POST(self) -> None:
        self._reply(lambda: (200, self._answers(self._body())))

    def _reply(self, answer: Callable[[], tuple[int, Any]]) -> None:
        """Send an answer, or why there is none."""
        self.server.replying.add(self)
        try:
            self._send(*self._reply_of(answer))
        finally:
            self.server.replying.remove(self)

    def _reply_of(self, answer: Callable[[], tuple[int, Any]]) -> tuple[int, bytes]:
        """Return the status and the body of an answer, or why there is none."""
        try:
            check_sender(self.headers, self.server.hosts)
            status, reply = answer()
            return status, json.dumps(reply, allow_nan=False).encode()
        except Exception as error:
            self.close_connection = True  # The unread rest of a body is no next request.
            if isinstance(error, Forbidden):
                return 403, _error(str(error))
            if isinstance(error, BadRequest):
                return 400, _error(str(error))
            return 500, _error(f"the model failed: {error or type(error).__name__}")

    def _body(self) -> bytes:
        """Return the body of the request; a body that is too long is read only so far that its sender reads the
        answer."""
        body, unread = bytearray(), MOST_UNREAD
        for part in body_parts(self.headers, self.rfile):
            if len(body) + len(part) <= MOST_BYTES:
                body += part
                continue
            unread -= len(part)
            if unread < 0:
                break
        if self.path not in (COMPLETIONS, CHAT) or unread < MOST_UNREAD:
            raise BadRequest(f"this server has {COMPLETIONS} and {CHAT}, for bodies of at most {MOST_BYTES:,} bytes")
        return bytes(body)

    def _answers(self, body: bytes) -> dict[str, Any]:
        policy, is_chat = self.server.engine.policy, self.path == CHAT
        try:
            request = read_request(body)
            if request.model not in ("default", self.server.name):
                raise ValueError(f"unknown model {request.model!r}: this server has {self.server.name!r}, or 'default'")
            if bool(request.messages) != is_chat or bool(request.prompt) == is_chat:
                raise ValueError(f"{self.path} needs {'messages' if is_chat else 'a prompt'}")
            with self.server.encoding:
                chat = chat_of(request, policy)
                prompt = encode(request, chat)
            policy.cached_model.check_tokens([prompt])
            # The last token is never read, so it needs no position.
            positions = policy.cached_model.max_positions or 2**31
            most = min(self.server.max_tokens, positions - len(prompt) + 1)
            if most < 1:
                raise ValueError(
                    f"the prompt has {len(prompt):,} tokens, and the model has {positions:,} positions: shorten it"
                )
            # OpenAI's defaults: 16 tokens of plain text, or as many as fit in a chat.
            limit = request.max_tokens or (most if is_chat else min(most, 16))
            if limit > most:
                raise ValueError(
                    f"max_tokens is {limit:,}, but a prompt of {counted(len(prompt), 'token')} leaves room for "
                    f"{most:,}: lower max_tokens"
                )
        except (*REFUSALS, ValueError) as error:
            raise BadRequest(str(error) or type(error).__name__) from error
        job = Job(prompt, make_rows(request, policy, chat, limit))
        self.server.engine.queue.put(job)
        while not wait([job], timeout=0.5).done:
            if select([self.connection], [], [], 0)[0] and not self.connection.recv(1, MSG_PEEK):
                job.cancel()
        job.result()
        if not all(math.isfinite(log_prob) for row in job.rows for log_prob in row.log_probs):
            raise RuntimeError("it computed a log-probability that is not a number")
        generated = sum(len(row.tokens) for row in job.rows)
        choices = [make_choice(request, policy, chat, prompt, row) for row in job.rows]
        return {
            "id": f"{time.time_ns():x}",
            "created": int(time.time()),
            "model": self.server.name,
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": generated,
                "total_tokens": len(prompt) + generated,
            },
            "object": "chat.completion" if is_chat else "text_completion",
            "choices": [{"index": index, **choice} for index, choice in enumerate(choices)],
        }

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, or of another method than GET and POST, which Python calls 501."""
        self.close_connection = True
        self.request_version = self.protocol_version  # Of what is no request, Python expects no status in the answer.
        self._send(405 if code == 501 else 400, _error(message or "this is no request of HTTP/1.1"))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
