"""The supervised warm start: small models for any environment with demonstrations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toys

from vpo_agent.learning import update
from vpo_agent.learning.warm_start import WarmStart, demonstrated
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import add_adapters
from vpo_agent.policy.word_models import small_policy, with_words_of
from vpo_envs import MazeEnv, Status
from vpo_envs.registration import make_text_env


@pytest.fixture(scope="module")
def env() -> MazeEnv:
    return MazeEnv(preset="compact", num_answers=2)


def test_the_tokenizer_of_a_small_policy_reads_unseen_prompts_and_writes_answers_back(env: MazeEnv) -> None:
    policy = small_policy(env)
    prompts, _ = policy.encode_prompts([env.prompt(env.task(1_000), 2)])
    assert policy.tokenizer.unk_token_id not in prompts[0].tolist()
    samples = demonstrated(policy, env, [1_000], np.random.default_rng(0), [2])
    written = policy.tokenizer.decode(samples.ids[0][samples.mask[0]], skip_special_tokens=True)
    batch = env.score_batch([env.task(1_000)] * 2, [written, samples.texts[0]])
    assert batch.status[0, 0] == Status.OK
    np.testing.assert_array_equal(batch.status[0], batch.status[1])
    np.testing.assert_array_equal(batch.rewards[0], batch.rewards[1])
    assert samples.ids[0][samples.mask[0]][-1] == policy.tokenizer.eos_token_id


def test_a_policy_learns_the_words_of_another_task_and_keeps_what_it_knows(env: MazeEnv) -> None:
    before = small_policy(env)
    samples = demonstrated(before, env, [1_000], np.random.default_rng(0), [2])
    logits = before.model(samples.ids).logits
    other = make_text_env("vpo/EUREQA-v0", preset="compact")
    after = with_words_of(before, other)
    assert len(after.tokenizer) > logits.shape[-1]
    assert after.tokenizer.decode(samples.ids[0]) == before.tokenizer.decode(samples.ids[0])
    assert torch.equal(after.model(samples.ids).logits[..., : logits.shape[-1]], logits)
    prompts, _ = after.encode_prompts([other.prompt(other.task(1_000), 1)])
    assert after.tokenizer.unk_token_id not in prompts[0].tolist()


def take(job: WarmStart, steps: int) -> list[float]:
    """Take steps, and return their losses."""
    return [job.learn(job.samples()) for _ in range(steps)]


def test_the_rate_rises_over_a_fifth_of_the_steps_and_falls_over_the_last_fifth(
    env: MazeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = WarmStart(small_policy(env), env, steps=10, batch=2, learning_rate=1e-3)
    rates: list[float] = []
    monkeypatch.setattr(job.optimizer, "step", lambda rate, max_norm: rates.append(rate))
    take(job, 10)
    assert rates == pytest.approx([0.5e-3, *[1e-3] * 8, 0.5e-3])


def test_responses_longer_than_the_context_are_refused(env: MazeEnv) -> None:
    policy = small_policy(env, positions=32)
    with pytest.raises(ValueError, match=r"^task [01] of the split .* a prompt of \d+ tokens .* 32 positions"):
        take(WarmStart(policy, env, steps=1, batch=2, learning_rate=1e-3), 1)


def test_responses_to_one_task_share_its_prompt(env: MazeEnv) -> None:
    policy, tasks = small_policy(env), [env.task(index) for index in range(3)]
    samples = demonstrated(policy, env, range(3), np.random.default_rng(0), [1, 2], each=4)
    assert len(samples.prompt_ids) == 3
    assert samples.rollouts_per_prompt == 4
    for row, task in enumerate(tasks):
        texts = samples.texts[4 * row : 4 * row + 4]
        (m,) = {1 + ("<answer_2>" in text) for text in texts}
        single = MazeEnv(preset="compact", num_answers=m)
        assert (single.score_batch([task] * 4, texts).status == Status.OK).all()
        (prompt,), _ = policy.encode_prompts([env.prompt(task, m)])
        assert samples.prompt_ids[row][samples.prompt_mask[row]].tolist() == prompt.tolist()


def test_a_batch_of_several_responses_each_has_fewer_tasks(env: MazeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, asked = small_policy(env), []
    task = env.task
    monkeypatch.setattr(env, "task", lambda index: asked.append(index) or task(index))
    take(WarmStart(policy, env, steps=2, batch=6, learning_rate=1e-3, responses=2), 2)
    assert asked == [0, 1, 2, 3, 4, 5]


# --- pretrained models ---


def chat_model(scale: float) -> tuple[Any, Any]:
    tokenizer = toys.bpe_tokenizer(chat=True)
    return toys.tiny_model("llama", tokenizer, scale=scale, max_position_embeddings=512), tokenizer


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("max_tokens", [1, 10_000], ids=["prompts apart", "prompts together"])
def test_the_loss_is_that_of_the_response_tokens_after_the_templated_prompt(
    monkeypatch: pytest.MonkeyPatch, checkpointing: bool, max_tokens: int
) -> None:
    monkeypatch.setattr(update, "CPU_TOKENS", max_tokens)
    model, tokenizer = chat_model(scale=1.0)
    policy, env = LMPolicy(model, tokenizer, gradient_checkpointing=checkpointing), toys.ShownLettersEnv(num_answers=2)
    samples = demonstrated(policy, env, range(3), np.random.default_rng([5, 0]), [1, 2], each=2)
    losses = []
    for row in range(6):
        head = samples.prompt_ids[row // 2][samples.prompt_mask[row // 2]]
        tail = samples.ids[row][samples.mask[row]]
        assert tokenizer.decode(head).startswith("[user] pick ")
        assert tokenizer.decode(head).endswith("[assistant] (no thinking) ")
        assert tokenizer.decode(tail).startswith("<answer")
        logits = model(torch.cat([head, tail])[None]).logits[0, len(head) - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits, tail, reduction="none"))
    expected = torch.cat(losses).mean()
    expected.backward()
    gradient = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    job = WarmStart(policy, env, steps=1, batch=6, responses=2, answers=[1, 2], learning_rate=1e-3, seed=5)
    monkeypatch.setattr(job.optimizer, "step", lambda *args, **kwargs: 0.0)
    assert take(job, 1) == pytest.approx([expected.item()], rel=1e-5)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, gradient[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_alone_learn_the_demonstrations_of_a_chat_model(dtype: torch.dtype) -> None:
    pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    model, tokenizer = chat_model(scale=4.0)
    policy, env = LMPolicy(add_adapters(model.to(dtype), 4), tokenizer), toys.ShownLettersEnv()
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    job = WarmStart(policy, env, steps=100, batch=8, learning_rate=0.1)
    losses = take(job, 25)
    assert losses[-1] < losses[0] - 1
    changed = {name for name, weight in policy.model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if "lora_" in name}
