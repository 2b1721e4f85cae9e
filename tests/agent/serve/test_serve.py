"""The endpoint over HTTP: what OpenAI's client gets, and what is refused and how."""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import toys

pytest.importorskip("starlette", reason="serving needs the serve extra, which the dev extra installs")
pytest.importorskip("uvicorn", reason="serving needs the serve extra, which the dev extra installs")

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.targets import load_policy
from vpo_agent.serve import Limits, RunningServer, serve_in_background

LIMITS = Limits(body_bytes=20_000, answers=40, max_tokens=100, body_seconds=1.0)
POSITIONS = 256
PATIENCE = 60
"""Seconds after which something is not coming."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
FINE = {"prompt": "maze", "max_tokens": 8, "seed": 1}


@pytest.fixture(scope="module")
def server(bpe_model: Path) -> Iterator[RunningServer]:
    with serve_in_background(load_policy(str(bpe_model), device="cpu"), name="tiny", limits=LIMITS) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    openai = pytest.importorskip("openai", reason="the official client is not installed; the dev extra has it")
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


def connect(server: RunningServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=PATIENCE)


def ask(
    server: RunningServer, path: str, body: Any = None, *, method: str | None = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON of one request over a connection of its own."""
    connection = connect(server)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(
        method or ("GET" if body is None else "POST"), path, data, {"Content-Type": "application/json", **headers}
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def texts(answer: Any) -> list[str]:
    return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in answer["choices"]]


def policy_of(server: RunningServer) -> LMPolicy:
    return server.engine.policy


# --- the official client ---


def test_the_official_client_lists_the_model(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_the_official_client_completes_a_prompt(client: Any, server: RunningServer) -> None:
    answer = client.completions.create(model="tiny", prompt="the maze", n=3, seed=5, max_tokens=9, temperature=0.7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 3
    assert {choice.finish_reason for choice in answer.choices} <= {"stop", "length"}
    assert answer.usage.prompt_tokens == len(policy_of(server).tokenizer("the maze")["input_ids"])
    assert 3 <= answer.usage.completion_tokens <= 27


def test_the_official_client_chats(client: Any) -> None:
    messages = [{"role": "user", "content": "the maze"}]
    answer = client.chat.completions.create(model="default", messages=messages, seed=5, max_completion_tokens=9)
    plain = client.completions.create(model="tiny", prompt="the maze", seed=5, max_tokens=9)
    # Without a chat template a single message is the prompt.
    assert answer.choices[0].message.content == plain.choices[0].text
    assert answer.choices[0].message.role == "assistant"


def test_the_official_client_streams(client: Any) -> None:
    settings = {"model": "tiny", "prompt": "the maze", "n": 2, "seed": 5, "max_tokens": 9}
    whole = client.completions.create(**settings)
    joined = ["", ""]
    used = None
    for part in client.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        for choice in part.choices:
            joined[choice.index] += choice.text
        used = part.usage or used
    assert joined == [choice.text for choice in whole.choices]
    assert used == whole.usage


def test_the_official_client_streams_a_chat(client: Any) -> None:
    settings = {"model": "tiny", "messages": [{"role": "user", "content": "maze"}], "seed": 5, "max_tokens": 9}
    parts = [part.choices[0] for part in client.chat.completions.create(**settings, stream=True)]
    assert parts[0].delta.role == "assistant"
    whole = client.chat.completions.create(**settings).choices[0]
    assert "".join(part.delta.content for part in parts) == whole.message.content
    assert parts[-1].finish_reason == whole.finish_reason


def test_the_official_client_raises_its_own_errors(client: Any) -> None:
    openai = pytest.importorskip("openai", reason="the official client is not installed; the dev extra has it")
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt': this server has 'tiny'"):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.BadRequestError, match="256 positions, and the prompt takes 300"):
        client.completions.create(model="tiny", prompt="x" * 300)


# --- what answers are ---


def test_a_seed_gives_the_same_answer_whoever_else_is_served(server: RunningServer) -> None:
    alone = [texts(ask(server, COMPLETIONS, {**FINE, "seed": seed})[1]) for seed in range(32)]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda seed: texts(ask(server, COMPLETIONS, {**FINE, "seed": seed})[1]), range(32)))
    assert together == alone
    assert len({text for (text,) in alone}) > 20


def test_without_a_seed_answers_differ(server: RunningServer) -> None:
    body = {"prompt": "maze", "max_tokens": 20, "n": 4}
    assert texts(ask(server, COMPLETIONS, body)[1]) != texts(ask(server, COMPLETIONS, body)[1])


