"""Generation backends: the native loop, or vLLM in the trainer's own process, on the trainer's own GPU.

Written for the documented interface of vLLM 0.22 and later: ``LLM.generate`` with token ids as prompts and a
``LoRARequest``, sleep mode, and ``collective_rpc("reload_weights", kwargs={"weights_iterator": ...})``, which takes
weights by their names in a checkpoint. The tests run it with a stand-in that checks the calls, and with vLLM itself if
that and a GPU are there; it has not run with any release of vLLM yet.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vpo_agent.config import Backend, TrainConfig
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.decoding import ClosingTag
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.gguf_file import is_gguf
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import choose_device, choose_dtype, find_bundled, quiet_transformers
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_envs.common.wording import first_line

IMPORTANCE_CAP = 2.0
"""The ``importance_cap`` of a run for which vLLM was chosen, since its probabilities differ from the trainer's."""


def with_backend(config: TrainConfig) -> TrainConfig:
    """Return the settings with a backend in place of ``auto``.

    That is vLLM, with :data:`IMPORTANCE_CAP` unless another is set, where :func:`why_native` has no reason against it;
    else the native loop.

    Raises:
        ValueError: The settings name vLLM where it cannot sample.
    """
    reason = why_native(config)
    if config.backend == "vllm" and reason:
        raise ValueError(f"backend=vllm cannot sample here, since {reason}: use backend native")
    if config.backend != "auto":
        return config
    vllm = {"backend": "vllm", "importance_cap": config.importance_cap or IMPORTANCE_CAP}
    return config.model_copy(update={"backend": "native"} if reason else vllm)


def why_native(config: TrainConfig) -> str:
    """Return why vLLM cannot sample for a run, as part of a sentence; nothing if it can."""
    device = choose_device(config.device)
    if device.type != "cuda":
        return "the device is not a GPU"
    if find_spec("vllm") is None:
        return "vllm is not installed (it brings its own torch: pip install 'vllm>=0.22' in a separate environment)"
    if is_gguf(config.model):
        return f"vllm takes no GGUF file such as {config.model!r}"
    if (Path(find_bundled(config.model)) / "adapter_config.json").is_file():
        return f"vllm takes whole models, and {config.model!r} holds adapters"
    if config.lora_rank and choose_dtype(config.dtype, device) == torch.float32:
        return "vllm takes no LoRA adapters in float32"
    return ""


def backend_in_words(asked: Backend, config: TrainConfig) -> str:
    """Return which backend samples for a run whose settings asked for one, and why."""
    chosen = f"since {why_native(config) or 'vllm is installed and the device is a GPU'}"
    return f"sampled by the backend {config.backend}, {chosen if asked == 'auto' else 'as the settings say'}"


def open_sampler(config: TrainConfig, policy: LMPolicy, max_model_len: int | None = None) -> Sampler:
    """Make the sampler of a run; no prompt and its response together may have more than ``max_model_len`` tokens."""
    return VLLMSampler(policy, config, max_model_len) if config.backend == "vllm" else policy


class VLLMSampler(Sampler):
    """Samples from a policy by vLLM.

    Each call loads the policy's weights first, of a LoRA policy the adapters alone, and puts the engine to sleep
    afterwards, so that the update can use the memory of its cache and weights. Each row has its own seed, which depends
    only on its place.
    """

    def __init__(self, policy: LMPolicy, config: TrainConfig, max_model_len: int | None) -> None:
        # In a separate process the engine would receive pickled weights.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self.policy = policy
        self._has_adapters = policy.model is not policy.causal_lm
        self._ids = itertools.count(1)
        # At level 1 the CPU's memory holds the weights while the engine sleeps; at level 2 they come anew.
        self._sleep_level = 1 if self._has_adapters else 2
        with generators_kept():
            try:
                from vllm import LLM

                self._llm: Any = LLM(
                    model=find_bundled(config.model),
                    dtype=str(policy.dtype).removeprefix("torch."),
                    gpu_memory_utilization=config.gpu_memory_utilization,
                    max_model_len=max_model_len,
                    enable_sleep_mode=True,
                    # Log-probabilities of the tempered distribution.
                    logprobs_mode="processed_logprobs",
                    # Without the sampling settings that come with a model.
                    generation_config="vllm",
                    seed=0,
                    **(_lora_settings(policy.model) if self._has_adapters else {}),
                )
                self._llm.sleep(level=self._sleep_level)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                raise ValueError(f"vLLM does not start ({first_line(error)}): use --backend native") from error

    def sample_batch(self, request: SampleRequest) -> Samples:
        """See :meth:`~vpo_agent.policy.samples.Sampler.sample_batch`."""
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
                        stop=[request.closing_tags[number]],
                        include_stop_str_in_output=True,
                        stop_token_ids=self.policy.ending_ids,
                        # Only the log-probability of the sampled token.
                        logprobs=0,
                        seed=int(np.random.SeedSequence([*request.seed, row]).generate_state(1)[0]),
                    )
                )
        try:
            with self._awake() as adapters:
                outputs = self._llm.generate(rows, settings, use_tqdm=False, lora_request=adapters)
        except ValueError as error:
            raise BackendFailed(f"vLLM refuses to generate ({first_line(error)}): use --backend native") from error
        responses = [output.outputs[0] for output in outputs]
        if len(responses) != len(rows) or any(not one.token_ids or one.logprobs is None for one in responses):
            raise BackendFailed("vLLM gave no tokens or log-probabilities for a prompt: use --backend native")
        return [list(one.token_ids) for one in responses], [
            [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)] for one in responses
        ]

    @contextmanager
    def _awake(self) -> Iterator[Any]:
        """Wake the engine with the current weights; yield its request for the adapters, ``None`` without any."""
        with TemporaryDirectory(prefix="vpo-adapters-") as folder:
            try:
                if self._has_adapters:
                    from vllm.lora.request import LoRARequest

                    with quiet_transformers():
                        self.policy.model.save_pretrained(folder, save_embedding_layers=False)
                    self._llm.wake_up()
                    # vLLM keeps the adapters of an id, and the cached prompts of a name.
                    number = next(self._ids)
                    adapters = LoRARequest(f"adapters-{number}", number, folder)
                else:
                    self._llm.wake_up(tags=["weights"])
                    weights = ((name, weight.detach()) for name, weight in self.policy.model.named_parameters())
                    self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
                    self._llm.wake_up(tags=["kv_cache"])
                    adapters = None
                # Cached prompts were computed with the old weights.
                self._llm.reset_prefix_cache()
                yield adapters
            finally:
                self._llm.sleep(level=self._sleep_level)


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
    stops = [policy.closing_tag(tag) for tag in request.closing_tags]
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
        if token in ending or stop(tokens[max(0, count - stop.max_tokens) : count]):
            return count
    return None


def _lora_settings(model: Any) -> dict[str, Any]:
    for name, weight in model.named_parameters():
        if weight.requires_grad and not re.search(r"\.lora_[AB]\.default\.weight$", name):
            raise ValueError(f"it takes LoRA adapters of linear layers, not {name!r}")
    # A rank is a power of two from 8 on.
    return {"enable_lora": True, "max_lora_rank": max(8, 1 << (model.peft_config["default"].r - 1).bit_length())}
