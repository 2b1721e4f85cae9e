"""``vpo serve``: what OpenAI's client gets, and what is refused and how."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
import toys
from paths import ROOT
from processes import PATIENCE, forked_python
from served import served

from vpo_agent.command import main
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.targets import load_policy
from vpo_agent.serve.server import Server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
FINE = {"prompt": "maze", "max_tokens": 8, "seed": 1}
PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]


@pytest.fixture(scope="module")
def server(bpe_model: Path) -> Iterator[Server]:
    with served(load_policy(str(bpe_model), device="cpu"), "tiny", max_tokens=100) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    openai = pytest.importorskip("openai", reason="the official client is not installed; the dev extra has it")
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=PATIENCE)


def ask(server: Server, path: str, body: Any) -> tuple[int, Any]:
    """Status and JSON of one request over a connection of its own."""
    connection = connect(server)
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def texts(answer: Any) -> list[str]:
    return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in answer["choices"]]


def complete(server: Server, **changes: Any) -> list[str]:
    status, answer = ask(server, COMPLETIONS, {**FINE, **changes})
    assert status == 200, answer
    return texts(answer)


def policy_of(family: str, *, eos: Any = ..., **changes: Any) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer() if eos is ... else toys.bpe_tokenizer(eos=eos)
    model = toys.tiny_model(family, tokenizer, **changes)
    return LMPolicy(toys.ends_often(model) if eos is ... else model, tokenizer)


def test_the_official_client_lists_the_model_completes_and_chats(client: Any, server: Server) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    settings = {"seed": 5, "temperature": 0.7, "n": 3}
    plain = client.completions.create(model="tiny", prompt="the maze", max_tokens=9, **settings)
    assert [choice.index for choice in plain.choices] == [0, 1, 2]
    assert len({choice.text for choice in plain.choices}) == 3
    assert {choice.finish_reason for choice in plain.choices} <= {"stop", "length"}
    assert plain.usage.prompt_tokens == len(server.engine.policy.tokenizer("the maze")["input_ids"])
    assert 3 <= plain.usage.completion_tokens <= 27
    # Without a chat template a single message is the prompt.
    messages = [{"role": "user", "content": "the maze"}]
    chat = client.chat.completions.create(model="default", messages=messages, max_completion_tokens=9, **settings)
    assert [choice.message.content for choice in chat.choices] == [choice.text for choice in plain.choices]


def test_log_probabilities_are_those_of_plain_forward_passes(letters_model: Path) -> None:
    policy = load_policy(str(letters_model), device="cpu")
    settings = {"seed": 5, "temperature": 0.5, "max_tokens": 9}
    with served(policy) as server:
        _, plain = ask(server, COMPLETIONS, {"prompt": "a b", "logprobs": 0, **settings})
        _, chat = ask(server, CHAT, {"messages": [{"role": "user", "content": "a b"}], "logprobs": True, **settings})
        assert ask(server, COMPLETIONS, FINE)[1]["choices"][0]["logprobs"] is None
    found = plain["choices"][0]["logprobs"]
    prompt, tokens = policy.tokenizer("a b")["input_ids"], policy.tokenizer.convert_tokens_to_ids(found["tokens"])
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits / 0.5, dim=-1)[range(len(tokens)), tokens]
    np.testing.assert_allclose(found["token_logprobs"], expected.numpy(), atol=1e-4)
    assert [one["logprob"] for one in chat["choices"][0]["logprobs"]["content"]] == found["token_logprobs"]


@torch.no_grad()
def alone(policy: LMPolicy, prompt: str, place: int, seed: int) -> tuple[str, str]:
    """An answer by forward passes over its own whole sequence, with no cache and no batch, and why it ended."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, place])))
    ids = policy.tokenizer(prompt)["input_ids"]
    answer: list[int] = []
    while len(answer) < 12:
        logits = policy.model(input_ids=torch.tensor([ids + answer])).logits[0, -1].double()
        cumulative = torch.softmax(logits / 0.8, dim=-1).cumsum(-1).numpy()
        token = int(np.searchsorted(cumulative, rng.random(dtype=np.float32) * cumulative[-1], side="right"))
        if token in policy.model.generation_config.eos_token_id:
            return policy.tokenizer.decode(answer, skip_special_tokens=True), "stop"
        answer.append(token)
    return policy.tokenizer.decode(answer, skip_special_tokens=True), "length"


def test_answers_in_a_batch_are_those_of_plain_forward_passes() -> None:
    policy = policy_of("qwen3")
    with served(policy, rows=7) as server, ThreadPoolExecutor(3) as pool:
        more = {"n": 4, "temperature": 0.8, "max_tokens": 12}
        bodies = [{"prompt": prompt, "seed": seed, **more} for seed, prompt in enumerate(PROMPTS)]
        found = list(pool.map(lambda body: ask(server, COMPLETIONS, body)[1]["choices"], bodies))
    for seed, (prompt, choices) in enumerate(zip(PROMPTS, found, strict=True)):
        answers = [(choice["text"], choice["finish_reason"]) for choice in choices]
        assert answers == [alone(policy, prompt, place, seed) for place in range(4)]


