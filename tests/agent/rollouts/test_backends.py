"""Backends of generation: what they return is what the trainer would have computed, and the same for the same seed."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from torch import Tensor

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.presets import TASKS
from vpo_agent.rollouts.backends import _REGISTRY, open_sampler, register_backend, why_not_vllm, with_backend
from vpo_agent.rollouts.gap import check_gap, check_hand_over
from vpo_agent.rollouts.vllm import to_samples
from vpo_agent.runs.rows import read_rows
from vpo_agent.trainer import Trainer

MakeConfig = Callable[..., TrainConfig]


def rows_of(samples: Samples) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(samples.ids, samples.mask, strict=True)]


def assert_same_samples(first: Samples, second: Samples) -> None:
    assert rows_of(first) == rows_of(second)
    assert first.texts == second.texts
    assert torch.equal(first.truncated, second.truncated)
    torch.testing.assert_close(first.log_probs, second.log_probs, rtol=0, atol=0)


def test_native_is_the_policy_itself() -> None:
    tokenizer = toys.bpe_tokenizer()
    policy = LMPolicy(toys.tiny_model("qwen3", tokenizer), tokenizer)
    choice = ModelChoice.of("not read", device="cpu")
    assert open_sampler(make_config({"backend": "native", "model": "not read"}), policy, choice) is policy


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
    request = SampleRequest(["a", "mm"], ["</answer>"] * 2, range(2), 6, 24, 1.0, (3,))
    found = to_samples(policy, prompts, longer, values, request)
    assert_same_samples(native, found)


# --- training ---


def weights_of(trainer: Trainer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.policy.model.parameters()])


def test_a_run_trains_on_what_it_samples_and_is_the_same_again(letters_config: MakeConfig) -> None:
    first = Trainer(letters_config(steps=2))
    before = weights_of(first)
    first.train()
    assert not torch.equal(weights_of(first), before)
    second = Trainer(letters_config(steps=2, name="again"))
    second.train()
    assert torch.equal(weights_of(first), weights_of(second))
    assert first.folder.metrics.read_bytes() == second.folder.metrics.read_bytes()
    for row in read_rows(first.folder.metrics):
        assert 0 <= row["log_prob_gap"] <= row["log_prob_gap_max"] < 1e-4


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("gpu", [True, False])
def test_auto_is_native(monkeypatch: pytest.MonkeyPatch, installed: bool, gpu: bool) -> None:
    monkeypatch.setattr("vpo_agent.rollouts.backends.find_spec", lambda name: installed or None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert with_backend(make_config({}), ModelChoice.of("tiny-maze")) == make_config({"backend": "native"})


@pytest.mark.parametrize(
    ("settings", "installed", "gpu", "reason"),
    [
        ({}, True, True, ""),
        ({}, True, False, ""),
        ({"importance_cap": 5.0}, True, True, ""),
        ({"lora_rank": 8}, True, True, ""),
        ({}, False, True, r"vllm is not installed .*"),
        ({"model": "x.gguf"}, True, True, "vllm takes no GGUF file such as 'x.gguf'"),
        ({"model": "adapters"}, True, True, "vllm takes whole models, and 'adapters' holds adapters"),
        ({"lora_rank": 8, "dtype": "float32"}, True, True, "vllm takes no LoRA adapters in float32 on a GPU"),
        ({"lora_rank": 8, "dtype": "float32"}, True, False, ""),
    ],
)
def test_vllm_samples_where_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any], installed: bool, gpu: bool, reason: str
) -> None:
    monkeypatch.setattr("vpo_agent.rollouts.backends.find_spec", lambda name: installed or None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters/adapter_config.json").write_text("{}")
    config = make_config({**settings, "backend": "vllm"})
    choice = ModelChoice.of(config.model, dtype=config.dtype)
    assert re.fullmatch(reason, why_not_vllm(config, choice))
    if reason:
        with pytest.raises(ValueError, match=rf"^backend=vllm cannot sample here, since {reason}: use backend native$"):
            with_backend(config, choice)
    else:
        assert with_backend(config, choice) == config


class FirstWeights(Sampler):
    """An engine that keeps the weights that it began with."""

    def __init__(self, policy: LMPolicy) -> None:
        self.policy = LMPolicy(copy.deepcopy(policy.model), policy.tokenizer)

    def sample_batch(self, request: SampleRequest) -> Samples:
        return self.policy.sample_batch(request)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_a_run_ends_where_the_sampler_does_not_follow_the_trainer(
    letters_config: MakeConfig, dtype: str, cap: float | None
) -> None:
    trainer = Trainer(letters_config(dtype=dtype, importance_cap=cap, learning_rate=0.03), sampler=FirstWeights)
    most = {"float32": "0.01", "bfloat16": "0.2"}[dtype]
    with pytest.raises(
        BackendFailed,
        match=rf"^at step 2 the sampler's log-probabilities differ from the trainer's by [\d.]+ on average, more than "
        rf"{most}: it does not sample from the policy in training; use --backend native; if that fails too, "
        r"use it with --dtype float32$",
    ):
        trainer.train()
    gaps = [row["log_prob_gap"] for row in read_rows(trainer.folder.metrics)]
    assert gaps[0] < float(most) < gaps[1]


def test_nothing_compared_is_no_gap() -> None:
    check_gap(math.nan, torch.float32, "at step 1")


def test_trial_weights_differ_and_go_again() -> None:
    tokenizer = toys.bpe_tokenizer()
    model = toys.tiny_model("qwen3", tokenizer)
    before = copy.deepcopy(model.state_dict())
    gaps = iter([0.0, 0.0])

    def measure() -> float:
        seen.append({name: weight.clone() for name, weight in model.state_dict().items()})
        return next(gaps)

    seen: list[dict[str, Tensor]] = []
    check_hand_over(measure, model, torch.float32)
    start, trial = seen
    assert all(torch.equal(start[name], before[name]) for name in before)
    assert not any(torch.equal(trial[name], before[name]) for name in before)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(ValueError, match=r"choose one of auto, native, vllm, or add your own with register_backend"):
        make_config({"backend": "tgi"})
    with pytest.raises(ValueError, match=r"did you mean native\?"):
        make_config({"backend": "natve"})


def test_a_registered_backend_samples_for_a_run(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vpo_agent.config.BACKENDS", names := ["native", "vllm"])
    monkeypatch.setattr("vpo_agent.rollouts.backends.BACKENDS", names)
    monkeypatch.setattr("vpo_agent.rollouts.backends._REGISTRY", dict(_REGISTRY))
    opened: list[tuple[str, int | None]] = []

    def open_counting(policy: LMPolicy, config: TrainConfig, choice: ModelChoice, max_model_len: int | None) -> Sampler:
        assert choice == ModelChoice.of(config.model, device=config.device, dtype=config.dtype)
        opened.append((config.backend, max_model_len))
        return policy

    def no_adapters(config: TrainConfig, choice: ModelChoice) -> str:
        return "it takes no adapters" if config.lora_rank else ""

    register_backend("counting", open_counting, why_not=no_adapters)
    trainer = Trainer(letters_config(backend="counting"))
    trainer.train_step()
    [(name, longest)] = opened
    assert name == trainer.config.backend == "counting"
    assert longest is not None
    assert longest > trainer.config.max_new_tokens
    # How long replies are is not known.
    archive = {**TASKS["archive"]["compact"], "runs_dir": str(tmp_path), "device": "cpu", "backend": "counting"}
    replying = Trainer(make_config(archive))
    assert opened[1:] == [("counting", replying.policy.cached_model.max_positions)]
    with pytest.raises(ValueError, match=r"^backend=counting cannot sample here, since it takes no adapters: "):
        with_backend(make_config({"backend": "counting", "lora_rank": 2}), trainer.model_choice)
    with pytest.raises(ValueError, match="the backend 'counting' is registered already: choose another name"):
        register_backend("counting", open_counting)


def test_importance_weights_of_one_change_nothing(letters_config: MakeConfig) -> None:
    """Where the sampler's log-probabilities are the trainer's own, a cap gives the same weights to the last bit."""
    runs = []
    for cap in (None, 2.0):
        trainer = Trainer(letters_config(steps=2, importance_cap=cap, minibatch_prompts=2, name=f"cap-{cap}"))
        native = trainer.policy.sample

        def exact(*args: Any, trainer: Trainer = trainer, native: Any = native, **settings: Any) -> Samples:
            drawn = native(*args, **settings)
            return replace(drawn, log_probs=trainer._update._trainer_log_probs(drawn))

        trainer.policy.sample = exact  # type: ignore[method-assign]
        trainer.train()
        runs.append(trainer)
    assert torch.equal(weights_of(runs[0]), weights_of(runs[1]))
    assert all(row["log_prob_gap_max"] == 0 for row in read_rows(runs[1].folder.metrics))
