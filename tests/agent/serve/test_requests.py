"""``vpo serve`` before strangers: every request ends with a status of its own, whatever its headers and body say."""

from __future__ import annotations

import http.client
import json
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, PythonProcess
from served import served

from vpo_agent.runs.targets import load_policy
from vpo_agent.serve import server as server_module
from vpo_agent.serve.server import MOST_BYTES, MOST_UNREAD, Server

FINE = json.dumps({"prompt": "maze", "max_tokens": 2, "seed": 1})
POST = "POST /v1/completions HTTP/1.1\r\n"


@pytest.fixture(scope="module")
def server(bpe_model: Path) -> Iterator[Server]:
    with served(load_policy(str(bpe_model), device="cpu"), "tiny", max_tokens=100, allowed=["Tiny.example"]) as running:
        yield running


def send(server: Server, *parts: bytes | str) -> tuple[int, Any]:
    """Status and JSON of what is sent as it stands."""
    with socket.create_connection(server.server_address[:2], timeout=PATIENCE) as connection:
        try:
            for part in parts:
                connection.sendall(part.encode() if isinstance(part, str) else part)
        except OSError:
            pass  # The server has answered and closed.
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


def request(*headers: str, host: str = "127.0.0.1:8000") -> str:
    return POST + "".join(f"{header}\r\n" for header in (f"Host: {host}", *headers)) + "\r\n"


def chunked(*chunks: str, end: str = "0\r\n\r\n") -> str:
    return "".join(f"{len(chunk):x}\r\n{chunk}\r\n" for chunk in chunks) + end


def test_a_body_in_chunks_is_read(server: Server) -> None:
    status, answer = send(server, request("Transfer-Encoding: chunked"), chunked(FINE[:7], FINE[7:]))
    assert status == 200, answer
    assert send(server, request(f"Content-Length: {len(FINE)}"), FINE)[1]["choices"] == answer["choices"]
    trailers = chunked(FINE, end="0;a=b\r\nX: y\r\n\r\n")
    assert send(server, request("Transfer-Encoding: Chunked"), trailers)[0] == 200


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([], FINE),
        (["Content-Length: -1"], FINE),
        (["Content-Length: -5"], FINE),
        (["Content-Length: +5"], FINE),
        (["Content-Length: 1_0"], FINE),
        (["Content-Length: many"], FINE),
        (["Content-Length: "], FINE),
        (["Content-Length: 1e3"], FINE),
        (["Content-Length: \u0663"], FINE),
        ([f"Content-Length: {len(FINE)}", "Content-Length: 3"], FINE),
        ([f"Content-Length: {10**30}"], FINE),
        ([f"Content-Length: {len(FINE)}", "Transfer-Encoding: chunked"], chunked(FINE)),
        (["Transfer-Encoding: gzip, chunked"], chunked(FINE)),
        (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], chunked(FINE)),
        (["Transfer-Encoding: identity"], FINE),
        (["Transfer-Encoding: chunked"], "-5\r\nabcde\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], "zz\r\n"),
        (["Transfer-Encoding: chunked"], "3\r\nabcde\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], "f" * 5000 + "\r\n"),
        (["Transfer-Encoding: chunked"], "fffffffffffffffffffff\r\n"),
        (["Transfer-Encoding: chunked"], chunked(FINE, end="0\r\n" + 200 * "a: b\r\n" + "\r\n")),
    ],
)
def test_a_body_whose_length_is_not_told_is_refused(server: Server, headers: list[str], body: str) -> None:
    status, answer = send(server, request(*headers), body)
    assert status == 400
    assert answer["error"]["message"]