def test_a_seed_gives_the_same_answer_whoever_else_is_served(server: Server) -> None:
    one_by_one = [complete(server, seed=seed) for seed in range(-16, 16)]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda seed: complete(server, seed=seed), range(-16, 16))) == one_by_one
    assert len({text for (text,) in one_by_one}) > 20
    assert complete(server, n=3) == complete(server, n=8)[:3]
    assert complete(server, seed=None, n=4, max_tokens=20) != complete(server, seed=None, n=4, max_tokens=20)


def test_an_answer_ends_at_its_stop_string(server: Server) -> None:
    whole = complete(server, max_tokens=30, n=6)
    stop = max(whole, key=len)[len(max(whole, key=len)) // 2 :][:2]
    cut = [text.partition(stop) for text in whole]
    _, answer = ask(server, COMPLETIONS, {**FINE, "max_tokens": 30, "n": 6, "stop": ["\0never", stop]})
    assert texts(answer) == [head for head, _, _ in cut]
    assert all(one["finish_reason"] == "stop" for one, (_, mark, _) in zip(answer["choices"], cut, strict=True) if mark)
    kept = complete(server, max_tokens=30, n=6, stop=stop, include_stop_str_in_output=True)
    assert kept == [head + mark for head, mark, _ in cut]


def test_a_chat_goes_through_the_template_as_in_training() -> None:
    tokenizer = toys.bpe_tokenizer(chat=True)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer), tokenizer)
    with served(policy) as server:
        chat = {"messages": [{"role": "user", "content": "maze"}], "max_tokens": 8, "seed": 1}
        prompt = policy.tokenizer.decode(policy.encode_prompts(["maze"])[0][0])
        assert texts(ask(server, CHAT, chat)[1]) == complete(server, prompt=prompt)
        begun = [*chat["messages"], {"role": "assistant", "content": "the ans"}]
        more = {"messages": begun, "continue_final_message": True, "add_generation_prompt": False}
        assert texts(ask(server, CHAT, {**chat, **more})[1]) == complete(server, prompt=prompt + "the ans")


def test_without_a_limit_a_chat_may_fill_the_context_and_a_completion_has_16_tokens() -> None:
    with served(policy_of("gpt2", eos=None, n_positions=40)) as server:
        _, answer = ask(server, CHAT, {"messages": [{"role": "user", "content": "x" * 30}]})
        assert answer["usage"]["completion_tokens"] == 11
        assert answer["choices"][0]["finish_reason"] == "length"
        assert ask(server, COMPLETIONS, {"prompt": "x"})[1]["usage"]["completion_tokens"] == 16


