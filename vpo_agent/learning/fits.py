"""What fits into a GPU: weights, optimizer, cache and logits as arithmetic, from a model's configuration alone.

All sizes are bytes. For layers other than attention and a gated MLP they are estimates. If an estimate is too small,
sampling and update halve what does not fit and go on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from envs_data.models import BUNDLED_MODELS, find_bundled
from vpo_agent.config import TrainConfig
from vpo_agent.policy.cached_model import SPARE_COLUMNS, attention_widths, max_positions
from vpo_agent.policy.graph_row_cache import COLUMNS_AHEAD
from vpo_agent.policy.head import TILE_TOKENS_GPU
from vpo_agent.policy.memory import USABLE
from vpo_agent.policy.samples import MAX_RESPONSES
from vpo_envs.common.wording import counted, did_you_mean, first_line

GIGA = 1e9


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
    """Width of a token's keys, and of its values, in numbers."""
    vocabulary: int
    positions: int | None = None
    """Longest context, in tokens."""

    @classmethod
    def of(cls, model: Any, name: str) -> Shape:
        """Return the shape of a causal language model, perhaps on the device ``meta``; ValueError without attention."""
        config = model.config.get_text_config()
        if not getattr(config, "num_attention_heads", None):
            raise ValueError(f"cannot plan the memory of the model {name!r}: {config.model_type!r} has no attention")
        queries, keys = attention_widths(config)
        return cls(
            name,
            parameters=sum(weight.numel() for part, weight in model.named_parameters() if "lora_" not in part),
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            queries=queries,
            keys=keys,
            vocabulary=model.get_input_embeddings().weight.shape[0],
            positions=max_positions(config),
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
    from vpo_agent.policy.loading import quiet_transformers

    name = find_bundled(model)
    try:
        with quiet_transformers(), torch.device("meta"):
            config = (
                read_gguf_config(name)
                if is_gguf(name)
                else AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
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
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)


@dataclass(frozen=True)
class Plan:
    """The memory of a run in bytes, and what fits at a time: responses sampled, and prompts of a backward pass."""

    memory: int
    sample_batch: int
    microbatch_prompts: int
    weights: int
    """Weights of the model, its adapters, and the reference model of a KL penalty."""
    optimizer: int
    gradients: int
    cache: int
    logits: int
    activations: int
    """Activations of the update."""

    @property
    def sampling(self) -> int:
        """The most bytes that sampling takes."""
        return self.weights + self.optimizer + self.cache + self.logits

    @property
    def update(self) -> int:
        """The most bytes that an update takes."""
        return self.weights + self.optimizer + self.gradients + self.activations

    def table(self) -> str:
        """Return a table of both phases, in GB."""
        parts_of_phase = {
            "sampling": (self.weights, self.optimizer, 0, self.cache, self.logits, self.memory - self.sampling),
            "update": (
                self.weights,
                self.optimizer,
                self.gradients,
                0,
                self.activations,
                self.memory - self.update,
            ),
        }
        heads = ("weights", "optimizer", "gradients", "cache", "activations", "free")
        lines = [f"{'GB':<8}" + "".join(f"{head:>13}" for head in heads)]
        for phase, parts in parts_of_phase.items():
            cells = [f"{size / GIGA:.1f}" if size else "-" for size in parts]
            lines.append(f"{phase:<8}" + "".join(f"{cell:>13}" for cell in cells))
        responses, prompts = counted(self.sample_batch, "response"), counted(self.microbatch_prompts, "prompt")
        return "\n".join([*lines, f"{responses} and {prompts} at a time"])


def plan_run(
    config: TrainConfig, shape: Shape, *, prompt: int, memory: int, names: Mapping[str, str] | None = None
) -> Plan:
    """Choose the largest batches that fit, up to what a step needs; settings that are numbers stay as they are.

    Args:
        config: Settings of the run.
        shape: Sizes of the run's model.
        prompt: Tokens of every prompt. Every response has ``max_new_tokens``.
        memory: Bytes of the device.
        names: Options whose name differs from the name of their setting, by setting.

    Raises:
        TooSmall: The run does not fit. The message names what does not, and the nearest settings that do.
    """
    try:
        return _largest_plan(config, shape, prompt, memory)
    except TooSmall as error:
        reason = str(error)
    for changes in _smaller_settings(config):
        changed = config.model_copy(update={"sample_batch": "auto", "microbatch_prompts": "auto", **changes})
        try:
            plan = _largest_plan(changed, shape, prompt, memory)
        except TooSmall:
            continue
        for name in ("sample_batch", "microbatch_prompts"):
            if getattr(config, name) != "auto":
                changes[name] = min(getattr(config, name), getattr(plan, name))
        raise TooSmall(f"{reason}; it fits with {_as_options(config, changes, names or {})}")
    raise TooSmall(f"{reason}; none of the settings tried makes it fit: use a smaller model or a GPU with more memory")


def _smaller_settings(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Yield changes of settings that take ever less memory, each also with fewer answers in an evaluation."""
    recomputed = {"gradient_checkpointing": True}
    adapters = {} if config.lora_rank else {"lora_rank": 16}
    smallest: dict[str, Any] = {**adapters, **recomputed}
    all_changes: list[dict[str, Any]] = [{}, recomputed, adapters, smallest]
    rollouts, tokens = config.rollouts_per_prompt, config.max_new_tokens
    while rollouts > 2:
        rollouts //= 2
        all_changes.append({**smallest, "rollouts_per_prompt": rollouts, "max_new_tokens": tokens})
    while tokens > 64:
        tokens //= 2
        all_changes.append({**smallest, "rollouts_per_prompt": rollouts, "max_new_tokens": tokens})
    for changes in all_changes:
        yield dict(changes)
        trained_rollouts = changes.get("rollouts_per_prompt", config.rollouts_per_prompt)
        yield {**changes, "eval_answers": min(config.eval_answers, trained_rollouts * min(config.answer_shares))}


def _as_options(config: TrainConfig, changes: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the options of a command line that change settings, without those that change nothing."""
    words = []
    for name, value in changes.items():
        if value != getattr(config, name):
            option = "--" + names.get(name, name).replace("_", "-")
            words.append(option if value is True else f"{option} {value}")
    return " ".join(words)


def _largest_plan(config: TrainConfig, shape: Shape, prompt: int, memory: int) -> Plan:
    """Return the plan with the largest batches that fit; TooSmall if fixed batches, or one prompt, do not fit."""
    run = _RunMemory(config, shape, prompt, memory)
    group = config.rollouts_per_prompt
    sampled = min(config.prompts_per_step, max(1, MAX_RESPONSES // group))
    if config.sample_batch != "auto":
        sampled = min(sampled, max(1, config.sample_batch // group))
    updated = config.minibatch_prompts or config.prompts_per_step
    if config.microbatch_prompts != "auto":
        updated = min(updated, config.microbatch_prompts)
    fixed = config.sample_batch != "auto"
    sampled = run.max_prompts(sampled, run.sampling, run.sampling_in_words, fixed=fixed)
    fixed = config.microbatch_prompts != "auto"
    updated = run.max_prompts(updated, run.update, run.update_in_words, fixed=fixed)
    return run.plan(sampled, updated)


class _RunMemory:
    """The bytes that a run takes, for so many prompts at a time; every prompt has ``prompt`` tokens."""

    def __init__(self, config: TrainConfig, shape: Shape, prompt: int, memory: int) -> None:
        self.config, self.shape, self.prompt, self.memory = config, shape, prompt, memory
        self.response = config.max_new_tokens
        self.element = 4 if config.dtype == "float32" else 2
        """Bytes of a weight, and of a value in a layer."""
        rank = config.lora_rank
        # Inputs and outputs of the seven linear layers: query, key, value, output, gate, up and down.
        widths = 7 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 3 * shape.intermediate
        adapters = rank * shape.layers * widths
        trained = adapters if rank else shape.parameters
        copies = 2 if config.kl_coef and not rank else 1
        self.weights = copies * self.element * shape.parameters + 4 * adapters
        # Two moments, and a float32 copy of weights in half precision.
        self.optimizer = (8 if rank or self.element == 4 else 12) * trained
        self.gradients = 4 * trained

    def plan(self, sampled: int, updated: int) -> Plan:
        """Return the plan that samples for so many prompts and updates on so many."""
        return Plan(
            memory=self.memory,
            sample_batch=sampled * self.config.rollouts_per_prompt,
            microbatch_prompts=updated,
            weights=self.weights,
            optimizer=self.optimizer,
            gradients=self.gradients,
            cache=self._cache(sampled),
            logits=self._logits(sampled),
            activations=self._activations(updated),
        )

    def sampling(self, prompts: int) -> int:
        """Return the bytes that sampling takes."""
        return self.plan(prompts, 1).sampling

    def sampling_in_words(self, prompts: int) -> str:
        """Return a phrase such as ``"sampling 64 responses at a time"``."""
        return f"sampling {self._responses(prompts)} responses at a time"

    def update(self, prompts: int) -> int:
        """Return the bytes that an update takes."""
        return self.plan(1, prompts).update

    def update_in_words(self, prompts: int) -> str:
        """Return a phrase such as ``"updating on 2 prompts with 8 rollouts each"``."""
        rollouts = counted(self.config.rollouts_per_prompt, "rollout")
        return f"updating on {counted(prompts, 'prompt')} with {rollouts} each"

    def max_prompts(
        self, limit: int, taken: Callable[[int], int], in_words: Callable[[int], str], *, fixed: bool
    ) -> int:
        """Return the largest number of prompts up to ``limit`` that fits.

        Args:
            limit: At least 1.
            taken: Bytes by the number of prompts.
            in_words: Says what takes these bytes, for the message.
            fixed: Whether the number must be ``limit``.

        Raises:
            TooSmall: There is no such number.
        """
        fitting = bisect_right(range(1, limit + 1), USABLE * self.memory, key=taken)
        if fitting == limit or (fitting and not fixed):
            return fitting
        tried = limit if fitting else 1
        raise TooSmall(
            f"{self.shape.name} does not fit into {self.memory / GIGA:.3g} GB, of which the plan uses {USABLE:.0%}: "
            f"{in_words(tried)} takes {taken(tried) / GIGA:.1f} GB with weights and optimizer"
        )

    def _responses(self, prompts: int) -> int:
        # An evaluation samples all responses to a prompt at the same time, too.
        in_evaluation = self.config.eval_rollouts(min(self.config.answer_shares))
        return max(prompts * self.config.rollouts_per_prompt, in_evaluation)

    def _cache(self, prompts: int) -> int:
        if self.config.backend == "vllm":
            return int(self.config.gpu_memory_utilization * self.memory)
        # The storage has room for more tokens.
        length = self.prompt + self.response
        columns = length + max(SPARE_COLUMNS, length // 4) + COLUMNS_AHEAD
        return self._responses(prompts) * columns * 2 * self.element * self.shape.layers * self.shape.keys

    def _logits(self, prompts: int) -> int:
        # As computed, in float32, as probabilities, and their sums.
        logits = self._responses(prompts) * self.shape.vocabulary * (16 if self.element == 4 else 18)
        # An MLP while the prompts are read may take more.
        reading = self.element * prompts * self.prompt * (2 * self.shape.hidden + 3 * self.shape.intermediate)
        return max(logits, reading)

    def _activations(self, prompts: int) -> int:
        shape, group = self.shape, self.config.rollouts_per_prompt
        answered, read = prompts * group * self.response, prompts * self.prompt
        tokens, seen = read + answered, group * read + answered
        # Heads that share keys have copies of them, for each rollout also those of its prompt; and there is a mask.
        attention = self.element * (2 * shape.queries * (read + seen) + self.response * seen)
        layer = self._saved_per_token() * tokens + attention
        states = (4 + 2 * self.element) * shape.hidden * tokens
        tile = 12 * min(TILE_TOKENS_GPU, answered)
        gradient_of_head = 0 if self.config.lora_rank else (4 + self.element) * shape.hidden
        head = shape.vocabulary * (tile + gradient_of_head)
        inside = 4 * (shape.hidden + shape.intermediate) * tokens
        if self.config.gradient_checkpointing:
            return shape.layers * self.element * shape.hidden * tokens + states + max(head, layer + inside)
        return shape.layers * layer + states + max(head, inside)

    def _saved_per_token(self) -> int:
        """Return the bytes of a token that a layer keeps for the backward pass.

        They are the inputs of norms, in float32, and of linear layers, queries and results of attention, and the MLP.
        Adapters keep their inputs in float32, too.
        """
        shape, element, rank = self.shape, self.element, self.config.lora_rank
        norms = (4 if rank else 4 + element) * (2 * shape.hidden + shape.queries + shape.keys)
        linear = (4 if rank else element) * (2 * shape.hidden + shape.queries + shape.intermediate) + 4 * rank * 7
        rest = element * (2 * shape.queries + 3 * shape.intermediate)
        return norms + linear + rest + (12 * shape.hidden if rank else 0)
