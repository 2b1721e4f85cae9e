"""Writes the tests' tiny models as GGUF files, in the layout that llama.cpp gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: PreTrainedTokenizerFast | None,
    *,
    architecture: str | None = None,
    quantized: bool = False,
) -> dict[str, np.ndarray]:
    """Write a Llama or Qwen3 and its byte-level tokenizer.

    Args:
        path: The file.
        model: The model.
        tokenizer: Its tokenizer; ``None`` writes none.
        architecture: The name in the file, if not the model's own.
        quantized: Store matrices of rows that Q8_0's blocks of 32 divide in that format.

    Returns:
        What a reader gets for each weight, by its name in the model: rounded where it was quantized.
    """
    import gguf

    config = model.config
    architecture = architecture or config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if tokenizer is not None:
        _add_tokenizer(writer, tokenizer)
    read = {}
    for name, parameter in model.named_parameters():
        rows = read[name] = parameter.detach().float().numpy()
        kind = None
        if quantized and rows.ndim == 2 and rows.shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            rows = gguf.quantize(rows, kind)
            read[name] = gguf.dequantize(rows, kind)
        stored = _stored(name)
        if config.model_type == "llama" and (heads := _heads(stored, config)):
            # llama.cpp rotates neighbouring pairs, transformers the two halves of a head.
            rows = rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
        writer.add_tensor(stored, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def _add_tokenizer(writer: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    control = {token["content"] for token in described["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in control else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in described["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)


def _stored(name: str) -> str:
    """Return the name of a weight in the file."""
    module, _, kind = name.rpartition(".")
    if module.startswith("model.layers."):
        _, _, layer, part = module.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.{kind}"
    return f"{NAMES[module]}.{kind}"


def _heads(stored: str, config: Any) -> int:
    if stored.endswith("attn_q.weight"):
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if stored.endswith("attn_k.weight") else 0
