"""Model families beside plain decoders: sampled like whole texts, or refused when loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
import transformers
from transformers import AutoModelForCausalLM

from vpo_agent.policy.language_model import LMPolicy

TOKENIZER = toys.bpe_tokenizer()
PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]
NARROW = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1, "mamba_chunk_size": 4}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}


def make_model(config: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    common = {"vocab_size": len(TOKENIZER), "bos_token_id": None, "pad_token_id": 0, "eos_token_id": 1}
    limit = {"max_position_embeddings": 256}
    model = AutoModelForCausalLM.from_config(getattr(transformers, config)(**{**common, **limit, **NARROW, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0 if parameter.dim() > 1 else 1.0)
    return model.eval()


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (
            "Qwen3NextConfig",
            {**LINEAR, "num_hidden_layers": 4, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2},
        ),
        ("Qwen3_5TextConfig", {**LINEAR, "num_hidden_layers": 4, "head_dim": 16}),
        ("Lfm2Config", {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3}),
        ("JambaConfig", {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4}),
        (
            "GraniteMoeHybridConfig",
            {**MAMBA, "layer_types": ["mamba", "attention"], "num_hidden_layers": 2, "num_local_experts": 0},
        ),
        ("FalconH1Config", {**MAMBA, "num_hidden_layers": 2, "head_dim": 8, "mamba_d_ssm": 64}),
        # Its chunks of 16 tokens end within the responses.
        (
            "Llama4TextConfig",
            {"num_hidden_layers": 4, "head_dim": 8, "attention_chunk_size": 16, "num_local_experts": 2},
        ),
        ("CohereConfig", {"num_hidden_layers": 2, "logit_scale": 0.3}),
        ("GraniteConfig", {"num_hidden_layers": 2, "logits_scaling": 8.0}),
        # Its values are narrower than its keys.
        ("DeepseekV3Config", {**LATENT, "num_hidden_layers": 2, "num_key_value_heads": 4, "first_k_dense_replace": 2}),
    ],
)
def test_log_probs_of_samples_and_of_the_update_are_those_of_whole_texts(config: str, settings: dict[str, Any]) -> None:
    policy = LMPolicy(toys.ends_often(make_model(config, **settings)), TOKENIZER)
    samples = policy.sample(PROMPTS, rollouts=4, num_answers=1, max_new_tokens=24, temperature=0.8, seed=(0,))
    assert len(set(samples.mask.sum(1).tolist())) > 3, "the responses are meant to end at different times"
    toys.check_log_probs(policy, samples)


@pytest.mark.parametrize(
    ("config", "settings", "name"),
    [
        ("MambaConfig", {"num_hidden_layers": 2, "state_size": 4}, "mamba"),
        (
            "RecurrentGemmaConfig",
            {"num_hidden_layers": 3, "head_dim": 8, "lru_width": 32, "num_key_value_heads": 1},
            "recurrent_gemma",
        ),
        ("RwkvConfig", {"num_hidden_layers": 2, "context_length": 64}, "rwkv"),
    ],
)
def test_a_cache_that_does_not_follow_rows_is_refused_when_the_model_is_loaded(
    config: str, settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"type '{name}' samples differently from its cache .*: choose one with attention"
    ):
        LMPolicy(make_model(config, **settings), TOKENIZER)


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ("Phi3Config", {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}),
        ("LlamaConfig", {"rope_type": "dynamic", "factor": 4.0}),
    ],
)
def test_rows_beyond_the_original_length_of_a_stretched_context_are_refused(config: str, rope: dict[str, Any]) -> None:
    """There, the angles of all tokens change, and those in the cache keep theirs."""
    limits = {"max_position_embeddings": 32}
    if rope["rope_type"] == "longrope":
        limits = {"max_position_embeddings": 128, "original_max_position_embeddings": 32}
    model = make_model(config, num_hidden_layers=2, rope_parameters={"rope_theta": 1e4, **rope}, **limits)
    policy = LMPolicy(model, TOKENIZER)
    settings: dict[str, Any] = {"rollouts": 24, "num_answers": 1, "temperature": 0.8, "seed": (0,)}
    samples = policy.sample(["x" * 10], max_new_tokens=22, **settings)
    assert samples.truncated.any(), "a row is meant to reach the original length"
    toys.check_log_probs(policy, samples)
    with pytest.raises(ValueError, match="10 tokens and max_new_tokens=24 do not fit into the 32 positions"):
        policy.sample(["x" * 10], max_new_tokens=24, **settings)
