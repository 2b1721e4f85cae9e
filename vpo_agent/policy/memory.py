"""What a language model takes of a device's memory while it samples and while it is trained, by formula.

Parameters are counted from the model's configuration. Everything else is that of a decoder whose layers are attention
and a gated MLP, such as Llama, Qwen and SmolLM; for other layers it is an estimate. All results are bytes.
`benchmarks/peaks.py` compares them with measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs_data import BUNDLED_MODELS
from vpo_agent.policy.head import TILE_TOKENS_CPU, TILE_TOKENS_GPU
from vpo_agent.policy.kv_cache import columns_for
from vpo_envs.wording import did_you_mean

MOMENTS = 8
"""Bytes of AdamW's two moments per trained parameter."""
MASTER = GRADIENT = 4
"""Bytes of a float32 copy and of a gradient per trained parameter."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a language model that decide how much memory it takes."""

    name: str
    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    """Whether the head is the embedding table."""
    head_norms: bool = False
    """Whether queries and keys are normalised, as in Qwen3."""
    positions: int | None = None
    """Longest context, in tokens."""

    @property
    def queries(self) -> int:
        """Width of a token's queries."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """Width of a token's keys, and of its values."""
        return self.key_heads * self.head_width

    @classmethod
    def of(cls, model: Any, name: str) -> Shape:
        """Return the shape of a Hugging Face causal language model, whose weights may be on the device ``meta``.

        Raises:
            ValueError: Its layers are not attention.
        """
        config = model.config.get_text_config()
        heads = getattr(config, "num_attention_heads", None)
        if not heads:
            raise ValueError(
                f"cannot plan the memory of the model {name!r}: the formulas are those of a decoder with "
                f"attention, and {config.model_type!r} has none"
            )
        return cls(
            name,
            parameters=sum(weight.numel() for part, weight in model.named_parameters() if "lora_" not in part),
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            heads=heads,
            key_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_width=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocabulary=model.get_input_embeddings().num_embeddings,
            tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
            head_norms=any(part.endswith("q_norm") for part, _ in model.named_modules()),
            positions=getattr(config, "max_position_embeddings", None),
        )


def read_shape(model: str | Path) -> Shape:
    """Return the shape of a model from its configuration alone; nothing is downloaded.

    Args:
        model: A ``config.json``, the folder that holds it, a GGUF file, a bundled model, or a name on the Hugging Face
            Hub whose configuration is in the local cache.

    Raises:
        ValueError: There is no such configuration here, transformers does not know the architecture, or it has no
            attention.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from vpo_agent.policy.gguf_file import is_gguf, read_gguf_config
    from vpo_agent.policy.loading import find_bundled, quiet_transformers

    name, config = find_bundled(model), None
    if is_gguf(name):
        with quiet_transformers():
            config = read_gguf_config(name)
    elif not Path(name).exists() and not _is_cached(name):
        raise ValueError(
            f"cannot read the configuration of the model {name!r}: {did_you_mean(name, BUNDLED_MODELS)}there is no "
            "such file or folder, and no such name in the local cache of the Hugging Face Hub; give the path of its "
            "config.json, or fetch that with: hf download NAME config.json"
        )
    try:
        with quiet_transformers(), torch.device("meta"):
            config = config or AutoConfig.from_pretrained(name, local_files_only=True)
            decoder = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # of transformers, the Hub's client or the architecture's own code
        raise ValueError(
            f"cannot read the configuration of the model {str(model)!r}: give its config.json or the folder that holds "
            f"it ({(str(error).strip().splitlines() or [type(error).__name__])[0]})"
        ) from error
    return Shape.of(decoder, str(model))


def _is_cached(name: str) -> bool:
    """Return whether the local cache of the Hugging Face Hub has the configuration of a model."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:  # It cannot be a name there.
        return False


# --- state ----------------------------------------------------------------------------------------------------------


def adapter_parameters(shape: Shape, rank: int) -> int:
    """Count the weights of LoRA adapters on every linear layer but the head: rank · (inputs + outputs) of each."""
    attention = 4 * shape.hidden + 2 * shape.queries + 2 * shape.keys
    return rank * shape.layers * (attention + 3 * (shape.hidden + shape.intermediate))


def trained_parameters(shape: Shape, rank: int) -> int:
    """Count the parameters that have gradients: all, or with ``rank`` > 0 those of the adapters."""
    return adapter_parameters(shape, rank) if rank else shape.parameters


def weight_bytes(shape: Shape, element: int, rank: int = 0) -> int:
    """Return the size of the weights, of ``element`` bytes each, and of adapters, which are float32."""
    return element * shape.parameters + 4 * adapter_parameters(shape, rank)


def optimizer_bytes(shape: Shape, element: int, rank: int = 0) -> int:
    """Return the size of AdamW's moments, and of the float32 copies of weights in half precision.

    The fused step, which a GPU uses, holds nothing more.
    """
    copies = MASTER if element < 4 and not rank else 0
    return (MOMENTS + copies) * trained_parameters(shape, rank)


def cache_bytes(shape: Shape, element: int = 2) -> int:
    """Return the size of a token's keys and values in all layers."""
    return 2 * element * shape.layers * shape.keys


# --- sampling -------------------------------------------------------------------------------------------------------


