"""What fits into a GPU: weights, optimizer, cache and logits as arithmetic, from a model's configuration alone.

All sizes are bytes. For other layers than attention and a gated MLP they are estimates. Where they are too small,
sampling and update halve what does not fit and go on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from envs_data import BUNDLED_MODELS
from vpo_agent.config import TrainConfig
from vpo_agent.policy.graph_rows import COLUMNS_AHEAD
from vpo_agent.policy.head import TILE_TOKENS_GPU
from vpo_agent.policy.kv_cache import SPARE_COLUMNS
from vpo_agent.policy.rows import most_positions
from vpo_envs.common.wording import counted, did_you_mean, first_line

GIGA = 1e9
USABLE = 0.9
"""Share of a device's memory that is planned with; the rest is for kernels, fragments and what formulas leave out."""
MOST_RESPONSES = 1024
"""Most responses sampled at the same time where the setting is ``"auto"``."""


class TooSmall(ValueError):
    """A run does not fit into the memory of a device."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a language model that decide how much memory it takes."""

    name: str
    parameters: int
    layers: int
    hidden: int
    intermediate: int
    queries: int
    keys: int
    """Width of a token's keys, and of its values."""
    vocabulary: int
    positions: int | None = None
    """Longest context, in tokens."""

    @classmethod
    def of(cls, model: Any, name: str) -> Shape:
        """Return the shape of a causal language model, perhaps on the device ``meta``; ValueError without attention."""
        config = model.config.get_text_config()
        if not (heads := getattr(config, "num_attention_heads", None)):
            raise ValueError(f"cannot plan the memory of the model {name!r}: {config.model_type!r} has no attention")
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(
            name,
            parameters=sum(weight.numel() for part, weight in model.named_parameters() if "lora_" not in part),
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            queries=heads * width,
            keys=(getattr(config, "num_key_value_heads", None) or heads) * width,
            vocabulary=model.get_input_embeddings().num_embeddings,
            positions=most_positions(config),
        )


COMMON = (
    Shape("SmolLM2-135M", 134_515_008, 30, 576, 1536, 576, 192, 49_152),
    Shape("SmolLM2-1.7B", 1_711_376_384, 24, 2048, 8192, 2048, 2048, 49_152),
    Shape("Llama-3.2-1B", 1_235_814_400, 16, 2048, 8192, 2048, 512, 128_256),
    Shape("Llama-3.2-3B", 3_212_749_824, 28, 3072, 8192, 3072, 1024, 128_256),
    Shape("Llama-3.1-8B", 8_030_261_248, 32, 4096, 14_336, 4096, 1024, 128_256),
    Shape("Qwen3-0.6B", 596_049_920, 28, 1024, 3072, 2048, 1024, 151_936),
    Shape("Qwen3-1.7B", 1_720_574_976, 28, 2048, 6144, 2048, 1024, 151_936),
    Shape("Qwen3-4B", 4_022_468_096, 36, 2560, 9728, 4096, 1024, 151_936),
    Shape("Qwen3-8B", 8_190_735_360, 36, 4096, 12_288, 4096, 1024, 151_936),
    Shape("Qwen3-14B", 14_768_307_200, 40, 5120, 17_408, 5120, 1024, 151_936),
)
"""Shapes of common models, from their published configurations."""


