"""Packed batches: the same numbers as one sequence at a time, with nothing computed for padding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toys
from torch.nn.attention import SDPBackend, sdpa_kernel
from toys import make_policy
from transformers import AutoConfig, MistralConfig, MistralForCausalLM

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.packing import ATTENTION, pack
from vpo_agent.policy.samples import Samples

PACKED_FAMILIES = ("qwen3", "llama", "gpt2", "opt")
PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]


def sample(policy: LMPolicy, prompts: list[str] = PROMPTS) -> Samples:
    return policy.sample(prompts, rollouts=4, num_answers=1, max_new_tokens=12, temperature=0.8, seed=(5,))


def assert_gradient_is_that_of_plain_sequences(policy: LMPolicy, samples: Samples) -> None:
    """Compare the gradient of a weighted sum with that of a forward pass for each response alone."""
    trained = {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}
    pull = torch.linspace(-1, 1, samples.mask.numel()).view(samples.mask.shape)
    plain = (torch.cat(toys.plain_log_probs(policy, samples)) * pull[samples.mask]).sum()
    expected = torch.autograd.grad(plain, list(trained.values()))
    policy.model.zero_grad()
    (policy.log_probs(samples)[0] * pull).sum().backward()
    scale = max(float(gradient.norm()) for gradient in expected)
    for (name, weight), gradient in zip(trained.items(), expected, strict=True):
        assert weight.grad is not None
        assert float((weight.grad - gradient).norm()) <= 1e-4 * scale, name


def test_repeated_heads_give_what_shared_heads_give() -> None:
    """A GPU repeats the heads, a CPU does not."""
    samples = sample(make_policy("qwen3"))
    assert not samples.prompt_mask.all()
    batch = pack(samples)
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(1, heads, batch.ids.shape[1], 16, generator=generator) for heads in (8, 2, 2)]
    apart, grouped = (batch.attend(*states, 0, 0.25, repeat_heads=repeat) for repeat in (True, False))
    torch.testing.assert_close(apart, grouped, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_sampling_and_update_use_kernels_that_store_no_scores(bpe_model: Path) -> None:
    policy = LMPolicy.from_pretrained(bpe_model, device="cuda", dtype="bfloat16")
    # Without the kernel that stores them, attention that no other one can compute is an error.
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
        samples = sample(policy)
        policy.log_probs(samples)[0].sum().backward()


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("family", PACKED_FAMILIES)
def test_the_gradient_is_that_of_one_sequence_at_a_time(family: str, checkpointing: bool) -> None:
    policy = make_policy(family, checkpointing=checkpointing)
    samples = sample(policy)
    assert policy.packs
    assert not samples.prompt_mask.all(), "the prompts are meant to need padding"
    assert len(set(samples.mask.sum(1).tolist())) > 2, "the responses are meant to end at different times"
    assert_gradient_is_that_of_plain_sequences(policy, samples)


@pytest.mark.parametrize("family", ["gemma2", "mistral"])
def test_a_model_with_another_attention_is_computed_row_by_row(family: str) -> None:
    if family == "mistral":
        tokenizer = toys.bpe_tokenizer()
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        torch.manual_seed(0)
        config = MistralConfig(
            vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=8, sliding_window=6, eos_token_id=1, **sizes
        )
        policy = LMPolicy(toys.ends_often(MistralForCausalLM(config).eval()), tokenizer)
    else:
        policy = make_policy(family)
    samples = sample(policy)
    assert not policy.packs
    reason = "its attention is 'eager'" if family == "gemma2" else "some of its layers attend to a sliding window"
    assert "updates and sampling, which read a prompt again for each rollout, are slower" in policy.slower
    assert f"since {reason}" in policy.slower
    assert policy.slower.endswith(f"and this is a {family}")
    assert policy.model.config._attn_implementation != ATTENTION
    assert_gradient_is_that_of_plain_sequences(policy, samples)


def test_what_takes_a_slower_path_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy("qwen3")
    assert (policy.packs, policy.shares_prompts, policy.slower) == (True, True, "")
    policy.model.set_attn_implementation("eager")
    eager = LMPolicy(policy.model, policy.tokenizer)
    assert not eager.packs
    assert "since its attention is 'eager', and 'sdpa' alone takes packed batches" in eager.slower
    policy.model.set_attn_implementation("sdpa")
    monkeypatch.setattr(LMPolicy, "_decodes_alike", lambda *_: False)
    unshared = LMPolicy(policy.model, policy.tokenizer)
    assert unshared.packs
    assert unshared.slower.startswith("sampling is slower than with other models, since it samples other tokens from")
    monkeypatch.setattr(LMPolicy, "_states_packed", lambda self, samples: self._states_unpacked(samples).new_zeros(1))
    other = LMPolicy(policy.model, policy.tokenizer)
    assert "since packed batches give it other states than separate sequences" in other.slower


def test_lora_trains_adapters_alone_with_the_gradient_of_separate_sequences(bpe_model: Path) -> None:
    pytest.importorskip("peft")
    policy = LMPolicy.from_pretrained(bpe_model, device="cpu", lora_rank=4)
    trained = {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    with torch.no_grad():
        for weight in trained.values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(weight))))
    assert policy.packs
    assert_gradient_is_that_of_plain_sequences(policy, sample(policy))


def test_a_packed_row_holds_each_prompt_once_and_no_padding() -> None:
    policy = make_policy("qwen3")
    samples = sample(policy)
    lengths = samples.mask.sum(1)
    batch = pack(samples)
    assert batch.ids.shape == (1, int(samples.prompt_mask.sum() + (lengths - 1).sum()))
    assert len(batch.predicts) == int(lengths.sum())


def test_a_saved_model_does_not_name_the_attention_of_this_project(tmp_path: Path) -> None:
    policy = make_policy("llama")
    assert policy.model.config._attn_implementation == ATTENTION
    policy.save(tmp_path)
    assert ATTENTION not in (tmp_path / "config.json").read_text(encoding="utf-8")
    assert AutoConfig.from_pretrained(tmp_path)._attn_implementation != ATTENTION


def test_a_model_that_was_a_policy_before_packs_again() -> None:
    policy = make_policy("qwen3")
    again = LMPolicy(policy.model, policy.tokenizer)
    assert (again.packs, again.shares_prompts) == (policy.packs, policy.shares_prompts) == (True, True)