SAID = [{"role": "user", "content": "x"}]
REFUSED: list[tuple[Any, str]] = [
    (b"{", "Expecting property name"),
    (b'{"prompt": "\xff"}', "not UTF-8"),
    (b"x" * 1_100_000, "bodies of at most 1,048,576 bytes"),
    ({}, "/v1/completions needs a prompt"),
    ({"prompt": 3}, "prompt: Input should be a valid string"),
    ({"prompt": "x", "n": 257}, "n: Input should be less than or equal to 256"),
    ({"prompt": "x", "temperature": -0.1}, "temperature: "),
    ({"prompt": "x", "seed": 1.5}, "seed: "),
    ({"prompt": "x", "stop": [""]}, "stop: "),
    (
        {"prompt": "x", "max_tokens": 101},
        "max_tokens is 101, but a prompt of 1 token leaves room for 100: lower max_tokens",
    ),
    ({"prompt": "x" * 250, "max_tokens": 20}, "max_tokens is 20, but a prompt of 250 tokens leaves room for 7"),
    ({"prompt": "x" * 300}, "the prompt has 300 tokens, and the model has 256 positions"),
    ({"prompt": "x", "model": "gpt"}, "unknown model 'gpt': this server has 'tiny', or 'default'"),
    ({"prompt": "x", "top_k": 5}, "top_k: not supported by this server: leave it out"),
    ({"prompt": "x", "stream": True}, "stream: not supported by this server: leave it out"),
    ({"prompt": "x", "logprobs": 2}, "logprobs: Input should be less than or equal to 0"),
    ({"prompt": "x", "something_new": [1]}, "something_new: not supported by this server: leave it out"),
    ({"messages": []}, "/v1/chat/completions needs messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages: "),
    ({"messages": [{"role": "user", "content": ""}]}, "the prompt has no tokens"),
    ({"messages": SAID, "continue_final_message": True}, "the last message must be the assistant's"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_a_bad_request_is_refused_and_told_why(server: Server, body: Any, message: str) -> None:
    chat = isinstance(body, dict) and "messages" in body
    status, answer = ask(server, CHAT if chat else COMPLETIONS, body)
    assert status == 400
    assert message in answer["error"]["message"]
    assert complete(server)


def test_fields_that_ask_for_nothing_are_taken(server: Server) -> None:
    more = {"user": "me", "logit_bias": None, "frequency_penalty": 0, "n": None, "stop": None, "top_k": -1}
    assert complete(server, **more) == complete(server)


def test_a_model_that_fails_is_reported_and_the_next_request_answered(server: Server) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    handle = server.engine.policy.model.register_forward_pre_hook(fail)
    status, answer = ask(server, COMPLETIONS, FINE)
    handle.remove()
    assert (status, answer["error"]["message"]) == (500, "the model failed: out of memory")
    assert complete(server)


def test_the_work_of_a_client_that_leaves_is_dropped_and_a_server_that_stops_says_so() -> None:
    policy = policy_of("llama", eos=None, max_position_embeddings=10**6)
    endless = {"prompt": "x", "n": 3, "max_tokens": 900_000}
    with ThreadPoolExecutor(1) as pool:
        with served(policy, rows=3, max_tokens=10**6) as server:
            connection = connect(server)
            connection.request("POST", COMPLETIONS, json.dumps(endless))
            time.sleep(0.2)
            connection.close()
            # The batch had no room for another one.
            assert complete(server)
            answer = pool.submit(ask, server, COMPLETIONS, endless)
            time.sleep(0.2)
        status, body = answer.result(timeout=PATIENCE)
    assert (status, body["error"]["message"]) == (500, "the model failed: the server is stopping")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(bpe_model: Path, number: signal.Signals) -> None:
    command = [forked_python(), "-m", "vpo_agent.command", "serve", str(bpe_model), "--port", "0", "--device", "cpu"]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **settings) as process:
        try:
            line = process.stdout.readline()
            said = rf"serving {bpe_model.name} \(cpu\) on http://127\.0\.0\.1:(\d+)/v1; Ctrl-C stops it\n"
            match = re.fullmatch(said, line)
            assert match, line
            connection = http.client.HTTPConnection(f"127.0.0.1:{match[1]}", timeout=PATIENCE)
            connection.request("GET", "/v1/models")
            assert json.loads(connection.getresponse().read())["data"][0]["id"] == bpe_model.name
            process.send_signal(number)
            _, complaints = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert complaints == "stopped\n"
    assert process.returncode == 130


def test_what_cannot_be_done_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for argv, message in [
            (["runs/nowhere", "--port", "0"], "'runs/nowhere' does not exist: give the folder of a run"),
            (["tiny-maze", "--port", port], f"cannot listen on 127.0.0.1:{port} ([Errno 98] Address already in use)"),
            (["tiny-maze", "--port", "0", "--host", "no such host"], "cannot listen on no such host"),
        ]:
            assert main(["serve", *argv]) == 2
            captured = capsys.readouterr()
            assert (captured.out, captured.err.count("\n")) == ("", 1)
            assert message in captured.err


SAID = "Perhaps <answer>41</answer>? No.</think>\n<answer>42</answer>"


def ask_for_the_answer(server: Server, **changes: Any) -> tuple[str, str]:
    """What a chat gets that stops at the tag of an answer, and why it ended."""
    body = {"messages": [{"role": "user", "content": "6*7?"}], "temperature": 0, "max_tokens": 90, **changes}
    status, answer = ask(server, CHAT, {"stop": "</answer>", "include_stop_str_in_output": True, **body})
    assert status == 200, answer
    (choice,) = answer["choices"]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize("template", [toys.CHATML, toys.ALWAYS_THINKS])
def test_a_stop_string_inside_thoughts_does_not_end_an_answer(template: str) -> None:
    tokenizer = toys.chat_tokenizer(template, *toys.CHATML_MARKS)
    opened = "" if template == toys.ALWAYS_THINKS else "<think>\n"
    policy = toys.taught(tokenizer, "6*7?", f"{opened}{SAID} and more")
    with served(policy) as server:
        assert ask_for_the_answer(server) == (f"<think>\n{SAID}", "stop")
        rest = SAID.removeprefix("Perhaps <answer>")
        for mark in ("<think>\n", opened):
            begun = {"role": "assistant", "content": f"{mark}Perhaps <answer>"}
            messages = [{"role": "user", "content": "6*7?"}, begun]
            assert ask_for_the_answer(server, messages=messages, continue_final_message=True) == (rest, "stop")


def test_a_chat_may_ask_the_template_for_thoughts() -> None:
    tokenizer = toys.chat_tokenizer(toys.MAY_THINK, *toys.CHATML_MARKS)
    with served(LMPolicy(toys.tiny_model("qwen3", tokenizer), tokenizer)) as server:
        counts = []
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        for thinking in (True, False, None):
            asked = {"chat_template_kwargs": {"enable_thinking": thinking}}
            counts.append(ask(server, CHAT, {**body, **asked})[1]["usage"]["prompt_tokens"])
        closed = len(tokenizer("<think>\n\n</think>\n\n", add_special_tokens=False)["input_ids"])
        assert counts == [counts[1] - closed, counts[1], counts[1]]
    with served(policy_of("llama")) as server:
        status, answer = ask(server, CHAT, {**body, "chat_template_kwargs": {"enable_thinking": True}})
        assert (status, "no switch for thinking" in answer["error"]["message"]) == (400, True)