def read_shape(model: str | Path) -> Shape:
    """Return the shape of a model from its configuration alone; nothing is downloaded.

    ``model`` is a ``config.json``, the folder that holds it, a GGUF file, a bundled model, or a name on the Hugging
    Face Hub whose configuration is in the local cache. ValueError if it cannot be read, or has no attention.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    from vpo_agent.policy.gguf_file import is_gguf, read_gguf_config
    from vpo_agent.policy.loading import find_bundled, quiet_transformers

    name = find_bundled(model)
    try:
        with quiet_transformers(), torch.device("meta"):
            config = (
                read_gguf_config(name) if is_gguf(name) else AutoConfig.from_pretrained(name, local_files_only=True)
            )
            decoder = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # of transformers, the Hub's client or the architecture's own code
        raise ValueError(
            f"cannot read the configuration of the model {str(model)!r}: {did_you_mean(name, BUNDLED_MODELS)}give "
            f"its config.json or its folder, or fetch it with: hf download NAME config.json ({first_line(error)})"
        ) from error
    return Shape.of(decoder, str(model))


def device_memory(device: torch.device) -> int | None:
    """Return the bytes of a GPU that this process has or can get; ``None`` for a CPU."""
    found = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
    return found or None


@dataclass(frozen=True)
class Plan:
    """The memory of a run, and the sizes that fit: responses sampled, and prompts of a backward pass, at a time."""

    memory: int
    sample_batch: int
    microbatch_prompts: int
    weights: int
    """With adapters, and with the reference model of a KL penalty."""
    optimizer: int
    gradients: int
    cache: int
    logits: int
    activations: int
    """Of the update."""

    @property
    def sampling(self) -> int:
        """The most that sampling takes."""
        return self.weights + self.optimizer + self.cache + self.logits

    @property
    def update(self) -> int:
        """The most that an update takes."""
        return self.weights + self.optimizer + self.gradients + self.activations

    def table(self) -> str:
        """Return a table of both phases, in GB."""
        heads = ("weights", "optimizer", "gradients", "cache", "activations", "free")
        lines = [f"{'GB':<8}" + "".join(f"{head:>13}" for head in heads)]
        sampling = ("sampling", 0, self.cache, self.logits, self.sampling)
        for name, *parts, taken in (sampling, ("update", self.gradients, 0, self.activations, self.update)):
            sizes = (self.weights, self.optimizer, *parts, self.memory - taken)
            lines.append(f"{name:<8}" + "".join(f"{size / GIGA:>13.1f}" if size else f"{'-':>13}" for size in sizes))
        found = f"{counted(self.sample_batch, 'response')} and {counted(self.microbatch_prompts, 'prompt')} at a time"
        return "\n".join([*lines, found])


def plan_run(
    config: TrainConfig, shape: Shape, *, prompt: int, memory: int, names: Mapping[str, str] | None = None
) -> Plan:
    """Choose the largest batches that fit, up to what a step needs; settings that are numbers stay as they are.

    Every prompt has ``prompt`` tokens, every response ``max_new_tokens``. TooSmall if the run does not fit: the error
    names what does not, and the nearest settings that do, by the ``names`` of options that differ from their settings.
    """
    try:
        return _fitting(config, shape, prompt, memory)
    except TooSmall as error:
        reason = str(error)
    for options in _alternatives(config):
        changed = config.model_copy(update={"sample_batch": "auto", "microbatch_prompts": "auto", **options})
        try:
            found = _fitting(changed, shape, prompt, memory)
        except TooSmall:
            continue
        for name in ("sample_batch", "microbatch_prompts"):
            if getattr(config, name) != "auto":
                options[name] = min(getattr(config, name), getattr(found, name))
        changes = {(names or {}).get(n, n): value for n, value in options.items() if value != getattr(config, n)}
        shown = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items())
        raise TooSmall(f"{reason}; it fits with {shown.replace(' True', '')}")
    raise TooSmall(f"{reason}; none of the settings tried makes it fit: use a smaller model or a GPU with more memory")


def _alternatives(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Yield changes of settings that take ever less memory, each also with fewer answers of an evaluation."""
    recomputed, adapters = {"gradient_checkpointing": True}, {} if config.lora_rank else {"lora_rank": 16}
    changes: list[dict[str, Any]] = [{}, recomputed, adapters, {**adapters, **recomputed}]
    fewer = {"rollouts_per_prompt": config.rollouts_per_prompt, "max_new_tokens": config.max_new_tokens}
    for name, least in (("rollouts_per_prompt", 2), ("max_new_tokens", 64)):
        while fewer[name] > least:
            fewer[name] //= 2
            changes.append({**changes[3], **fewer})
    for options in changes:
        yield dict(options)
        rollouts = options.get("rollouts_per_prompt", config.rollouts_per_prompt)
        yield {**options, "eval_answers": min(config.eval_answers, rollouts * min(config.answers))}