@pytest.mark.parametrize("way", ["Content-Length: 4294967296", "Transfer-Encoding: chunked"])
def test_a_body_without_end_is_neither_kept_nor_read_to_its_end(server: Server, way: str) -> None:
    part = (b"" if "Length" in way else b"100000\r\n") + b"x" * MOST_BYTES + (b"" if "Length" in way else b"\r\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status, answer = send(server, request(way), *[part] * (MOST_UNREAD // MOST_BYTES + 8))
    assert status == 400
    assert "bodies of at most 1,048,576 bytes" in answer["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024, "KiB"


@pytest.mark.parametrize(
    "body",
    [
        '{"prompt": "x", "temperature": NaN}',
        '{"prompt": "x", "temperature": 1e999}',
        '{"prompt": "x", "seed": 1' + 400 * "0" + "}",
        '{"prompt": "x", "max_tokens": 1' + 30 * "0" + "}",
        '{"prompt": ' + 100_000 * "[",
        '{"prompt": "\\ud800"}',
        '{"messages": [{"role": "user", "content": "\\udfff"}]}',
        '{"prompt": "x", "stop": ' + json.dumps(["a"] * 1000) + "}",
        '{"prompt": "x", "model": ["tiny"]}',
        '{"prompt": {"a": 1}}',
        '{"prompt": "x", "n": true}',
        '{"prompt": "x", "stop": [["a"]]}',
        "[]",
        "null",
        "",
        "\ufeff\ufeff{}",
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_bad_body_is_refused_and_no_fault_of_the_server(server: Server, path: str, body: str) -> None:
    data = body.encode()
    head = request(f"Content-Length: {len(data)}").replace("/v1/completions", path)
    status, answer = send(server, head, data)
    assert status == 400, answer
    assert isinstance(answer["error"]["message"], str)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("GET /v1/models HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        ("what is this\r\n\r\n", 400),
        ("GET /" + 70_000 * "a" + " HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n" + 200 * "a: b\r\n" + "\r\n", 400),
        ("GET / HTTP/1.1\r\na: " + 70_000 * "b" + "\r\n\r\n", 400),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /v1/models HTTP/1.1\r\n\r\n", 400),
        ("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_in_json(server: Server, text: str, status: int) -> None:
    assert send(server, text)[0] == status


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8000", "192.168.0.7:8000", "tiny.EXAMPLE:80"])
def test_hosts_that_cannot_be_pointed_here_are_answered(server: Server, host: str) -> None:
    assert send(server, request(f"Content-Length: {len(FINE)}", host=host), FINE)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_whose_name_was_pointed_here_is_refused(server: Server, host: str, method: str) -> None:
    head = request(f"Content-Length: {len(FINE)}", host=host)
    if method == "GET":
        head = f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n"
    status, answer = send(server, head, FINE if method == "POST" else "")
    assert status == 403
    assert "--allow-host" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8000", 200),
        ("https://tiny.example", 200),
        ("https://evil.example", 403),
        ("http://192.168.0.8", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost.evil.example", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_other_sites_may_not_ask(server: Server, origin: str, status: int) -> None:
    head = request(f"Content-Length: {len(FINE)}", f"Origin: {origin}", "Content-Type: text/plain")
    assert send(server, head, FINE)[0] == status


def test_numbers_that_are_none_are_an_error_and_no_answer(server: Server) -> None:
    def poison(_: Any, __: Any, output: Any) -> Any:
        output.logits = output.logits * float("nan")
        return output

    handle = server.engine.policy.model.register_forward_hook(poison)
    body = json.dumps({"prompt": "maze", "max_tokens": 2, "logprobs": True, "temperature": 0})
    try:
        status, answer = send(server, request(f"Content-Length: {len(body)}"), body)
    finally:
        handle.remove()
    assert status == 500
    assert answer["error"]["message"].startswith("the model failed: ")
    assert send(server, request(f"Content-Length: {len(FINE)}"), FINE)[0] == 200


@pytest.mark.parametrize(("seconds", "status"), [(600, None), (0.2, 500)], ids=["in a pass", "between tokens"])
def test_a_server_stops_within_two_seconds_while_the_model_computes(
    bpe_model: Path, seconds: float, status: int | None
) -> None:
    script = f"""
import sys, time
from vpo_agent.command import main
from vpo_agent.runs import targets

def slow(*_):
    print("computing", flush=True)
    time.sleep({seconds})

def load(*arguments, load_policy=targets.load_policy):
    policy = load_policy(*arguments)
    policy.model.register_forward_pre_hook(slow)
    return policy

targets.load_policy = load
sys.exit(main(["serve", {str(bpe_model)!r}, "--port", "0", "--device", "cpu"]))
"""
    body = json.dumps({"prompt": "maze", "max_tokens": 200, "seed": 1})
    process = PythonProcess(["-c", script])
    try:
        port = int(re.search(r":(\d+)/v1", process.stdout.readline())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall((request(f"Content-Length: {len(body)}") + body).encode())
            assert process.stdout.readline() == "computing\n"
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 130
            assert time.monotonic() - begun < 1 + server_module.STOP_S
            answer = connection.makefile("rb").read()
    finally:
        process.kill()
    if status is None:
        assert not answer
    else:
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"the server is stopping" in answer