def sampling_cache_bytes(
    shape: Shape, element: int, *, prompts: int, rows: int, prompt: int, response: int, shared: bool
) -> int:
    """Return the most that the cache takes, for ``rows`` responses of ``response`` tokens to ``prompts`` prompts.

    Its storage grows by a quarter when it is full, one layer after the other; rows that have ended keep theirs. Prompts
    are stored once if ``shared``, otherwise in each row, and once more until the rows have copied them.
    """
    token = cache_bytes(shape, element)
    before = 0 if shared else prompt
    columns = joining = columns_for(before, 0 if before else 1)
    old = 0
    # The last token is never read.
    while columns < before + response - 1:
        columns, old = columns_for(columns, 1), columns
    grown = rows * token * columns + rows * token * old // shape.layers
    once = prompts * prompt * token
    return once + grown if shared else max(grown, once + rows * token * joining)


def forward_bytes(shape: Shape, element: int, tokens: int) -> int:
    """Return what a pass without gradients holds of ``tokens`` in a layer: the residual, its norm, and the MLP."""
    return element * tokens * (2 * shape.hidden + 3 * shape.intermediate)


def drawing_bytes(shape: Shape, element: int, rows: int, *, on_gpu: bool) -> int:
    """Return the logits of ``rows`` tokens while they are drawn: as computed, in float32, probabilities, their sums."""
    return rows * shape.vocabulary * (element + (4 if element < 4 else 0) + 4 + (8 if on_gpu else 4))


# --- update ---------------------------------------------------------------------------------------------------------


def saved_bytes(shape: Shape, element: int, rank: int = 0) -> int:
    """Return what a layer keeps of a token for the backward pass, without keys and values.

    A norm keeps its float32 input and, to train its own weight, the normalised one. A linear layer keeps its input to
    train its weight; adapters keep a float32 copy of it instead, which in half precision is one for each layer.
    Attention keeps queries and results, the MLP its two activations and their product.
    """
    norms = 2 * shape.hidden + (shape.queries + shape.keys if shape.head_norms else 0)
    inputs = 2 * shape.hidden + shape.queries + shape.intermediate
    if rank:
        copied = (5 if element < 4 else 2) * shape.hidden + shape.queries + shape.intermediate + 7 * rank
        kept = 4 * norms + 4 * copied
    else:
        kept = (4 + element) * norms + element * inputs
    return kept + element * (2 * shape.queries + 3 * shape.intermediate) + 4 * shape.heads


def attention_bytes(
    shape: Shape, element: int, *, prompts: int, rollouts: int, prompt: int, response: int, on_gpu: bool
) -> int:
    """Return the keys and values that a layer keeps for each rollout beside those of its prompt, and the mask.

    On a GPU heads that share keys have copies of their own, see `vpo_agent.policy.packing`.
    """
    width = shape.queries if on_gpu else shape.keys
    seen = prompts * rollouts * (prompt + response)
    return element * (2 * width * (prompts * prompt + seen) + response * seen)


def logits_bytes(shape: Shape, element: int, tokens: int, tile: int) -> int:
    """Return the logits that the backward pass of the head holds of ``tokens``, ``tile`` of them at a time.

    Those of a tile and their probabilities are float32; the gradient of the tile before is still there.
    """
    first = min(tile, tokens)
    return shape.vocabulary * max(8 * first, element * first + 8 * min(tile, tokens - first))


def head_bytes(shape: Shape, element: int, tokens: int, tile: int, rank: int = 0) -> int:
    """Return what the backward pass of the head takes: logits and, if it is trained, its gradient in float32."""
    logits = logits_bytes(shape, element, tokens, tile)
    if rank:
        return logits
    weight = shape.vocabulary * shape.hidden
    return 4 * weight + max(logits, element * (min(tile, tokens) * shape.vocabulary + weight))


def update_bytes(
    shape: Shape,
    element: int,
    *,
    prompts: int,
    rollouts: int,
    prompt: int,
    response: int,
    on_gpu: bool,
    rank: int = 0,
    checkpointing: bool = False,
    reference: bool = False,
) -> int:
    """Return the activations of a micro-batch, computed without padding and with each prompt once.

    All layers' are kept, or with ``checkpointing`` their inputs and all of one layer. On top comes the largest of: the
    head, the gradients inside a layer, and a pass of the reference.
    """
    answered = prompts * rollouts * response
    # The last token of a response is never read.
    tokens = prompts * prompt + answered - prompts * rollouts
    layer = saved_bytes(shape, element, rank) * tokens + attention_bytes(
        shape,
        element,
        prompts=prompts,
        rollouts=rollouts,
        prompt=prompt,
        response=response - 1,
        on_gpu=on_gpu,
    )
    tile = TILE_TOKENS_GPU if on_gpu else TILE_TOKENS_CPU
    head = head_bytes(shape, element, answered, tile, rank)
    states = element * shape.hidden * answered + (4 + (0 if rank else element)) * shape.hidden * tokens
    inside = 4 * (shape.hidden + shape.intermediate) * tokens
    passing = max(forward_bytes(shape, element, tokens), 12 * tile * shape.vocabulary) if reference else 0
    if checkpointing:
        return shape.layers * element * shape.hidden * tokens + states + max(head, passing, layer + inside)
    return shape.layers * layer + states + max(head, passing, inside)
