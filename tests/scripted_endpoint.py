"""An OpenAI-compatible endpoint in a thread, which answers as a test wants: with letters, or with what goes wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What is sent for a request; a body longer than ``sent`` bytes is cut off there, with the connection."""

    status: int = 200
    body: bytes | str | Body = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None
    after: threading.Event | None = None
    """What is waited for before anything is sent."""
    forever: bytes = b""
    """What is sent behind the body again and again while the connection lasts; it may belong to the headers."""
    pace: float = 0.0
    """Seconds between its repetitions."""


Script = Callable[[Body, int], Reply | Body]


@dataclass
class Endpoint:
    url: str
    requests: list[Body]
    """The bodies of all requests so far, with their ``path`` and ``key``."""


def letters(body: Body, number: int = 0, *, n: bool = True) -> Body:
    """Answers that follow from the prompt and the seed, as those of a server that honours both."""
    prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    choices = []
    for index in range(body.get("n", 1) if n else 1):
        letter = "abcde"[hash((prompt, body.get("seed"), index)) % 5]
        text = f"<answer>{letter}</answer>"
        said = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
        choices.append({"index": index, **said, "finish_reason": "stop"})
    usage = {"prompt_tokens": 7, "completion_tokens": 4 * len(choices)}
    return {"object": "completion", "choices": choices, "usage": usage}


def completion(text: str) -> Body:
    """A whole chat completion with one choice, as clients that check every field want it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "toy", "choices": [choice], "usage": usage}


@contextmanager
def scripted(script: Script = letters, models: Reply | Body | None = None) -> Iterator[Endpoint]:
    """Serve what ``script(body, number)`` returns, with requests numbered from 0; ``models`` is the list of models."""
    lock, requests = threading.Lock(), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.reply(models if models is not None else Reply(404))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(requests)
                requests.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            self.reply(script(requests[number], number))

        def reply(self, given: Reply | Body) -> None:
            made = given if isinstance(given, Reply) else Reply(body=given)
            if made.after is not None:
                made.after.wait()
            text = json.dumps(made.body) if isinstance(made.body, dict) else made.body
            data = text.encode() if isinstance(text, str) else text
            self.close_connection = True
            if made.sent == 0:
                return
            self.send_response(made.status)
            length = {} if made.forever else {"Content-Length": str(len(data))}
            for name, value in {**length, "Connection": "close", **made.headers}.items():
                self.send_header(name, value)
            if made.forever.startswith(b"X-"):
                self.flush_headers()
            else:
                self.end_headers()
                self.wfile.write(data[: made.sent])
            with suppress(OSError):
                # A client that gave up may still be reading, and would fill the memory.
                while made.forever and not ended.is_set():
                    self.wfile.write(made.forever)
                    time.sleep(made.pace)

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", requests)
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
