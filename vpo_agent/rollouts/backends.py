"""Generation backends: the native loop, or vLLM in the trainer's own process, on the trainer's own GPU.

Written for the documented interface of vLLM 0.22 and later: ``LLM.generate`` with token ids as prompts, sleep mode, and
``collective_rpc("reload_weights", kwargs={"weights_iterator": ...})``, which takes weights by their names in a
checkpoint. The tests run it with a stand-in that checks the calls, and with vLLM itself if that and a GPU are there; it
has not run with any release of vLLM yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor

from vpo_agent.config import Backend, TrainConfig
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.decoding import ClosingTag
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.gguf_file import is_gguf
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import choose_device, find_bundled
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples

IMPORTANCE_CAP = 2.0
"""The ``importance_cap`` of a run for which vLLM was chosen, since its probabilities differ from the trainer's."""


def with_backend(config: TrainConfig) -> TrainConfig:
    """Return the settings with a backend in place of ``auto``.

    That is vLLM, with :data:`IMPORTANCE_CAP` unless another is set, where it is installed, the device is a GPU and the
    model no GGUF file; else the native loop.

    Raises:
        ValueError: The backend that the settings name is not installed, or cannot load the model.
    """
    installed = find_spec("vllm") is not None
    if config.backend == "vllm":
        if not installed:
            raise ValueError(
                "backend=vllm needs the package vllm, which brings its own torch: pip install 'vllm>=0.22' in a "
                "separate environment, or use backend native"
            )
        if is_gguf(config.model):
            raise ValueError(f"backend=vllm takes no GGUF file such as {config.model!r}: use backend native")
    if config.backend != "auto":
        return config
    if not installed or is_gguf(config.model) or choose_device(config.device).type != "cuda":
        return config.model_copy(update={"backend": "native"})
    return config.model_copy(update={"backend": "vllm", "importance_cap": config.importance_cap or IMPORTANCE_CAP})


def why_native(asked: Backend, config: TrainConfig) -> str:
    """Return why ``auto`` chose the native loop for a run on a GPU, to follow its name; nothing if it did not."""
    if asked != "auto" or config.backend != "native":
        return ""
    return ", since vllm takes no GGUF file" if is_gguf(config.model) else ", since vllm is not installed"


def open_sampler(backend: Backend, policy: LMPolicy, *, model: str, gpu_memory_utilization: float = 0.5) -> Sampler:
    """Make the sampler that generates from ``policy``."""
    if backend == "vllm":
        return VLLMSampler(policy, model, gpu_memory_utilization=gpu_memory_utilization)
    return policy