def _fitting(config: TrainConfig, s: Shape, prompt: int, memory: int) -> Plan:
    rank, group, response = config.lora_rank, config.rollouts_per_prompt, config.max_new_tokens
    element = 4 if config.dtype == "float32" else 2
    adapters = rank * s.layers * (7 * s.hidden + 2 * s.queries + 2 * s.keys + 3 * s.intermediate)
    trained = adapters if rank else s.parameters
    weights = (1 if rank or not config.kl_coef else 2) * element * s.parameters + 4 * adapters
    # Two moments, and a float32 copy of weights in half precision.
    optimizer = (8 if rank or element == 4 else 12) * trained
    # What the backward pass needs of a token in a layer: the inputs of norms, in float32, and of linear layers, queries
    # and results of attention, and the MLP. Adapters keep inputs in float32, too.
    norms = (4 if rank else 4 + element) * (2 * s.hidden + s.queries + s.keys)
    linear = (4 if rank else element) * (2 * s.hidden + s.queries + s.intermediate) + 4 * rank * 7
    saved = norms + linear + element * (2 * s.queries + 3 * s.intermediate) + (12 * s.hidden if rank else 0)

    def rows(prompts: int) -> int:
        # An evaluation samples all responses to a prompt at the same time, too.
        return max(prompts * group, config.eval_rollouts(min(config.answers)))

    def planned(sampled: int, updated: int) -> Plan:
        # Storage of the cache has room for more tokens.
        columns = prompt + response + max(SPARE_COLUMNS, (prompt + response) // 4) + COLUMNS_AHEAD
        cache: float = rows(sampled) * columns * 2 * element * s.layers * s.keys
        if config.backend == "vllm":
            cache = config.gpu_memory_utilization * memory
        # Logits as computed, in float32, as probabilities, and their sums; or an MLP while the prompts are read.
        logits = rows(sampled) * s.vocabulary * (16 if element == 4 else 18)
        logits = max(logits, element * sampled * prompt * (2 * s.hidden + 3 * s.intermediate))
        sizes = (weights, optimizer, 4 * trained, int(cache), logits, activations(updated))
        return Plan(memory, sampled * group, updated, *sizes)

    def activations(prompts: int) -> int:
        answered, read = prompts * group * response, prompts * prompt
        tokens, seen = read + answered, group * read + answered
        # Heads that share keys have copies of them, for each rollout also those of its prompt; and there is a mask.
        layer = saved * tokens + element * (2 * s.queries * (read + seen) + response * seen)
        states = (4 + 2 * element) * s.hidden * tokens
        head = s.vocabulary * (12 * min(TILE_TOKENS_GPU, answered) + (0 if rank else (4 + element) * s.hidden))
        inside = 4 * (s.hidden + s.intermediate) * tokens
        if config.gradient_checkpointing:
            return s.layers * element * s.hidden * tokens + states + max(head, layer + inside)
        return s.layers * layer + states + max(head, inside)

    def most(setting: int | str, upto: int, taken: Callable[[int], int], doing: Callable[[int], str]) -> int:
        """Return the most prompts at a time that fit, at most ``upto``, or those of the setting."""
        wanted = upto if setting == "auto" else min(upto, max(1, int(setting)))
        fit = bisect_right(range(1, wanted + 1), USABLE * memory, key=taken)
        if fit and (fit == wanted or setting == "auto"):
            return fit
        tried = wanted if fit else 1
        raise TooSmall(
            f"{s.name} does not fit into {memory / GIGA:.3g} GB, of which {USABLE:.0%} are planned with: "
            f"{doing(tried)} takes {taken(tried) / GIGA:.1f} GB with weights and optimizer"
        )

    steps = min(config.prompts_per_step, max(1, MOST_RESPONSES // group))
    asked = config.sample_batch if config.sample_batch == "auto" else config.sample_batch // group
    sampled = most(asked, steps, lambda n: planned(n, 1).sampling, lambda n: f"sampling {rows(n)} responses at a time")
    whole, each = config.minibatch_prompts or config.prompts_per_step, counted(group, "rollout")

    def updating(prompts: int) -> str:
        return f"updating on {counted(prompts, 'prompt')} with {each} each"

    return planned(sampled, most(config.microbatch_prompts, whole, lambda n: planned(sampled, n).update, updating))