def test_several_prompts_may_come_as_text_or_tokens(server: RunningServer) -> None:
    prompts = ["maze", "the answer"]
    ids = policy_of(server).tokenizer(prompts)["input_ids"]
    answers = [texts(ask(server, COMPLETIONS, {**FINE, "prompt": given, "n": 2})[1]) for given in (prompts, ids)]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 4
    assert answers[0][2:] == texts(ask(server, COMPLETIONS, {**FINE, "prompt": ids[1], "n": 2})[1])


def test_a_stop_string_ends_the_text_before_it(server: RunningServer) -> None:
    (whole,) = texts(ask(server, COMPLETIONS, {**FINE, "max_tokens": 30})[1])
    stop = whole[len(whole) // 2]
    _, answer = ask(server, COMPLETIONS, {**FINE, "max_tokens": 30, "stop": stop})
    assert answer["choices"][0]["text"] == whole[: whole.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 30
    _, kept = ask(server, COMPLETIONS, {**FINE, "max_tokens": 30, "stop": [stop], "include_stop_str_in_output": True})
    assert texts(kept) == [whole[: whole.index(stop) + 1]]


def test_a_chat_goes_through_the_template_as_in_training() -> None:
    tokenizer = toys.bpe_tokenizer(chat=True)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer), tokenizer)
    with serve_in_background(policy) as server:
        chat = {"messages": [{"role": "user", "content": "maze"}], "max_tokens": 8, "seed": 1}
        _, answer = ask(server, CHAT, chat)
        ids, _ = policy.encode_prompts(["maze"])
        assert texts(answer) == texts(ask(server, COMPLETIONS, {**FINE, "prompt": ids[0].tolist()})[1])
        begun = [*chat["messages"], {"role": "assistant", "content": "the ans"}]
        _, answer = ask(server, CHAT, {**chat, "messages": begun, "continue_final_message": True})
        prompt = policy.tokenizer.decode(ids[0]) + "the ans"
        assert texts(answer) == texts(ask(server, COMPLETIONS, {**FINE, "prompt": prompt})[1])


def test_a_message_of_parts_is_their_text(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "ma"}, {"type": "text", "text": "ze"}]
    asked = {"messages": [{"role": "user", "content": parts}], "max_tokens": 8, "seed": 1}
    assert texts(ask(server, CHAT, asked)[1]) == texts(ask(server, COMPLETIONS, FINE)[1])


def test_a_chat_without_a_limit_may_fill_the_context() -> None:
    tokenizer = toys.bpe_tokenizer(eos=None)
    policy = LMPolicy(toys.tiny_model("gpt2", tokenizer, n_positions=40), tokenizer)
    with serve_in_background(policy) as server:
        _, answer = ask(server, CHAT, {"messages": [{"role": "user", "content": "x" * 30}]})
        assert answer["usage"]["completion_tokens"] == 11
        assert answer["choices"][0]["finish_reason"] == "length"
        _, answer = ask(server, COMPLETIONS, {"prompt": "x"})
        assert answer["usage"]["completion_tokens"] == 16


def test_health_says_what_is_going_on(server: RunningServer) -> None:
    assert ask(server, "/health") == (200, {"status": "ok", "model": "tiny", "running": 0, "waiting": 0})


# --- what is refused ---

