"""A model behind an endpoint: the same pool whatever goes wrong on the way, and one sentence where nothing helps."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from scripted_endpoint import Body, Reply, Script, letters, scripted

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import sample_pool
from vpo_agent.rollouts.endpoint import EndpointPolicy
from vpo_agent.rollouts.replies import Answer, read_answers, refused_field
from vpo_envs.common.libraries import install_command
from vpo_envs.endpoint import Client, EndpointError

PROMPTS, ROLLOUTS = 3, 5
SOON = {"Retry-After-Ms": "1"}
"""Asks for the next try at once."""


def sampled(url: str, *, num_answers: int = 1, client: dict[str, Any] | None = None, **settings: Any) -> Pool:
    """The pool of a small request."""
    asked = Client(url, **(client or {}))
    env = toys.LettersEnv(num_answers=num_answers)
    sampling = {"rollouts": ROLLOUTS, "max_new_tokens": 20, "temperature": 1.0, "seed": [3, 1]}
    return sample_pool(env, EndpointPolicy(asked, "m", **settings), range(PROMPTS), **sampling)


@pytest.fixture(scope="module")
def undisturbed() -> Pool:
    with scripted() as endpoint:
        return sampled(endpoint.url)


def test_one_request_gets_all_answers_to_a_prompt(undisturbed: Pool) -> None:
    with scripted() as endpoint:
        pool = sampled(endpoint.url)
    assert pool.responses == undisturbed.responses
    assert pool.rewards.shape == (PROMPTS, ROLLOUTS, 1, 2)
    assert [(body["n"], body["max_tokens"], body["temperature"], body["model"]) for body in endpoint.requests] == [
        (ROLLOUTS, 20, 1.0, "m")
    ] * PROMPTS
    env = toys.LettersEnv()
    assert {body["messages"][0]["content"] for body in endpoint.requests} == {
        env.prompt(env.task(index), 1) for index in range(PROMPTS)
    }
    assert len({body["seed"] for body in endpoint.requests}) == PROMPTS
    assert {body["path"] for body in endpoint.requests} == {"/v1/chat/completions"}
    assert {body["key"] for body in endpoint.requests} == {None}
    assert pool.tokens is not None
    assert pool.tokens.tolist() == [[4] * ROLLOUTS] * PROMPTS
    usage = {"prompt_tokens": 7 * PROMPTS, "completion_tokens": 4 * PROMPTS * ROLLOUTS, "truncated": 0}
    known = {name: pool.source[name] for name in ("model", "endpoint", "usage")}
    assert known == {"model": "m", "endpoint": endpoint.url, "usage": usage}


def test_plain_completions_have_a_prompt_and_no_messages() -> None:
    with scripted() as endpoint:
        sampled(endpoint.url, chat=False)
    assert {body["path"] for body in endpoint.requests} == {"/v1/completions"}
    assert all(isinstance(body["prompt"], str) and "messages" not in body for body in endpoint.requests)


def refusing(*names: str, said: str = "Unsupported parameter: {}") -> Script:
    def script(body: Body, number: int) -> Reply | Body:
        bad = next((name for name in names if name in body), None)
        return letters(body) if bad is None else Reply(400, {"error": {"message": said.format(bad), "param": bad}})

    return script


@pytest.mark.parametrize(
    ("script", "without"),
    [
        (lambda body, number: letters(body, n=False), "n"),
        (refusing("n"), "n"),
        (refusing("n", said="number of choices must be 1"), "n"),
        (refusing("seed"), "seed"),
        (refusing("temperature"), "temperature"),
        (refusing("max_tokens", said="'{}' is not supported: use 'max_completion_tokens' instead"), "max_tokens"),
        (refusing("n", "seed", "temperature"), "seed"),
    ],
)
def test_what_a_server_refuses_or_ignores_is_no_longer_sent(script: Script, without: str) -> None:
    with scripted(script) as endpoint:
        pool = sampled(endpoint.url, concurrency=1)
    assert pool.responses is not None
    assert all(text.startswith("<answer>") for row in pool.responses for text in row)
    # One request shows it; those that were underway with several answers may ask once more.
    assert sum(without in body for body in endpoint.requests) <= PROMPTS
    assert without not in endpoint.requests[-1]
    if without == "n":
        seeds = [body["seed"] for body in endpoint.requests if "n" not in body and "seed" in body]
        assert len(seeds) == len(set(seeds)), "a seed twice would be the same answer twice"


def test_a_server_that_fails_where_it_should_refuse_several_answers_is_asked_for_one_at_a_time() -> None:
    def script(body: Body, number: int) -> Reply | Body:
        return Reply(500, "only one completion choice is allowed", SOON) if "n" in body else letters(body)

    with scripted(script) as endpoint:
        pool = sampled(endpoint.url, client={"retries": 2}, concurrency=1)
    assert pool.responses is not None
    assert sum(len(row) for row in pool.responses) == PROMPTS * ROLLOUTS
    assert ["n" in body for body in endpoint.requests] == [True] * 3 + [False] * PROMPTS * ROLLOUTS


def test_a_temperature_other_than_the_usual_one_is_not_left_out() -> None:
    assert refused_field("temperature is not supported", {"temperature": 0.7}) is None
    assert refused_field("temperature is not supported", {"temperature": 1.0}) == "temperature"


def test_a_server_that_gives_some_of_n_is_asked_for_the_rest() -> None:
    with scripted(lambda body, number: letters({**body, "n": min(2, body.get("n", 1))})) as endpoint:
        sampled(endpoint.url, concurrency=1)
    asked = Counter(body["messages"][0]["content"] for body in endpoint.requests)
    assert set(asked.values()) == {3}, "two, two and one"


@pytest.mark.parametrize(
    "bad",
    [
        Reply(503, {"error": {"message": "overloaded"}}, SOON),
        Reply(429, "<html>slow down</html>", SOON),
        Reply(204, ""),
        Reply(body="[" * 100_000),
        Reply(body="{", headers={"Content-Type": "application/json"}),
        Reply(body="Sure! Here is the answer."),
        Reply(body={"error": {"message": "upstream failed"}}),
        Reply(body={"choices": []}),
        Reply(body={"choices": [{"message": {"content": 5}}]}),
        Reply(sent=0),
        Reply(after=threading.Event(), sent=0),
    ],
)
def test_a_temporary_failure_leaves_no_trace_in_the_pool(bad: Reply, undisturbed: Pool) -> None:
    with scripted(lambda body, number: letters(body) if number % 2 else bad) as endpoint:
        pool = sampled(endpoint.url, client={"timeout": 0.5} if bad.after else {}, concurrency=1)
        if bad.after:
            bad.after.set()
    assert len(endpoint.requests) == 2 * PROMPTS
    assert pool.responses == undisturbed.responses
    np.testing.assert_array_equal(pool.rewards, undisturbed.rewards)
    assert pool.source["usage"] == undisturbed.source["usage"]


@pytest.mark.parametrize(("status", "asks_for_one"), [(500, True), (503, False)])
def test_a_server_that_keeps_failing_is_given_up(status: int, asks_for_one: bool) -> None:
    said = rf"answered with status {status} \(gone\), 3 times in a row"
    bad = scripted(lambda body, number: Reply(status, "gone", SOON))
    with bad as endpoint, pytest.raises(EndpointError, match=said):
        sampled(endpoint.url, client={"retries": 2}, concurrency=1)
    # At 500, several answers at a time may be what fails, so requests for one follow.
    assert ["n" in body for body in endpoint.requests[:6]] == [True] * 3 + [False] * 3 * asks_for_one


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Reply(401, {"error": {"message": "no key"}}), r"status 401 \(no key\): check the key, which key sets"),
        (Reply(401, {"error": "not sk-proj-0_1: task-9"}), r"status 401 \(not \*\*\*: task-9\)"),
        (Reply(403, {"detail": "not yours"}), r"status 403 \(not yours\): check the key"),
        (Reply(404, {"error": "no model m"}), r"status 404 \(no model m\): check the address and the model"),
        (Reply(400, {"message": "the prompt is too long"}), r"status 400 \(the prompt is too long\)"),
        (Reply(413, ""), r"status 413 \(Request Entity Too Large\)"),
        (Reply(307, "", {"Location": "https://elsewhere"}), r"status 307 \(Temporary Redirect\)"),
        (Reply(400, {"error": {"message": "\x1b[2Jgone\ud800"}}), r"status 400 \(\ufffd\[2Jgone\ufffd\)"),
        (Reply(429, "", {"Retry-After": "7200"}), "status 429"),
    ],
)
def test_what_another_try_cannot_help_ends_at_once(bad: Reply, message: str) -> None:
    with scripted(lambda body, number: bad) as endpoint, pytest.raises(EndpointError, match=message):
        sampled(endpoint.url, concurrency=1)
    # A refusal might be about n.
    assert len(endpoint.requests) == (2 if bad.status == 400 else 1)


@pytest.mark.parametrize("page", [" <!doctype html><p>Sign in", 'data: {"choices": []}\n\n', ": wait\n\ndata: [DONE]"])
def test_a_reply_that_is_no_json_is_shown_with_the_cure(page: str) -> None:
    said = r"sent '.*' instead of JSON: give the base of its API, often ending in /v1, and let it send answers whole"
    with scripted(lambda body, number: Reply(body=page)) as endpoint, pytest.raises(EndpointError, match=said):
        sampled(endpoint.url)


@pytest.mark.parametrize("models", [Reply(body="<html>"), Reply(sent=0)])
def test_an_address_that_is_no_api_is_noticed_before_anything_is_sampled(models: Reply) -> None:
    with scripted(models=models) as endpoint, pytest.raises(EndpointError, match=r"instead of JSON|cannot be reached"):
        sampled(endpoint.url)
    assert endpoint.requests == []


def test_an_endless_reply_is_given_up_before_it_fills_the_memory() -> None:
    bad = scripted(lambda body, number: Reply(forever=b"[" * 2**20))
    with bad as endpoint, pytest.raises(EndpointError, match=r"sent a reply of more than 64 MiB, 2 times in a row$"):
        sampled(endpoint.url, client={"retries": 1}, concurrency=1)


def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with scripted() as endpoint:
        pass
    with pytest.raises(EndpointError, match=r"cannot be reached \(Connection refused\)"):
        sampled(endpoint.url)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host/v1", "http://", "http://me:secret@host/v1", "http://host/v1?api_key=secret"]
)
def test_an_address_is_checked_and_its_secrets_are_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="an endpoint must be the base of an API, such as") as raised:
        Client(url)
    assert "secret" not in str(raised.value)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vpo_envs.common.libraries.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="a model behind an endpoint needs the package openai") as raised:
        Client("http://host")
    assert install_command("endpoint") in str(raised.value)


def test_an_address_without_a_path_is_that_of_version_1() -> None:
    assert Client("http://host:80/").url == Client("http://host:80").url == "http://host:80/v1"
    assert Client("https://host/api/v2/").url == "https://host/api/v2"


def test_a_key_is_sent_and_never_shown() -> None:
    secret = "sk-0123456789"

    def script(body: Body, number: int) -> Reply | Body:
        return letters(body) if number < 1 else Reply(401, {"error": {"message": f"wrong key {secret}"}})

    said = r"wrong key \*\*\*.*: check the key, which MY_KEY sets"
    with scripted(script) as endpoint, pytest.raises(EndpointError, match=said) as raised:
        sampled(endpoint.url, client={"key": secret, "key_name": "MY_KEY"}, concurrency=1)
    assert {body["key"] for body in endpoint.requests} == {f"Bearer {secret}"}
    assert secret not in str(raised.value)
    with pytest.raises(ValueError, match="the key in MY_KEY must be one word") as raised:
        Client("http://host", key=f"{secret}\nX: y", key_name="MY_KEY")
    assert secret not in str(raised.value)


def test_an_interrupted_pool_asks_only_for_what_it_lacks(
    undisturbed: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, total = tmp_path / "new" / "answers.jsonl", PROMPTS * ROLLOUTS
    fails = {4, 10}

    def script(body: Body, number: int) -> Reply | Body:
        return Reply(401, "expired") if number in fails else letters(body, n=False)

    def again(url: str) -> Pool:
        # A process that is killed leaves half a line.
        journal.write_bytes(journal.read_bytes() + b'\n["torn", "<ans')
        return sampled(url, journal=journal, concurrency=1)

    with scripted(script) as endpoint:
        with pytest.raises(EndpointError, match=f"4 of {total} answers are saved in .*new/answers.jsonl"):
            sampled(endpoint.url, journal=journal, concurrency=1)
        with pytest.raises(EndpointError, match=f"9 of {total} answers are saved"):
            again(endpoint.url)
        assert f"4 of {total} answers are in" in capsys.readouterr().err
        pool = again(endpoint.url)
        assert len(endpoint.requests) == total + len(fails)
        assert again(endpoint.url).responses == pool.responses
        assert len(endpoint.requests) == total + len(fails), "everything is there"
        # Another temperature, seed, model or address has other answers.
        sampled(endpoint.url, journal=journal, client={"timeout": 50})
        assert len(endpoint.requests) == total + len(fails), "the time limit is not part of the answer"
        sampled(endpoint.url, journal=journal, num_answers=3)
        assert len(endpoint.requests) > total + len(fails)
    with scripted(lambda body, number: letters(body, n=False)) as endpoint:
        assert sampled(endpoint.url).responses == pool.responses, "as without interruptions"


@pytest.mark.parametrize("fault", ["a folder", "no folder"])
def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path, fault: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path if fault == "a folder" else tmp_path / "file" / "answers.jsonl"
    with scripted() as endpoint, pytest.raises(ValueError, match=r"cannot (read the saved|save) answers"):
        sampled(endpoint.url, journal=path)
    assert endpoint.requests == [], "nothing is paid for that could not be kept"


def test_requests_are_made_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)

    def script(body: Body, number: int) -> Body:
        together.wait()
        return letters(body)

    with scripted(script) as endpoint:
        sampled(endpoint.url, concurrency=3)
    assert len(endpoint.requests) == PROMPTS


@pytest.mark.parametrize(("owner", "stops"), [("vllm", True), ("vpo-gym", True), ("someone", False), (["vllm"], False)])
def test_a_server_that_can_keep_the_stop_string_ends_answers_there(owner: Any, stops: bool) -> None:
    with scripted(models={"data": [{"id": "m", "owned_by": owner}]}) as endpoint:
        sampled(endpoint.url, num_answers=3)
    for body in endpoint.requests:
        expected = (["</answer_3>"], True) if stops else (None, None)
        assert (body.get("stop"), body.get("include_stop_str_in_output")) == expected


def reply(*texts: Any, finish: str = "stop", usage: Any = None) -> Body:
    choices = [{"message": {"content": text}, "finish_reason": finish} for text in texts]
    return {"choices": choices, "usage": usage}


def test_an_answer_ends_with_its_last_closing_tag_as_a_local_one_does() -> None:
    found = read_answers(reply("so <answer>a</answer> or <answer>b</answer>", "<answer>c", ""), "</answer>", 3)
    assert [answer.text for answer in found] == ["so <answer>a</answer>", "<answer>c", ""]


def test_a_refusal_or_an_unfinished_thought_is_an_empty_answer() -> None:
    (answer,) = read_answers(reply(None, finish="length"), "</answer>", 1)
    assert answer == Answer("", None, None, truncated=True)
    with pytest.raises(ValueError, match="a choice without text"):
        read_answers({"choices": [{"finish_reason": "stop"}]}, "</answer>", 1)


FINAL = "<answer>42</answer>"
DRAFT = "Perhaps <answer>41</answer>"


def thinking_aloud(body: Body, number: int = 0) -> Body:
    """A model that thinks, behind a server whose stop strings end its thoughts, and that can leave thoughts out."""
    whole = FINAL if body.get("chat_template_kwargs") == {"enable_thinking": False, "thinking": False} else SAID
    text = whole.partition("</answer>")[0] + "</answer>" if "stop" in body else whole
    return reply(*[text] * body.get("n", 1), usage={"prompt_tokens": 1, "completion_tokens": 9 * body.get("n", 1)})


SAID = f"<think>{DRAFT}? No.</think>{FINAL} and more"
APART = {"content": None, "reasoning_content": DRAFT}


@pytest.mark.parametrize(
    ("message", "finish", "text", "cut", "stopped"),
    [
        ({"content": SAID}, "stop", f"<think>{DRAFT}? No.</think>{FINAL}", False, False),
        # The template has opened the thoughts, which the server does not know.
        ({"content": SAID.removeprefix("<think>")}, "stop", f"{DRAFT}? No.</think>{FINAL}", False, False),
        ({"content": f"<think>{DRAFT}"}, "stop", f"<think>{DRAFT}", True, True),
        ({"content": f"<think>{DRAFT}"}, "length", f"<think>{DRAFT}", True, False),
        (APART, "stop", "", True, True),
        ({"content": "", "reasoning": DRAFT}, "stop", "", True, True),
        ({"content": [{"type": "thinking", "thinking": DRAFT}]}, "stop", "", True, True),
        ({"content": FINAL, "reasoning": DRAFT}, "stop", FINAL, False, False),
        ({"content": "I do not know.", "reasoning": DRAFT}, "stop", "I do not know.", False, False),
        ({"content": None, "refusal": "No."}, "stop", "", False, False),
    ],
)
def test_what_ends_inside_its_thoughts_is_cut_and_not_empty(
    message: Body, finish: str, text: str, cut: bool, stopped: bool
) -> None:
    choice = {"message": message, "finish_reason": finish}
    (answer,) = read_answers({"choices": [choice], "usage": None}, "</answer>", 1)
    assert (answer.text, answer.truncated, answer.stopped_in_thoughts) == (text, cut, stopped)


@pytest.mark.parametrize(("thinking", "stops"), [(None, 1), ("on", 0), ("off", PROMPTS)])
def test_stop_strings_that_fire_inside_thoughts_are_no_longer_sent(thinking: Any, stops: int) -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    with scripted(thinking_aloud, models=models) as endpoint:
        pool = sampled(endpoint.url, thinking=thinking, concurrency=1)
    assert pool.responses is not None
    assert {text[-len(FINAL) :] for row in pool.responses for text in row} == {FINAL}
    assert pool.source["usage"]["truncated"] == 0
    assert pool.source.get("thinking") == thinking
    assert sum("stop" in body for body in endpoint.requests) == stops
    asked = {name: thinking == "on" for name in ("enable_thinking", "thinking")} if thinking else None
    assert all(body.get("chat_template_kwargs") == asked for body in endpoint.requests)


def test_plain_completions_have_no_template_to_ask_for_thoughts() -> None:
    with pytest.raises(ValueError, match="leave --thinking out"):
        sampled("http://127.0.0.1:1/v1", chat=False, thinking="on")


def test_of_a_message_in_parts_the_text_counts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "<answer>b</answer>"}]}
    parts = [thought, {"type": "text", "text": "<answer>a"}, {"type": "text", "text": "</answer>"}]
    found = read_answers(reply(parts, [thought]), "</answer>", 2)
    assert [answer.text for answer in found] == ["<answer>a</answer>", ""]
    with pytest.raises(ValueError, match="a choice without text"):
        read_answers(reply(["a"]), "</answer>", 1)


def test_tokens_of_a_reply_are_divided_by_length() -> None:
    texts = ("a" * 9, "b" * 29, "")
    found = read_answers(reply(*texts, usage={"prompt_tokens": 11, "completion_tokens": 41}), "</answer>", 3)
    assert [answer.tokens for answer in found] == [10, 30, 1]
    assert [answer.prompt_tokens for answer in found] == [11, 0, 0]
    for usage in (None, {}, {"completion_tokens": "many"}, {"completion_tokens": -1}, {"completion_tokens": 2**31}, 5):
        found = read_answers(reply("a", "b", usage=usage), "</answer>", 2)
        assert {(answer.tokens, answer.prompt_tokens) for answer in found} == {(None, None)}


def test_more_answers_than_asked_for_are_left_out() -> None:
    assert len(read_answers(reply("a", "b", "c"), "</answer>", 2)) == 2


def test_a_pool_without_stated_tokens_knows_none() -> None:
    with scripted(lambda body, number: {**letters(body), "usage": None}) as endpoint:
        pool = sampled(endpoint.url)
    assert pool.tokens is None
    assert pool.source["usage"] == {"prompt_tokens": None, "completion_tokens": None, "truncated": 0}