class VLLMSampler(Sampler):
    """Samples from a policy by vLLM.

    Each call loads the policy's weights first and puts the engine to sleep afterwards, so that the update can use the
    memory of its cache and weights. Each row has its own seed, which depends only on its place.
    """

    def __init__(self, policy: LMPolicy, model: str, *, gpu_memory_utilization: float) -> None:
        # In a separate process the engine would receive pickled weights.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self.policy = policy
        with generators_kept():
            try:
                from vllm import LLM

                self._llm: Any = LLM(
                    model=find_bundled(model),
                    # Merged in bfloat16, adapters would lose most of a small update.
                    dtype="float32"
                    if policy.model is not policy.causal_lm
                    else str(policy.dtype).removeprefix("torch."),
                    gpu_memory_utilization=gpu_memory_utilization,
                    enable_sleep_mode=True,
                    # Log-probabilities of the tempered distribution.
                    logprobs_mode="processed_logprobs",
                    # Without the sampling settings that come with a model.
                    generation_config="vllm",
                    seed=0,
                )
                self._llm.sleep(level=2)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
                raise ValueError(f"vLLM does not start ({reason[0]}): use --backend native") from error

    def _sample(self, request: SampleRequest) -> Samples:
        ids, mask = self.policy.encode_prompts(request.prompts)
        self.policy.check_length(ids.shape[1], request.max_new_tokens)
        rows = [row[seen].tolist() for row, seen in zip(ids.cpu(), mask.cpu(), strict=True)]
        with generators_kept():
            tokens, log_probs = self._generate(rows, request)
        return to_samples(self.policy, (ids, mask), tokens, log_probs, request)

    def _generate(self, prompts: list[list[int]], request: SampleRequest) -> tuple[list[list[int]], list[list[float]]]:
        """Return the tokens of all responses, those to a prompt adjacent, and their log-probabilities."""
        from vllm import SamplingParams

        rows, settings = [], []
        for number, (prompt, place) in enumerate(zip(prompts, request.places, strict=True)):
            for row in range(place * request.rollouts, (place + 1) * request.rollouts):
                rows.append({"prompt_token_ids": prompt})
                settings.append(
                    SamplingParams(
                        temperature=request.temperature,
                        top_p=1.0,
                        top_k=0,
                        max_tokens=request.max_new_tokens,
                        stop=[request.closing_tag(number)],
                        include_stop_str_in_output=True,
                        stop_token_ids=self.policy.ending_ids,
                        # Only the log-probability of the sampled token.
                        logprobs=0,
                        seed=int(np.random.SeedSequence([*request.seed, row]).generate_state(1)[0]),
                    )
                )
        self._wake()
        try:
            outputs = self._llm.generate(rows, settings, use_tqdm=False)
        finally:
            self._llm.sleep(level=2)
        responses = [output.outputs[0] for output in outputs]
        if len(responses) != len(rows) or any(not one.token_ids or one.logprobs is None for one in responses):
            raise BackendFailed("vLLM gave no tokens or log-probabilities for a prompt: use --backend native")
        return [list(one.token_ids) for one in responses], [
            [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)] for one in responses
        ]

    def _wake(self) -> None:
        """Load the current weights into the engine, then allocate its cache."""
        self._llm.wake_up(tags=["weights"])
        weights = checkpoint_weights(self.policy.causal_lm)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.wake_up(tags=["kv_cache"])
        # Cached prompts were computed with the old weights.
        self._llm.reset_prefix_cache()


def checkpoint_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a Hugging Face model by their names in a checkpoint, with LoRA adapters merged in float32.

    A tied weight comes once. The model is not changed.
    """
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            for name, weight in module.base_layer.named_parameters():
                merged = weight.detach()
                if name == "weight":
                    for adapter in module.active_adapters:
                        merged = merged.float() + module.get_delta_weight(adapter).float()
                yield f"{prefix}.{name}", merged
        elif ".base_layer" not in prefix and ".lora_" not in prefix:
            for name, weight in module.named_parameters(recurse=False):
                if id(weight) in seen:
                    continue
                seen.add(id(weight))
                yield (f"{prefix}.{name}" if prefix else name), weight.detach()


def to_samples(
    policy: LMPolicy,
    prompts: tuple[Tensor, Tensor],
    tokens: Sequence[Sequence[int]],
    log_probs: Sequence[Sequence[float]],
    request: SampleRequest,
) -> Samples:
    """Cut responses at their end and combine them.

    A response ends with the token that completes the closing tag of the last answer, or with an end-of-sequence token;
    one with neither is truncated.
    """
    stops = [policy.closing_tag(request.closing_tag(prompt)) for prompt in range(len(request.prompts))]
    ends = [_end(row, policy.ending_ids, stops[place // request.rollouts]) for place, row in enumerate(tokens)]
    return Samples.of(
        prompts,
        [row[:end] for row, end in zip(tokens, ends, strict=True)],
        [row[:end] for row, end in zip(log_probs, ends, strict=True)],
        [end is None for end in ends],
        request.temperature,
        policy.tokenizer,
    )


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global random generators after an engine has used them."""
    states = generator_states()
    try:
        yield
    finally:
        restore_generators(*states)


def _end(tokens: Sequence[int], ending: Sequence[int], stop: ClosingTag) -> int | None:
    """Tokens up to the end of a response; ``None`` without an end."""
    for count, token in enumerate(tokens, 1):
        if token in ending or stop(tokens[max(0, count - stop.most_tokens) : count]):
            return count
    return None