REFUSED: dict[str, tuple[Any, str]] = {
    "no prompt": ({}, "prompt"),
    "a prompt that is a number": ({"prompt": 3}, "prompt"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "no prompts": ({"prompt": []}, "no tokens"),
    "a token that is not there": ({"prompt": [0, 100_000]}, "token 100000, but this model's are 0 to"),
    "a negative max_tokens": ({"max_tokens": -1}, "max_tokens"),
    "max_tokens as text": ({"max_tokens": "8"}, "max_tokens"),
    "max_tokens over the server's": ({"max_tokens": 101}, "max_tokens is 101; this server allows at most 100"),
    "n of 0": ({"n": 0}, "n: "),
    "n as a switch": ({"n": True}, "n: "),
    "too many answers": ({"n": 41}, "the request asks for 41 answers; the limit is 40"),
    "too many prompts": ({"prompt": ["a"] * 41}, "asks for 41 answers"),
    "a negative temperature": ({"temperature": -0.1}, "temperature"),
    "a temperature as text": ({"temperature": "hot"}, "temperature"),
    "top_p over 1": ({"top_p": 1.1}, "top_p"),
    "a fractional seed": ({"seed": 1.5}, "seed"),
    "a huge seed": ({"seed": 2**63}, "seed"),
    "an empty stop string": ({"stop": ""}, "stop"),
    "a long stop string": ({"stop": ["x" * 257]}, "stop"),
    "too many stop strings": ({"stop": ["x"] * 17}, "stop"),
    "stream as text": ({"stream": "yes"}, "stream"),
    "a model of another name": ({"model": 7}, "model"),
    "tools": ({"tools": [{"type": "function"}]}, "tools is not supported by this server: leave it out"),
    "a penalty": ({"presence_penalty": 0.5}, "presence_penalty is not supported"),
    "logprobs": ({"logprobs": 2}, "logprobs is not supported"),
    "a long prompt": ({"prompt": "x" * 300}, "256 positions, and the prompt takes 300 of them"),
    "no room for the answer": ({"prompt": "x" * 250, "max_tokens": 20}, "20 more tokens do not fit, at most 7 do"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_a_bad_request_is_refused_and_told_why(server: RunningServer, changes: Any, message: str) -> None:
    body = {} if not changes else {**FINE, **changes}
    status, answer = ask(server, COMPLETIONS, body)
    assert status == 400
    assert message in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("messages", "more", "message"),
    [
        ([], {}, "messages"),
        ("maze", {}, "messages"),
        ([{"role": "wizard", "content": "x"}], {}, "messages"),
        ([{"role": "user", "content": None}], {}, "messages"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], {}, "messages"),
        ([{"role": "user", "content": ""}], {}, "the messages have no tokens"),
        ([{"role": "user", "content": "x"}], {"continue_final_message": True}, "needs a last message of the role"),
        ([{"role": "user", "content": "x" * 300}], {}, "256 positions, and the prompt takes 300 of them"),
    ],
)
def test_a_bad_chat_is_refused_and_told_why(server: RunningServer, messages: Any, more: Any, message: str) -> None:
    status, answer = ask(server, CHAT, {"messages": messages, **more})
    assert status == 400
    assert message in answer["error"]["message"]


def test_fields_that_ask_for_nothing_or_are_unknown_are_ignored(server: RunningServer) -> None:
    more = {"user": "me", "logit_bias": {}, "frequency_penalty": 0, "n": None, "stop": None, "something_new": [1]}
    assert texts(ask(server, COMPLETIONS, {**FINE, **more})[1]) == texts(ask(server, COMPLETIONS, FINE)[1])


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"prompt": NaN}x', b'{"prompt": "\xff\xfe"}', b'{"prompt": "\\ud800"}', b"[" * 10_000, b"null", b"3"],
)
def test_what_is_no_json_object_is_refused(server: RunningServer, body: bytes) -> None:
    status, answer = ask(server, COMPLETIONS, body, method="POST")
    assert status == 400
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/nothing", 404, "there is no GET /v1/nothing: this server has /v1/completions"),
        ("POST", "/completions", 404, "there is no POST /completions"),
        ("GET", COMPLETIONS, 405, "GET /v1/completions is not allowed: use POST"),
        ("DELETE", "/v1/models", 405, "is not allowed: use GET or HEAD"),
        ("GET", "/v1/models/gpt", 404, "unknown model 'gpt'"),
    ],
)
def test_wrong_paths_and_methods_are_refused(
    server: RunningServer, method: str, path: str, status: int, message: str
) -> None:
    found, answer = ask(server, path, method=method)
    assert found == status
    assert message in answer["error"]["message"]


def test_a_body_of_another_type_is_refused(server: RunningServer) -> None:
    status, answer = ask(server, COMPLETIONS, b"prompt=x", **{"Content-Type": "text/plain"})
    assert status == 415
    assert "application/json, got 'text/plain'" in answer["error"]["message"]


def test_ten_megabytes_are_refused_by_a_server_of_default_limits(bpe_model: Path) -> None:
    with serve_in_background(load_policy(str(bpe_model), device="cpu")) as server:
        status, answer = ask(server, COMPLETIONS, {**FINE, "prompt": "x" * 10_000_000})
        assert status == 413
        assert "larger than the limit of 1,048,576 bytes" in answer["error"]["message"]
        assert ask(server, COMPLETIONS, FINE)[0] == 200


def test_a_body_that_does_not_arrive_is_not_waited_for(server: RunningServer) -> None:
    address = urlsplit(server.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 50\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_full_queue_is_said(bpe_model: Path) -> None:
    tokenizer = toys.bpe_tokenizer(eos=None)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer, max_position_embeddings=10**6), tokenizer)
    with serve_in_background(policy, limits=Limits(rows=1, waiting=1, max_tokens=10**6)) as server:
        endless = {"prompt": "x", "max_tokens": 900_000, "stream": True}
        connections = []
        for _ in range(2):
            connections.append(connect(server))
            connections[-1].request("POST", COMPLETIONS, json.dumps(endless), {"Content-Type": "application/json"})
            until(lambda: server.engine.running + server.engine.waiting == len(connections))
        status, answer = ask(server, COMPLETIONS, FINE)
        assert status == 503
        assert answer["error"]["code"] == "overloaded"
        for connection in connections:
            connection.close()


