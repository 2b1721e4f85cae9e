"""The plan in docs/scaling.md: its tables come from the formulas, and the formulas agree with real models."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from paths import ROOT
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

sys.path.append(str(ROOT / "benchmarks"))

import plan
import plan_formulas as f

H100 = f.DEVICES["h100"]
BY_NAME = {shape.name: shape for shape in f.SHAPES}


def config(shape: f.Shape) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head_width,
        tie_word_embeddings=shape.tied,
    )


@pytest.mark.parametrize("title", list(plan.tables()))
def test_the_page_holds_the_table(title: str) -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert plan.tables()[title] + "\n\n" in page, f"print it with python benchmarks/plan.py: {title}"


@pytest.mark.parametrize("shape", f.SHAPES, ids=lambda shape: shape.name)
def test_parameters_are_those_of_the_model(shape: f.Shape) -> None:
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config(shape))
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert f.layer_parameters(shape) == sum(p.numel() for p in model.model.layers[0].parameters())
    looked_up = 0 if shape.tied else model.model.embed_tokens.weight.numel()
    assert f.multiplied(shape) == shape.parameters - looked_up


TINY = f.dense("tiny", 3, 32, 48, 4, tied=True, key_heads=2, head_width=8, vocabulary=64)


def test_cache_bytes_are_those_of_a_filled_cache() -> None:
    model = Qwen3ForCausalLM(config(TINY)).to(torch.bfloat16)
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.zeros(2, 5, dtype=torch.long), past_key_values=cache)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held == 2 * 5 * f.cache_bytes(TINY)


@pytest.mark.parametrize("length", [8, 64])
def test_operations_of_a_forward_pass_are_those_that_torch_counts(length: int) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config_ = config(TINY)
    config_._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config_)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros(1, length, dtype=torch.long), use_cache=False)
    forward = f.token_operations(TINY, length, forwards=1) - f.token_operations(TINY, length, forwards=0)
    # Plain attention also multiplies the half above the diagonal; what norms multiply is not counted.
    above = 4 * TINY.layers * TINY.heads * TINY.head_width * length / 2 * length
    norms = TINY.layers * (2 * TINY.hidden + 2 * TINY.head_width) + TINY.hidden
    # In some releases of transformers the angles of the rotation are a product, too: less than one in a thousand here.
    assert counter.get_total_flops() == pytest.approx(forward * length + above - 2 * norms * length, rel=1e-3)


def test_an_update_is_six_operations_a_parameter_and_two_for_recomputation() -> None:
    shape = BY_NAME["8B"]
    assert f.token_operations(shape, 0, forwards=0) == 8 * f.multiplied(shape)
    assert f.token_operations(shape, 0, forwards=1, lora=True) == 8 * f.multiplied(shape)


def test_decoding_one_rollout_is_reading_the_weights() -> None:
    shape = BY_NAME["8B"]
    seconds = f.decode_seconds(shape, H100, 1, 0, 1) - f.ASSUMED.decode_overhead
    assert seconds == pytest.approx(2 * 7.57e9 / (0.7 * 3.35e12), rel=1e-3)


def test_decoding_ever_more_rollouts_becomes_computing() -> None:
    shape = BY_NAME["8B"]
    seconds = f.decode_seconds(shape, H100, 10_000, 0, 1) - f.ASSUMED.decode_overhead
    assert seconds == pytest.approx(10_000 * 2 * 7.57e9 / (0.5 * 989e12), rel=1e-3)


def test_lengths_have_the_mean_and_spread_that_are_stated() -> None:
    generator = torch.Generator().manual_seed(0)
    logs = torch.randn(400_000, generator=generator, dtype=torch.float64) * f.ASSUMED.spread
    lengths = torch.exp(logs) / torch.exp(logs).mean() * 1500
    for tokens in (500, 1500, 4500):
        assert f.unfinished(tokens, 1500) == pytest.approx(float((lengths > tokens).double().mean()), abs=2e-3)


def test_a_batch_that_waits_for_its_longest_response_takes_as_long_as_that() -> None:
    shape = BY_NAME["0.6B"]
    seconds = f.batch_seconds(shape, H100, 1, 100, 1500, 1, of=10**6)
    step = f.decode_seconds(shape, H100, 1, f.ASSUMED.prompt + f.ASSUMED.limit * 1500 / 2, 1)
    assert seconds == pytest.approx(f.ASSUMED.limit * 1500 * step, rel=0.01)


@pytest.mark.parametrize("shards", [8, 64])
def test_shards_share_the_state_alone(shards: int) -> None:
    shape = BY_NAME["8B"]
    saved = f.training_bytes(shape, shards) - f.training_bytes(shape, 2 * shards)
    assert saved == pytest.approx(18 * 8.19e9 / (2 * shards), rel=1e-3)


@pytest.mark.parametrize("gpus", [8, 64, 256, 1024])
@pytest.mark.parametrize("shape", f.SHAPES, ids=lambda shape: shape.name)
def test_every_step_fits_and_uses_no_more_gpus_than_there_are(shape: f.Shape, gpus: int) -> None:
    step = f.apart(shape, H100, gpus, 1024, 1500)
    if step is None:
        assert gpus == 8
        return
    assert step.generators + step.trainers == gpus
    assert f.training_bytes(shape, step.shards) <= 0.9 * H100.memory
    assert step.seconds == pytest.approx(max(step.generation, step.update) + step.transfer)
    assert step.longest_lag <= math.ceil(0.5 + f.ASSUMED.limit)


def test_the_estimator_costs_what_was_measured_at_the_batch_that_was_measured() -> None:
    assert f.estimator_seconds(128, 8, 3, 4, 128) == pytest.approx(f.ESTIMATOR_SECONDS)
    assert f.estimator_seconds(1024, 16, 3, 16, 128) == pytest.approx(64 * f.ESTIMATOR_SECONDS)
