"""Backends of generation: what they return is what the trainer would have computed, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
import transformers
from torch import Tensor

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import SampleRequest, Samples
from vpo_agent.rollouts.backends import open_sampler
from vpo_agent.rollouts.backends.responses import to_samples
from vpo_agent.runs.run_folder import read_metrics
from vpo_agent.trainer import Trainer

MakeConfig = Callable[..., TrainConfig]
TEXTS = ["a", "the maze and the answer", "an answer?", "mm"]
LIMIT = 12


def make_policy(family: str = "qwen3", scale: float = 1.5) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.ends_often(toys.tiny_model(family, tokenizer, scale=scale)), tokenizer)


def sample(policy: LMPolicy, prompts: list[str], **changes: Any) -> Samples:
    settings: dict[str, Any] = {"rollouts": 5, "num_answers": 1, "max_new_tokens": LIMIT, "temperature": 0.8}
    sampler = open_sampler("continuous", policy, model="not read")
    return sampler.sample(prompts, **{**settings, "seed": (1, 2), **changes})


def rows_of(samples: Samples) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(samples.ids, samples.mask, strict=True)]


def assert_same_samples(first: Samples, second: Samples) -> None:
    assert rows_of(first) == rows_of(second)
    assert first.texts == second.texts
    assert torch.equal(first.truncated, second.truncated)
    torch.testing.assert_close(first.log_probs, second.log_probs, rtol=0, atol=0)


def test_native_is_the_policy_itself() -> None:
    policy = make_policy()
    assert open_sampler("native", policy, model="not read") is policy


# --- continuous batching ---


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
@pytest.mark.parametrize("rollouts", [1, 5])
def test_samples_are_those_of_a_plain_forward_pass_over_their_own_prompt(family: str, rollouts: int) -> None:
    policy = make_policy(family)
    attention = policy.model.config._attn_implementation
    samples = sample(policy, TEXTS, rollouts=rollouts)
    assert policy.model.config._attn_implementation == attention
    lengths = samples.mask.sum(1)
    assert len(set(lengths.tolist())) > 1
    assert torch.equal(samples.mask, torch.arange(samples.mask.shape[1]) < lengths[:, None])
    assert bool((samples.log_probs[~samples.mask] == 0).all())
    expected_ids, expected_mask = policy.encode_prompts(TEXTS)
    assert torch.equal(samples.prompt_ids, expected_ids)
    assert torch.equal(samples.prompt_mask, expected_mask)
    for row, expected in enumerate(toys.plain_log_probs(policy, samples)):
        torch.testing.assert_close(samples.log_probs[row, : len(expected)], expected, rtol=0, atol=1e-4)
    for tokens, text, cut in zip(rows_of(samples), samples.texts, samples.truncated, strict=True):
        assert text == policy.tokenizer.decode(tokens, skip_special_tokens=True)
        ends = [token in policy.ending_ids for token in tokens]
        assert not any(ends[:-1])
        assert bool(cut) == (not ends[-1])
        assert not cut or len(tokens) == LIMIT


def test_the_same_seed_gives_the_same_samples_and_leaves_the_generators_alone() -> None:
    policy = make_policy()
    torch.manual_seed(3)
    state, other = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = sample(policy, TEXTS)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], other)  # noqa: NPY002
    torch.manual_seed(4)
    assert_same_samples(first, sample(policy, TEXTS))
    assert rows_of(first) != rows_of(sample(policy, TEXTS, seed=(1, 3)))
    assert rows_of(first) != rows_of(sample(policy, TEXTS, places=[5, *range(1, len(TEXTS))]))


def test_an_engine_that_is_kept_samples_as_a_new_one_from_the_weights_of_now() -> None:
    policy = make_policy()
    sampler = open_sampler("continuous", policy, model="not read")
    settings: dict[str, Any] = {"rollouts": 5, "num_answers": 1, "max_new_tokens": LIMIT}
    first = sampler.sample(TEXTS, seed=(1,), **settings)
    engine = sampler._manager
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(0.9)
    second = sampler.sample(TEXTS, seed=(2,), **settings)
    assert sampler._manager is engine
    for row, expected in enumerate(toys.plain_log_probs(policy, second)):
        torch.testing.assert_close(second.log_probs[row, : len(expected)], expected, rtol=0, atol=1e-4)
    fresh = make_policy()
    fresh.model.load_state_dict(policy.model.state_dict())
    assert_same_samples(
        second, open_sampler("continuous", fresh, model="not read").sample(TEXTS, seed=(2,), **settings)
    )
    assert rows_of(first) != rows_of(second)
    sampler.sample(TEXTS, seed=(2,), **{**settings, "max_new_tokens": LIMIT + 1})
    assert sampler._manager is not engine


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_engine_is_kept_and_samples_from_the_weights_of_now() -> None:
    policy = LMPolicy.from_pretrained("tiny-maze", device="cuda", dtype="bfloat16")
    sampler = open_sampler("continuous", policy, model="not read")
    settings: dict[str, Any] = {"rollouts": 4, "num_answers": 1, "max_new_tokens": 40}
    engines = set()
    for scale in (1.0, 0.9):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(scale)
            samples = sampler.sample(["a maze", "another"], **settings)
            gap = (policy.log_probs(samples)[0] - samples.log_probs).abs()[samples.mask]
        assert float(gap.mean()) < 0.05
        engines.add(id(sampler._manager))
    assert len(engines) == 1


def test_tokens_come_with_the_frequency_of_the_tempered_distribution() -> None:
    policy = make_policy(scale=3.0)
    samples = sample(policy, ["a maze", "an answer"], rollouts=600, max_new_tokens=1, temperature=1.3)
    assert samples.ids.shape == (1200, 1)
    for prompt in range(2):
        head = samples.prompt_ids[prompt][samples.prompt_mask[prompt]]
        with torch.no_grad():
            expected = torch.softmax(policy.model(input_ids=head[None]).logits[0, -1].float() / 1.3, -1)
        drawn = samples.ids[prompt * 600 : (prompt + 1) * 600, 0]
        seen = torch.bincount(drawn, minlength=len(expected)) / 600
        # How far 600 draws are from their own distribution by chance alone.
        resampled = torch.multinomial(expected, 600 * 200, replacement=True, generator=torch.Generator().manual_seed(0))
        by_chance = [
            float((torch.bincount(part, minlength=len(expected)) / 600 - expected).abs().sum())
            for part in resampled.view(200, 600)
        ]
        assert float((seen - expected).abs().sum()) < 1.1 * max(by_chance)


def test_a_response_ends_at_the_closing_tag_of_its_last_answer(letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    samples = sample(policy, ["pick 3 for 1 2", "pick 3 for 7"], num_answers=3, max_new_tokens=20, temperature=1.0)
    closing = policy.tokenizer.convert_tokens_to_ids("</answer_3>")
    ended = [tokens for tokens, cut in zip(rows_of(samples), samples.truncated, strict=True) if not cut]
    assert ended
    assert all(closing not in tokens[:-1] for tokens in ended)
    assert any(tokens[-1] == closing for tokens in ended)


def test_a_prompt_too_long_for_the_model_is_named() -> None:
    with pytest.raises(ValueError, match=r"max_new_tokens=256 do not fit into the 256 positions"):
        sample(make_policy(), TEXTS, max_new_tokens=256)


def test_an_engine_that_fails_is_named_and_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    attention = policy.model.config._attn_implementation

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel for this shape")

    with monkeypatch.context() as patch:
        patch.setattr(policy.model, "forward", broken)
        with pytest.raises(BackendFailed, match=r"no kernel for this shape.*native"):
            sample(policy, TEXTS)
    assert policy.model.config._attn_implementation == attention
    assert sample(policy, TEXTS).texts


# --- where a response ends ---


def test_what_an_engine_samples_beyond_the_end_is_cut_where_our_own_loop_ends() -> None:
    tokenizer = toys.bpe_tokenizer()
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0)
    said = [("a", "<answer>the maze</answer> and more"), ("mm", "an answer to the maze, no tag")]
    toys.teach(model, tokenizer, said, steps=150)
    policy = LMPolicy(model, tokenizer)
    native = policy.sample(["a", "mm"], rollouts=6, num_answers=1, max_new_tokens=24, seed=(3,))
    ended = ~native.truncated
    assert 0 < int(ended.sum()) < 12
    assert all(text.rstrip().endswith("</answer>") for text, end in zip(native.texts, ended, strict=True) if end)
    junk = tokenizer(" and more</answer>")["input_ids"]
    longer = [row + junk if end else row for row, end in zip(rows_of(native), ended, strict=True)]
    values = [
        row[mask].tolist() + [-1.0] * (len(tokens) - int(mask.sum()))
        for row, mask, tokens in zip(native.log_probs, native.mask, longer, strict=True)
    ]
    prompts = (native.prompt_ids, native.prompt_mask)
    request = SampleRequest(["a", "mm"], 6, 1, 24, 1.0, (3,), range(2))
    found = to_samples(policy, prompts, longer, values, request)
    assert_same_samples(native, found)


# --- training ---


def weights_of(trainer: Trainer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.policy.model.parameters()])


@pytest.mark.parametrize("backend", ["native", "continuous"])
def test_a_run_trains_on_what_it_samples_and_is_the_same_again(letters_config: MakeConfig, backend: str) -> None:
    first = Trainer(letters_config(backend=backend, steps=2))
    before = weights_of(first)
    first.train()
    assert not torch.equal(weights_of(first), before)
    second = Trainer(letters_config(backend=backend, steps=2, name="again"))
    second.train()
    assert torch.equal(weights_of(first), weights_of(second))
    assert first.folder.metrics.read_bytes() == second.folder.metrics.read_bytes()
    for row in read_metrics(first.folder.metrics):
        assert 0 <= row["log_prob_gap"] <= row["log_prob_gap_max"] < 1e-4


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_a_backend_that_is_not_installed_is_named(letters_config: MakeConfig) -> None:
    with pytest.raises(ValueError, match=r"backend=vllm needs the package vllm.*pip install.*or use backend native"):
        Trainer(letters_config(backend="vllm"))


def test_an_older_transformers_is_named(letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Older:
        block_size: int = 256

    monkeypatch.setattr(transformers, "ContinuousBatchingConfig", Older)
    with pytest.raises(ValueError, match=r"backend=continuous needs transformers 5.17 or newer"):
        Trainer(letters_config(backend="continuous"))


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(ValueError, match=r"backend='tgi' is invalid"):
        make_config({"backend": "tgi"})


def test_a_resumed_run_keeps_its_backend(letters_config: MakeConfig) -> None:
    Trainer(letters_config(steps=1)).train()
    with pytest.raises(ValueError, match=r"has backend='native', not 'continuous'"):
        Trainer(letters_config(steps=2, backend="continuous"), resume=True)


def test_importance_weights_of_one_change_nothing(letters_config: MakeConfig) -> None:
    """Where the sampler's log-probabilities are the trainer's own, a cap gives the same weights to the last bit."""
    runs = []
    for cap in (None, 2.0):
        trainer = Trainer(letters_config(steps=2, importance_cap=cap, minibatch_prompts=2, name=f"cap-{cap}"))
        native = trainer.policy.sample

        def exact(*args: Any, trainer: Trainer = trainer, native: Any = native, **settings: Any) -> Samples:
            drawn = native(*args, **settings)
            return replace(drawn, log_probs=trainer._update._own_log_probs(drawn))

        trainer.policy.sample = exact  # type: ignore[method-assign]
        trainer.train()
        runs.append(trainer)
    assert torch.equal(weights_of(runs[0]), weights_of(runs[1]))
    assert all(row["log_prob_gap_max"] == 0 for row in read_metrics(runs[1].folder.metrics))
