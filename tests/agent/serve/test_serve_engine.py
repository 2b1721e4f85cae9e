"""The engine: many requests in one batch give the answers that each would have had alone."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import toys

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.engine import Busy, Engine, Piece, Request, Stopped

PATIENCE = 60
"""Seconds after which an answer is not coming."""
PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]


def make_policy(family: str = "llama", **changes: Any) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.ends_often(toys.tiny_model(family, tokenizer, **changes)), tokenizer)


@pytest.fixture(scope="module")
def policy() -> LMPolicy:
    return make_policy()


@pytest.fixture
def engine(policy: LMPolicy) -> Iterator[Engine]:
    made = Engine(policy)
    yield made
    made.close()


def make_endless() -> LMPolicy:
    """A policy whose answers have no end but their limit."""
    tokenizer = toys.bpe_tokenizer(eos=None)
    return LMPolicy(toys.tiny_model("qwen3", tokenizer), tokenizer)


class Caller:
    """Sends a request and gathers what is delivered."""

    def __init__(self, engine: Engine, prompts: str | list[str], n: int = 1, **settings: Any) -> None:
        self.events: queue.Queue[Piece | Exception] = queue.Queue()
        prompts = [prompts] if isinstance(prompts, str) else prompts
        ids = [engine.policy.tokenizer(prompt)["input_ids"] for prompt in prompts]
        settings = {"max_tokens": 12, "temperature": 0.8, "seed": 3, **settings}
        self.request = Request(ids, n, self.events.put, **settings)
        self.engine = engine

    def send(self) -> Caller:
        self.engine.submit(self.request)
        return self

    def next(self) -> Piece:
        piece = self.events.get(timeout=PATIENCE)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def answers(self) -> list[Piece]:
        """The answers in order, those of a stream put together."""
        texts: dict[int, str] = {}
        done: dict[int, Piece] = {}
        while len(done) < self.request.answers:
            piece = self.next()
            texts[piece.index] = texts.get(piece.index, "") + piece.text
            if piece.finish:
                done[piece.index] = Piece(piece.index, texts[piece.index], piece.finish, piece.tokens)
        return [done[index] for index in sorted(done)]

    def texts(self) -> list[str]:
        return [piece.text for piece in self.answers()]


@torch.no_grad()
def alone(policy: LMPolicy, prompt: str, place: int, seed: int, temperature: float, max_tokens: int) -> Piece:
    """An answer by forward passes over its own whole sequence, with no cache and no batch."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, place])))
    ids = policy.tokenizer(prompt)["input_ids"]
    ending = policy.model.generation_config.eos_token_id or ()
    answer: list[int] = []
    for count in range(1, max_tokens + 1):
        logits = policy.model(input_ids=torch.tensor([ids + answer])).logits[0, -1].double()
        cumulative = torch.softmax(logits / temperature, dim=-1).cumsum(-1).numpy()
        token = int(np.searchsorted(cumulative, rng.random(dtype=np.float32) * cumulative[-1], side="right"))
        if token in ending:
            return Piece(place, policy.tokenizer.decode(answer, skip_special_tokens=True), "stop", count)
        answer.append(token)
    return Piece(place, policy.tokenizer.decode(answer, skip_special_tokens=True), "length", max_tokens)


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_answers_in_a_batch_are_those_of_plain_forward_passes(family: str) -> None:
    policy = make_policy(family)
    assert policy.cached_model.joins_any_time == (family != "gemma2")
    engine = Engine(policy, max_rows=7)
    callers = [Caller(engine, prompt, n=4, seed=seed).send() for seed, prompt in enumerate(PROMPTS)]
    found = [caller.answers() for caller in callers]
    engine.close()
    for seed, (prompt, pieces) in enumerate(zip(PROMPTS, found, strict=True)):
        assert pieces == [alone(policy, prompt, place, seed, 0.8, 12) for place in range(4)]
    assert {piece.finish for pieces in found for piece in pieces} == {"stop", "length"}


def test_a_request_joins_while_another_is_running() -> None:
    policy = make_endless()
    engine = Engine(policy)
    first = Caller(engine, PROMPTS[0], max_tokens=200, seed=0, stream=True)
    second = Caller(engine, PROMPTS[1], max_tokens=20, seed=1, stream=True)
    deliver, together = first.request.deliver, []

    def send_second(piece: Piece | Exception) -> None:
        if not together:
            second.send()
        together.append(engine.running)
        deliver(piece)

    first.request.deliver = send_second
    first.send()
    answers = [second.answers()[0].text, first.answers()[0].text]
    engine.close()
    assert max(together) == 2
    expected = [alone(policy, PROMPTS[1], 0, 1, 0.8, 20).text, alone(policy, PROMPTS[0], 0, 0, 0.8, 200).text]
    assert answers == expected


