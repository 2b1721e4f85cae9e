"""The formulas of memory agree with what real models hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from envs_data import BUNDLED_MODELS
from vpo_agent.learning.warm_start import word_tokenizer
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import add_adapters
from vpo_agent.policy.memory import (
    Shape,
    adapter_parameters,
    attention_bytes,
    logits_bytes,
    read_shape,
    sampling_cache_bytes,
    saved_bytes,
)
from vpo_agent.policy.rows import Rows
from vpo_agent.policy.samples import Samples

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
PROMPTS, ROLLOUTS, PROMPT, RESPONSE = 2, 3, 20, 10


def make_model(family: str, **changes: Any) -> PreTrainedModel:
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))


def make_policy(model: Any) -> LMPolicy:
    return LMPolicy(model, word_tokenizer([f"w{i}" for i in range(61)]))


@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_is_read_from_a_configuration_alone(tied: bool, tmp_path: Path) -> None:
    model = make_model("qwen3", tie_word_embeddings=tied)
    (tmp_path / "config.json").write_text(model.config.to_json_string(), encoding="utf-8")
    expected = (model.num_parameters(), 3, 32, 96, 4, 2, 16, 64, tied, True, 256)
    for place in (tmp_path, tmp_path / "config.json"):
        assert read_shape(place) == Shape(str(place), *expected) == Shape.of(model, str(place))


def test_a_configuration_without_the_usual_names_is_read() -> None:
    assert read_shape("tiny-maze").layers == 4
    assert "tiny-maze" in BUNDLED_MODELS


def test_gpt2_has_an_mlp_of_four_widths_and_keys_for_every_head(tmp_path: Path) -> None:
    GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64).save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert (shape.intermediate, shape.key_heads, shape.head_width) == (128, 4, 8)


@pytest.mark.parametrize("content", [None, "{", json.dumps({"model_type": "unheard_of"}), "{}"])
def test_a_configuration_that_cannot_be_read_is_one_sentence(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot read the configuration of .*: give its config.json") as error:
        read_shape(tmp_path)
    assert "\n" not in str(error.value)


def test_a_name_on_the_hub_is_read_from_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="no such name in the local cache of the Hugging Face Hub"):
        read_shape("somebody/small")
    cached = tmp_path / "models--somebody--small"
    make_model("qwen3").config.save_pretrained(cached / "snapshots" / "0123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    assert read_shape("somebody/small").layers == SIZES["num_hidden_layers"]


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba", **sizes}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"the formulas are those of a decoder with attention, and 'mamba' has none$"):
        read_shape(tmp_path)


def test_adapters_are_counted_as_peft_makes_them() -> None:
    pytest.importorskip("peft")
    shape = Shape.of(make_model("qwen3"), "")
    adapted = add_adapters(make_model("qwen3"), 8)
    assert adapter_parameters(shape, 8) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert Shape.of(adapted.get_base_model(), "") == shape


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("response", [10, 100, 200])
def test_the_cache_grows_to_what_is_planned(shared: bool, response: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(make_model("llama"))
    held = 0

    def watched(method: Any) -> Any:
        def call(self: Rows, *args: Any) -> Any:
            nonlocal held
            result = method(self, *args)
            stores = [store for layer in self._cache.layers for store in layer._stores]
            if shared:
                stores += [*self._shared.keys, *self._shared.values]  # type: ignore[attr-defined]
            held = max(held, sum(store.nbytes for store in stores))
            return result

        return call

    policy.shares_prompts = shared
    monkeypatch.setattr(LMPolicy, "ending_ids", [])
    kind = type(policy.decoder(share_prompts=True)._cache)
    monkeypatch.setattr(kind, "append", watched(kind.append))
    policy.sample([" ".join(["w1"] * PROMPT)] * PROMPTS, rollouts=ROLLOUTS, num_answers=1, max_new_tokens=response)
    shape = Shape.of(policy.model, "")
    sizes = {"prompts": PROMPTS, "rows": PROMPTS * ROLLOUTS, "prompt": PROMPT, "response": response}
    planned = sampling_cache_bytes(shape, 4, **sizes, shared=shared)
    # While a layer grows, its old storage is there as well, less than a third here.
    assert held <= planned <= 4 / 3 * held


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_keeps_for_the_backward_pass_what_is_planned(family: str, rank: int, dtype: torch.dtype) -> None:
    """Counted as the tensors that autograd saves beyond the weights, of three layers less those of one."""
    if rank:
        pytest.importorskip("peft")

    def saved(layers: int) -> tuple[int, Shape]:
        model: Any = make_model(family, num_hidden_layers=layers).to(dtype)
        shape = Shape.of(model, "")
        policy = make_policy(add_adapters(model, rank) if rank else model)
        rows = [[1] * (PROMPT - one) for one in range(PROMPTS)], [[2] * RESPONSE] * (PROMPTS * ROLLOUTS)
        zeros = [[0.0] * RESPONSE] * len(rows[1])
        encoded = policy.cached_model.pad(rows[0])
        samples = Samples.of(encoded, rows[1], zeros, [False] * len(rows[1]), 1.0, policy.tokenizer)
        weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = policy.log_probs(samples)
        assert result[0].requires_grad
        return sum(storage.nbytes() for storage in kept.values()), shape

    (one, _), (three, shape) = saved(1), saved(3)
    element = dtype.itemsize
    tokens = PROMPTS * PROMPT - 1 + PROMPTS * ROLLOUTS * (RESPONSE - 1)
    sizes = {"prompts": PROMPTS, "rollouts": ROLLOUTS, "prompt": PROMPT, "response": RESPONSE - 1}
    planned = tokens * saved_bytes(shape, element, rank) + attention_bytes(shape, element, **sizes, on_gpu=False)
    assert (three - one) / 2 == pytest.approx(planned, rel=0.1)


def test_more_tokens_than_a_tile_hold_two_tiles_of_logits() -> None:
    shape = Shape.of(make_model("llama"), "")
    assert logits_bytes(shape, 4, 100, 256) == 100 * 64 * 8
    assert logits_bytes(shape, 4, 1000, 256) == 256 * 64 * (8 + 4)
