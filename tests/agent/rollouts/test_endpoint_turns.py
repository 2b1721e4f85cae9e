"""An endpoint in an environment that replies: what is sent in each turn, where responses end, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from scripted_endpoint import Body, Reply, Script, scripted
from served import served

from vpo_agent.command import main
from vpo_agent.measure.pool import Pool
from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import TextResponses
from vpo_agent.rollouts.endpoint import EndpointPolicy
from vpo_agent.runs.targets import find_model
from vpo_envs.contract.turns import Turns
from vpo_envs.endpoint import Client, EndpointError
from vpo_envs.text import Call, calls_of, split_turns, with_reply

PROMPT = "Look, then answer."
KEEPS_STOP = {"data": [{"id": "m", "owned_by": "vllm"}]}


def respond(calls: Sequence[Call]) -> str | None:
    """Say what was looked at, and how often; nothing where nothing was."""
    return f"{calls[-1].text} {len(calls)}" if calls[-1].text else None


def asked(url: str, *, rollouts: int = 2, limit: int = 40, max_calls: int = 3, **settings: Any) -> TextResponses:
    turns = [Turns(("look", "peek"), max_calls, respond)]
    policy = EndpointPolicy(Client(url, retries=0), "m", concurrency=1, **settings)
    return policy.sample([PROMPT], rollouts=rollouts, num_answers=1, max_new_tokens=limit, turns=turns)


def speaking(*turns: str, tokens: int = 5) -> Script:
    """A model that says the same in every conversation, one text a turn, each of so many tokens."""

    def script(body: Body, number: int) -> Body:
        if "prompt" in body:
            turn = body["prompt"].count("<reply>")
        else:
            turn = sum(message["role"] == "user" for message in body["messages"]) - 1
            turn += bool(body.get("continue_final_message"))
        said = {"text": turns[turn]} if "prompt" in body else {"message": {"content": turns[turn]}}
        count = body.get("n", 1)
        usage = {"prompt_tokens": 10 * (turn + 1), "completion_tokens": tokens * count}
        return {"choices": [{**said, "finish_reason": "stop"}] * count, "usage": usage}

    return script


ONE_LOOK = with_reply("First <look>a</look>", "a 1") + "So <answer>b</answer>"


def test_a_reply_is_the_next_message_of_the_user() -> None:
    with scripted(speaking("First <look>a</look>", "So <answer>b</answer>")) as endpoint:
        responses = asked(endpoint.url)
    assert responses.texts == [ONE_LOOK, ONE_LOOK]
    messages = [
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": "First <look>a</look>"},
        {"role": "user", "content": "a 1"},
    ]
    assert [(body["messages"], body.get("n")) for body in endpoint.requests] == [
        (messages[:1], 2),
        (messages, None),
        (messages, None),
    ]
    assert len({body["seed"] for body in endpoint.requests}) == 3
    assert responses.tokens is not None
    assert responses.tokens.tolist() == [10, 10]
    assert responses.origin["usage"] == {"prompt_tokens": 10 + 20 + 20, "completion_tokens": 20, "truncated": 0}


def test_in_plain_completions_a_reply_continues_the_prompt() -> None:
    with scripted(speaking("First <look>a</look>", "So <answer>b</answer>")) as endpoint:
        assert asked(endpoint.url, chat=False).texts == [ONE_LOOK, ONE_LOOK]
    assert [body["prompt"] for body in endpoint.requests] == [
        PROMPT,
        *[f"{PROMPT}First <look>a</look>\n<reply>a 1</reply>\n"] * 2,
    ]


def test_a_model_that_plays_the_environment_is_cut_at_its_call() -> None:
    written = "First <look>a</look> It says c. <answer>c</answer>"
    with scripted(speaking(written, "So <answer>b</answer>", tokens=20)) as endpoint:
        responses = asked(endpoint.url)
    assert responses.texts == [ONE_LOOK, ONE_LOOK]
    # What was generated counts as cost; the limit counts the response alone.
    assert responses.tokens is not None
    assert responses.tokens.tolist() == [40, 40]
    assert [body["max_tokens"] for body in endpoint.requests] == [40, 32, 32]
    assert all("stop" not in body for body in endpoint.requests)


def test_a_server_that_keeps_stop_strings_stops_at_a_call() -> None:
    with scripted(speaking("First <look>a</look>", "So <answer>b</answer>"), models=KEEPS_STOP) as endpoint:
        assert asked(endpoint.url).texts == [ONE_LOOK, ONE_LOOK]
    assert {tuple(body["stop"]) for body in endpoint.requests} == {("</answer>", "</look>", "</peek>")}


def test_the_model_writes_on_where_there_is_nothing_to_say() -> None:
    turns = "First <look></look>", " again <look>a</look>", "So <answer>b</answer>"
    expected = with_reply("First <look></look> again <look>a</look>", "a 1") + "So <answer>b</answer>"
    asked_to_go_on = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "First <look></look>"}]

    def script(body: Body, number: int) -> Body:
        answer = {"message": {"content": turns[number]}, "finish_reason": "stop"}
        return {"choices": [answer]}

    with scripted(script, models=KEEPS_STOP) as endpoint:
        assert asked(endpoint.url, rollouts=1).texts == [expected]
    assert endpoint.requests[1]["messages"] == asked_to_go_on
    assert endpoint.requests[1]["continue_final_message"]
    assert not endpoint.requests[1]["add_generation_prompt"]
    assert "continue_final_message" not in endpoint.requests[2]
    # Where the model itself has stopped there, it is not asked to go on.
    with scripted(script) as endpoint:
        assert asked(endpoint.url, rollouts=1).texts == ["First <look></look>"]
    assert len(endpoint.requests) == 1


def test_one_call_too_many_ends_a_response() -> None:
    with scripted(speaking(*["<look>a</look>"] * 3)) as endpoint:
        responses = asked(endpoint.url, max_calls=1)
    assert responses.texts == [with_reply("<look>a</look>", "a 1") + "<look>a</look>"] * 2
    assert responses.origin["usage"]["truncated"] == 2


def test_the_limit_counts_what_the_model_writes_over_all_turns() -> None:
    with scripted(speaking(*["<look>a</look>"] * 5)) as endpoint:
        responses = asked(endpoint.url, rollouts=1, limit=12)
    assert [body["max_tokens"] for body in endpoint.requests] == [12, 7, 2]
    assert len(calls_of(responses.texts[0])) == 3
    assert responses.origin["usage"]["truncated"] == 1


def refusing_the_second_turn(body: Body, number: int) -> Reply | Body:
    if len(body["messages"]) > 1:
        return Reply(400, {"error": {"message": "the context has 100 tokens"}})
    return speaking("First <look>a</look>")(body, number)


def test_a_response_ends_where_the_endpoint_takes_no_further_turn(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(refusing_the_second_turn) as endpoint:
        responses = asked(endpoint.url)
    assert responses.texts == [with_reply("First <look>a</look>", "a 1")] * 2
    assert responses.origin["usage"]["truncated"] == 2
    assert capsys.readouterr().err.count("whose next turn the endpoint refuses count as cut") == 1


@pytest.mark.parametrize("status", [401, 500])
def test_a_failure_in_a_later_turn_is_no_end_of_a_response(status: int) -> None:
    def script(body: Body, number: int) -> Reply | Body:
        return Reply(status, "gone") if number else speaking("First <look>a</look>")(body, number)

    with scripted(script) as endpoint, pytest.raises(EndpointError, match=f"status {status}"):
        asked(endpoint.url)


def test_an_interrupted_conversation_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "answers.jsonl"
    speak = speaking("First <look>a</look>", "So <answer>b</answer>")

    def script(body: Body, number: int) -> Reply | Body:
        return Reply(401, "expired") if number == 2 else speak(body, number)

    with scripted(script) as endpoint:
        with pytest.raises(EndpointError, match="1 of 2 answers are saved in"):
            asked(endpoint.url, journal=journal)
        responses = asked(endpoint.url, journal=journal)
        assert responses.texts == [ONE_LOOK, ONE_LOOK]
        assert responses.origin["usage"]["prompt_tokens"] == 10 + 20 + 20
        assert "1 of 2 answers are in" in capsys.readouterr().err
        assert len(endpoint.requests) == 3 + 1
        assert asked(endpoint.url, journal=journal).texts == [ONE_LOOK, ONE_LOOK]
        assert len(endpoint.requests) == 4, "everything is there"
        policy = EndpointPolicy(Client(endpoint.url), "m", journal=journal)
        turns = [Turns(("look", "peek"), 3, respond)]
        policy.sample([PROMPT], rollouts=2, num_answers=1, max_new_tokens=40, turns=turns)
        policy.forget()
    assert not journal.exists()


CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("chat", [True, False], ids=["with a template", "without"])
def test_a_served_model_writes_what_it_writes_locally(chat: bool) -> None:
    """Nearly greedy, so that both are certain; the model of a server is asked as it would be asked here."""
    tokenizer = toys.chat_tokenizer(CHAT, "<|user|>", "<|assistant|>", "<|end|>") if chat else toys.bpe_tokenizer()
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0)
    prompts = ["a maze", "an answer to the maze"]
    said = {"a maze": "<look>maze</look> so <answer>m</answer>", prompts[1]: "<look></look> no <look>a</look>"}
    form = ChatFormat(tokenizer)
    heads = {prompt: form.apply([{"role": "user", "content": prompt}]) if chat else prompt for prompt in prompts}
    toys.teach(model, tokenizer, [(heads[prompt], text) for prompt, text in said.items()], steps=120)
    policy = LMPolicy(model.eval(), tokenizer)
    turns = [Turns(("look",), 2, respond)] * 2
    sampling: dict[str, Any] = {"rollouts": 2, "num_answers": 1, "max_new_tokens": 40, "temperature": 0.001}
    local = policy.sample(prompts, turns=turns, **sampling)
    assert all(calls_of(text) for text in local.texts)
    assert all(text.startswith("<look></look> no") for text in local.texts[2:]), "they write on"
    with served(policy) as server:
        remote = EndpointPolicy(Client(server.base_url), "default").sample(prompts, turns=turns, **sampling)
    assert remote.texts == local.texts
    assert remote.origin["usage"]["truncated"] == int(local.truncated.sum())
    assert remote.tokens is not None
    assert remote.tokens.tolist() == local.tokens.tolist()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("local")
    assert main(["eval", "tiny-archive", *ARCHIVE, "--device", "cpu", "--out", str(folder / "out")]) == 0
    return Pool.load(folder / "out" / "pool.npz")


ARCHIVE = [
    "--env",
    "vpo/Archive-v0",
    "--env-kwargs",
    '{"preset": "compact"}',
    "--num-answers",
    "3",
    "--max-new-tokens",
    "40",
]
ARCHIVE += ["--eval-prompts", "40", "--k", "9", "--temperature", "1"]


@pytest.mark.parametrize("options", [[], ["--api", "completions"]], ids=["chat", "completions"])
def test_a_served_model_opens_documents_as_the_local_one_does(options: list[str], local: Pool, tmp_path: Path) -> None:
    policy = LMPolicy.from_pretrained(find_model("tiny-archive"), device="cpu")
    out = tmp_path / "remote"
    with served(policy, "tiny-archive") as server:
        command = ["eval", "--endpoint", server.base_url, "--model", "tiny-archive", *ARCHIVE, "--out", str(out)]
        assert main([*command, *options]) == 0
    remote = Pool.load(out / "pool.npz")
    assert remote.rewards.shape == local.rewards.shape == (40, 3, 3, 3)
    mine, theirs = (pool.rewards.reshape(-1, 3) for pool in (local, remote))
    noise = np.sqrt((mine.var(axis=0) + theirs.var(axis=0)) / 120)
    assert (np.abs(mine.mean(axis=0) - theirs.mean(axis=0)) < 4 * noise).all()
    assert mine.mean() > 0.2, "most answers are right"
    assert remote.responses is not None
    assert local.responses is not None
    assert local.tokens is not None
    assert remote.tokens is not None
    assert remote.tokens.mean() == pytest.approx(local.tokens.mean(), rel=0.05)
    calls = [np.mean([len(calls_of(text)) for row in pool.responses for text in row]) for pool in (local, remote)]
    assert calls[1] == pytest.approx(calls[0], rel=0.1)
    assert all(reply is None or reply for row in remote.responses for text in row for _, reply in split_turns(text))