def test_the_answers_of_a_request_differ_and_its_seed_gives_them_again(engine: Engine) -> None:
    first = Caller(engine, "maze", n=8).send().texts()
    assert len(set(first)) > 4
    assert Caller(engine, "maze", n=8).send().texts() == first
    assert Caller(engine, "maze", n=3).send().texts() == first[:3]
    assert Caller(engine, ["answer", "maze"], n=3).send().texts()[3:] == first[:3]
    assert Caller(engine, "maze", n=8, seed=4).send().texts() != first


def test_a_negative_seed_is_a_seed(engine: Engine) -> None:
    first = Caller(engine, "maze", n=4, seed=-1).send().texts()
    assert Caller(engine, "maze", n=4, seed=-1).send().texts() == first
    assert Caller(engine, "maze", n=4, seed=1).send().texts() != first


def test_without_a_seed_every_request_draws_anew(engine: Engine) -> None:
    draws = [Caller(engine, "maze", n=4, seed=None).send().texts() for _ in range(2)]
    assert draws[0] != draws[1]


def test_temperature_zero_takes_the_most_likely_token(engine: Engine, policy: LMPolicy) -> None:
    (text,) = Caller(engine, "maze", temperature=0.0, max_tokens=6, seed=None).send().texts()
    ids = policy.tokenizer("maze", return_tensors="pt")["input_ids"]
    expected = policy.model.generate(ids, do_sample=False, max_new_tokens=6)[0, ids.shape[1] :]
    ending = policy.model.generation_config.eos_token_id
    assert text == policy.tokenizer.decode([token for token in expected.tolist() if token not in ending])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_an_answer_ends_at_its_own_stop_string(engine: Engine, stream: bool, keep: bool) -> None:
    whole = Caller(engine, "maze", n=6, max_tokens=30).send().texts()
    text = max(whole, key=len)
    stop = text[len(text) // 2 :][:2]
    assert len(stop) == 2
    cut = [text.partition(stop) for text in whole]
    wanted = {"n": 6, "max_tokens": 30, "stop": ("\0never", stop), "keep_stop": keep, "stream": stream}
    found = Caller(engine, "maze", **wanted).send().answers()
    assert [piece.text for piece in found] == [head + (mark if keep else "") for head, mark, _ in cut]
    assert all(piece.finish == "stop" for piece, (_, mark, _) in zip(found, cut, strict=True) if mark)


def test_a_stream_has_the_text_of_the_whole_answer(engine: Engine) -> None:
    whole = Caller(engine, PROMPTS, n=2).send().answers()
    assert Caller(engine, PROMPTS, n=2, stream=True).send().answers() == whole


def test_more_answers_than_rows_are_all_given(policy: LMPolicy) -> None:
    engine = Engine(policy, max_rows=3)
    some = Caller(engine, PROMPTS, n=5).send().texts()
    engine.close()
    roomy = Engine(policy)
    assert Caller(roomy, PROMPTS, n=5).send().texts() == some
    roomy.close()


def test_a_cancelled_request_leaves_the_batch_and_the_queue() -> None:
    engine = Engine(make_endless(), max_rows=1)
    running = Caller(engine, "maze", max_tokens=10**9, stream=True).send()
    running.next()
    queued = Caller(engine, "maze").send()
    last = Caller(engine, "maze", max_tokens=3).send()
    engine.cancel(queued.request)
    engine.cancel(running.request)
    assert len(last.answers()) == 1
    assert queued.events.empty()
    # The engine says what ended before it takes the row out.
    deadline = time.monotonic() + 120
    while (engine.running, engine.waiting) != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (engine.running, engine.waiting) == (0, 0)
    engine.close()


def test_a_full_queue_refuses() -> None:
    engine = Engine(make_endless(), max_rows=1, max_waiting=4)
    running = Caller(engine, "maze", max_tokens=10**9, stream=True).send()
    running.next()
    Caller(engine, "maze", n=3).send()
    with pytest.raises(Busy, match="the queue has 3 waiting answers, of at most 4"):
        Caller(engine, "maze", n=2).send()
    engine.close()
    with pytest.raises(Stopped):
        running.answers()


def test_a_failing_model_is_reported_and_the_next_request_answered(engine: Engine, policy: LMPolicy) -> None:
    expected = Caller(engine, "maze", n=2).send().texts()
    failing = threading.Event()

    def fail(*_: Any) -> None:
        if failing.is_set():
            failing.clear()
            raise RuntimeError("out of memory")

    handle = policy.model.register_forward_pre_hook(fail)
    failing.set()
    with pytest.raises(RuntimeError, match="out of memory"):
        Caller(engine, "maze").send().answers()
    assert Caller(engine, "maze", n=2).send().texts() == expected
    handle.remove()


def test_a_closed_engine_takes_nothing(policy: LMPolicy) -> None:
    engine = Engine(policy)
    engine.close()
    assert not engine.alive
    with pytest.raises(Stopped):
        Caller(engine, "maze").send()
