"""A chat reaches a model whole: through its template, without one, at an endpoint, in TRL and in verl."""

from __future__ import annotations

from typing import Any

import pytest
import toys
from scripted_endpoint import letters, scripted

import vpo_envs
from vpo_agent.adapters import verl
from vpo_agent.learning.warm_start import demonstrated
from vpo_agent.measure.sampling import sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import collect
from vpo_agent.rollouts.endpoint import EndpointPolicy
from vpo_agent.rollouts.prompts import check_prompts
from vpo_agent.search.evolution import best_of_n
from vpo_agent.search.settings import Settings
from vpo_envs.endpoint import Client

BEFORE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
]


def brief(completions: list[Any], **_: Any) -> list[float]:
    """Brief."""
    return [1 / (1 + len(one[0]["content"])) for one in completions]


@pytest.fixture(scope="module")
def env() -> Any:
    rows = [{"prompt": [*BEFORE, {"role": "user", "content": f"Say {n}."}], "answer": str(n)} for n in range(20)]
    return vpo_envs.from_functions(rows, [brief])


def policy(template: str | None) -> LMPolicy:
    tokenizer = toys.chat_tokenizer(template, *toys.CHATML_MARKS) if template else toys.bpe_tokenizer()
    return LMPolicy(toys.tiny_model("qwen3", tokenizer, max_position_embeddings=1024), tokenizer)


def asked(env: Any) -> list[dict[str, str]]:
    return list(env.chat_prompt(env.task(0), 1))


@pytest.mark.parametrize("template", [toys.CHATML, None], ids=["chat", "plain"])
def test_a_policy_reads_the_whole_chat(env: Any, template: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy(template)
    if template:
        text = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in asked(env))
        text += "<|im_start|>assistant\n"
    else:
        text = env.prompt(env.task(0), 1)
        assert text.startswith("Be brief.\n\nHello.\n\nHi.\n\nSay ")
    expected = made.tokenizer(text, add_special_tokens=False)["input_ids"]
    rollouts = collect(env, made, [env.task(0)], rollouts=2, max_new_tokens=4)
    shown = demonstrated(made, env, [0], toys.np.random.default_rng(0), [1])
    for samples in (rollouts.samples, shown):
        assert samples.prompt_ids[0].tolist() == expected
    assert check_prompts(made, env, [0], 4) == len(expected)
    encoded: list[Any] = []
    encode = made.encode_prompts
    monkeypatch.setattr(made, "encode_prompts", lambda prompts: encoded.append(prompts) or encode(prompts))
    best_of_n(env, made, [0], Settings(iterations=2, max_new_tokens=4))
    assert encoded == [[asked(env)]]


@pytest.mark.parametrize("chat", [True, False])
def test_an_endpoint_is_sent_the_whole_chat(env: Any, chat: bool) -> None:
    with scripted(letters) as endpoint:
        made = EndpointPolicy(Client(endpoint.url), "m", chat=chat)
        sample_pool(env, made, [0], rollouts=1, max_new_tokens=9, temperature=1.0, seed=[0])
    (body,) = endpoint.requests
    assert body["messages" if chat else "prompt"] == (asked(env) if chat else env.prompt(env.task(0), 1))


def test_data_sets_for_other_trainers_hold_the_whole_chat(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl, "make_text_env", lambda *_, **__: env)
    settings = {"env": "own/Functions-v0", "env_kwargs": {}, "num_answers": 1}
    assert verl.dataset_rows(settings, [0])[0]["prompt"] == asked(env)
    trl = pytest.importorskip("vpo_agent.adapters.trl", reason="needs the trl extra")
    for template in (toys.CHATML, None):
        made = policy(template)
        adapter = trl.TRLAdapter(env, made.tokenizer, rollouts_per_prompt=2, num_weights=2)
        prompt = adapter.dataset([0])[0]["prompt"]
        assert prompt == (asked(env) if template else env.prompt(env.task(0), 1))
        ids = adapter.trainer_type()._tokenize_prompts(None, [prompt])[0]
        assert ids == made.chat.encode([env.chat_prompt(env.task(0), 1)])