def test_a_model_that_fails_is_reported_and_the_next_request_answered(server: RunningServer) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory\nand much more")

    handle = policy_of(server).model.register_forward_pre_hook(fail)
    status, answer = ask(server, COMPLETIONS, FINE)
    handle.remove()
    assert status == 500
    assert answer["error"]["message"] == "the model failed: out of memory"
    assert answer["error"]["type"] == "server_error"
    assert ask(server, COMPLETIONS, FINE)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_the_work_of_a_client_that_leaves_is_dropped(stream: bool) -> None:
    tokenizer = toys.bpe_tokenizer(eos=None)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer, max_position_embeddings=10**6), tokenizer)
    with serve_in_background(policy, limits=Limits(max_tokens=10**6)) as server:
        connection = connect(server)
        body = json.dumps({"prompt": "x", "n": 3, "max_tokens": 900_000, "stream": stream})
        connection.request("POST", COMPLETIONS, body, {"Content-Type": "application/json"})
        until(lambda: server.engine.running == 3)
        connection.close()
        until(lambda: server.engine.running == 0)
        assert ask(server, COMPLETIONS, FINE)[0] == 200


def test_a_server_that_stops_tells_those_it_was_answering() -> None:
    tokenizer = toys.bpe_tokenizer(eos=None)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer, max_position_embeddings=10**6), tokenizer)
    with ThreadPoolExecutor(1) as pool:
        with serve_in_background(policy, limits=Limits(max_tokens=10**6)) as server:
            answer = pool.submit(ask, server, COMPLETIONS, {"prompt": "x", "max_tokens": 900_000})
            until(lambda: server.engine.running == 1)
        status, body = answer.result(timeout=PATIENCE)
    assert status == 503
    assert body["error"]["code"] == "shutting_down"


def until(condition: Any) -> None:
    """Wait for what another thread brings about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- a thousand malformed requests ---


def malformed(rng: random.Random) -> tuple[str, bytes]:
    """A path and a body that no server should accept."""
    path = rng.choice([COMPLETIONS, CHAT])
    messages = [{"role": "user", "content": "x"}]
    good = json.dumps({**FINE, "messages": messages}).encode()
    kind = rng.randrange(5)
    if kind == 0:
        return path, good[: rng.randrange(len(good))]
    if kind == 1:
        return path, rng.randbytes(rng.randrange(200))
    if kind == 2:
        place = rng.randrange(len(good))
        return path, good[:place] + b"\xff" + good[place:]
    if kind == 3:
        required = "prompt" if path == COMPLETIONS else "messages"
        return path, json.dumps(
            {**FINE, "messages": messages, required: rng.choice([0, None, True, {}, [], 1.5])}
        ).encode()
    field = rng.choice(["max_tokens", "n", "temperature", "top_p", "seed", "stop", "stream", "model"])
    bad = {
        "max_tokens": -1,
        "n": 0,
        "temperature": -1,
        "top_p": 2,
        "seed": 0.5,
        "stop": 3,
        "stream": 1,
        "model": "other",
    }
    value = rng.choice([bad[field], {"a": {}}, [None], -(2**70)])
    return path, json.dumps({**FINE, "messages": messages, field: value}).encode()


def test_a_thousand_malformed_requests_leave_it_serving(server: RunningServer) -> None:
    rng = random.Random(0)
    before = texts(ask(server, COMPLETIONS, FINE)[1])
    connection = connect(server)
    statuses = []
    for _ in range(1000):
        path, body = malformed(rng)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert set(answer["error"]) == {"message", "type", "param", "code"}, body
        statuses.append(response.status)
    connection.close()
    assert set(statuses) == {400, 404}
    assert texts(ask(server, COMPLETIONS, FINE)[1]) == before


@pytest.mark.parametrize(
    "said", [b"\r\n\r\n", b"HELLO\r\n\r\n", b"\x16\x03\x01" + bytes(100), b"GET /" + b"x" * 100_000]
)
def test_what_is_no_http_leaves_it_serving(server: RunningServer, said: bytes) -> None:
    address = urlsplit(server.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
    assert ask(server, COMPLETIONS, FINE)[0] == 200
