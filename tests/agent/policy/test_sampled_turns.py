"""Sampling with replies: their tokens, the log-probabilities around them, and where responses end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
import torch
import toys

from vpo_agent.policy.chat import ChatFormat, as_messages
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples
from vpo_agent.policy.turns import response_tokens
from vpo_envs.contract.turns import Turns
from vpo_envs.text import Call, calls_of, split_answers, split_turns, with_reply

PROMPTS = ["a maze", "an answer to the maze"]
SETTINGS: dict[str, Any] = {"rollouts": 6, "num_answers": 1, "max_new_tokens": 40, "temperature": 1.0, "seed": (3,)}
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def respond(calls: Sequence[Call]) -> str | None:
    """Say what was asked, and how often; nothing where nothing was."""
    text = calls[-1].text.strip()
    return f"{text} {len(calls)}" if text else None


def turns(max_calls: int = 3) -> list[Turns]:
    return [Turns(("look",), max_calls, respond)] * len(PROMPTS)


@pytest.fixture(scope="module", params=["plain", "chat"])
def policy(request: pytest.FixtureRequest) -> LMPolicy:
    """A model that looks, sometimes twice, and answers."""
    tokenizer = toys.bpe_tokenizer()
    if request.param == "chat":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>", "<|end|>"]})
        tokenizer.chat_template = CHAT
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0)
    looks = ["<look>maze</look>", "<look>a</look>", "<look>the</look>"]
    written = [f"{look}<answer>m</answer>" for look in looks] + [f"{looks[0]}{looks[1]}<answer>the</answer>"]
    chat = ChatFormat(tokenizer)
    prompts = [chat.apply(as_messages(prompt)) if chat.is_chat else prompt for prompt in PROMPTS]
    toys.teach(model, tokenizer, [(prompt, text) for prompt in prompts for text in written], steps=120)
    return LMPolicy(model, tokenizer)


@pytest.fixture(scope="module")
def samples(policy: LMPolicy) -> Samples:
    samples = policy.sample(PROMPTS, turns=turns(), **SETTINGS)
    assert sum(len(calls_of(text)) for text in samples.texts) > 3
    return samples


def test_a_response_holds_the_replies_of_its_environment(samples: Samples) -> None:
    for text in samples.texts:
        pieces = split_turns(text)
        calls = calls_of(text)
        assert len(pieces) == len(calls) + 1
        for number in range(len(calls)):
            assert pieces[number][1] == respond(calls[: number + 1])


def test_log_probabilities_are_those_of_a_plain_forward_pass(policy: LMPolicy, samples: Samples) -> None:
    for row in range(len(samples.ids)):
        prompt = samples.prompt_ids[row // 6][samples.prompt_mask[row // 6]]
        response = samples.ids[row][samples.mask[row]]
        trained = samples.trained[row][samples.mask[row]]
        ids = torch.cat([prompt, response])
        with torch.no_grad():
            logits = policy.model(input_ids=ids[None]).logits[0, len(prompt) - 1 : -1]
        plain = logits.log_softmax(-1).gather(1, response[:, None])[:, 0]
        assert torch.allclose(samples.log_probs[row][samples.mask[row]][trained], plain[trained], atol=1e-5)
    with torch.no_grad():
        found, _ = policy.log_probs(samples)
    assert torch.allclose(found[samples.trained], samples.log_probs[samples.trained], atol=1e-5)
    assert not found[~samples.trained].any()


def test_only_what_the_policy_wrote_counts(policy: LMPolicy, samples: Samples) -> None:
    assert not (samples.trained & ~samples.mask).any()
    assert samples.tokens.max() <= 40
    for row, text in enumerate(samples.texts):
        written = samples.ids[row][samples.trained[row]].tolist()
        own = "".join(piece for piece, _ in split_turns(text))
        assert policy.tokenizer.decode(written, skip_special_tokens=True).replace(" ", "") == own.replace(" ", "")


def test_replies_stand_between_the_turns(policy: LMPolicy, samples: Samples) -> None:
    for row, text in enumerate(samples.texts):
        ids, own = samples.ids[row][samples.mask[row]].tolist(), samples.trained[row][samples.mask[row]].tolist()
        runs = groupby(zip(ids, own, strict=True), itemgetter(1))
        holes = [[token for token, _ in run] for is_own, run in runs if not is_own]
        replies = [policy.chat.reply_text(reply) for _, reply in split_turns(text) if reply is not None]
        assert holes == policy.chat.encode_texts(replies) if replies else not holes
        if policy.chat.is_chat:
            assert all(reply.startswith("<|end|><|user|>") and reply.endswith("<|assistant|>") for reply in replies)


def test_a_demonstration_has_tokens_of_both(policy: LMPolicy) -> None:
    text = with_reply("<look>maze</look>", "the maze") + "<answer>m</answer>"
    [tokens], [trained] = response_tokens(policy.chat, [text])
    encode = policy.tokenizer.encode
    reply = policy.chat.reply_text("the maze")
    parts = [encode(part, add_special_tokens=False) for part in ("<look>maze</look>", reply, "<answer>m</answer>")]
    assert tokens == [token for part in parts for token in part]
    assert trained == [True] * len(parts[0]) + [False] * len(parts[1]) + [True] * len(parts[2])


def test_each_response_is_the_same_in_any_batch(policy: LMPolicy, samples: Samples) -> None:
    again = policy.sample(PROMPTS, turns=turns(), sample_batch=1, **SETTINGS)
    assert again.texts == samples.texts
    assert policy.sample(PROMPTS, turns=turns(), **{**SETTINGS, "seed": (4,)}).texts != samples.texts


def test_one_call_too_many_ends_a_response(policy: LMPolicy, samples: Samples) -> None:
    cut = policy.sample(PROMPTS, turns=turns(1), **SETTINGS)
    for before, after, truncated in zip(samples.texts, cut.texts, cut.truncated.tolist(), strict=True):
        if len(calls_of(before)) > 1:
            assert truncated
            assert len(calls_of(after)) == 1
            assert split_answers(after, 1) == [None]


def test_the_limit_counts_what_the_model_writes(policy: LMPolicy, samples: Samples) -> None:
    short = policy.sample(PROMPTS, turns=turns(), **{**SETTINGS, "max_new_tokens": 12})
    assert short.tokens.max() <= 12
    assert short.truncated.any()


def test_the_turns_end_where_the_context_does() -> None:
    tokenizer = toys.bpe_tokenizer()
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0)
    toys.teach(model, tokenizer, [(PROMPTS[0], "<look>maze</look>" * 6)], steps=150)
    policy = LMPolicy(model, tokenizer)
    limit = policy.cached_model.max_positions
    assert limit is not None
    endless = Turns(("look",), 1000, lambda calls: "the maze and an answer " * 10)
    samples = policy.sample([PROMPTS[0]], rollouts=4, num_answers=1, max_new_tokens=60, turns=[endless])
    lengths = samples.prompt_mask.sum(1) + samples.mask.sum(1)
    assert samples.truncated.any()
    with torch.no_grad():
        found, _ = policy.log_probs(samples)
    assert int(lengths.max()) > limit / 2
    assert torch.allclose(found[samples.trained], samples.log_probs[samples.trained], atol=1e-4)


def test_a_reply_that_speaks_of_thoughts_cuts_no_response(policy: LMPolicy) -> None:
    said = with_reply("<look>a</look>", "<think> the maze"), with_reply("<look>a</look>", "the maze") + "<think> so"
    tokens, trained = response_tokens(policy.chat, said)
    prompts = policy.encode_prompts(PROMPTS)
    zeros = [[0.0] * len(row) for row in tokens]
    made = Samples.of(prompts, tokens, zeros, [False, False], 1.0, said, trained)
    assert made.truncated.tolist() == [False, True]
