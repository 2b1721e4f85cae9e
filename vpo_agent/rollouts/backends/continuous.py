"""Transformers' continuous batching: a paged cache in which waiting prompts replace ended rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from vpo_agent.errors import BackendFailed
from vpo_agent.policy.attention import ATTENTION
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import quiet_transformers
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.rollouts.backends.responses import generators_kept, prompt_rows, to_samples
from vpo_agent.rollouts.spans import closing_token

CPU_PAGE = 32
"""Tokens per page of the cache on a CPU, where attention reads whole pages."""


def has_continuous_batching() -> bool:
    """Whether the installed transformers has the settings that this module uses."""
    try:
        from transformers import ContinuousBatchingConfig
    except ImportError:
        return False
    return {"page_size", "return_logprobs", "seed"} <= {field.name for field in fields(ContinuousBatchingConfig)}


class ContinuousSampler(Sampler):
    """Samples from a policy by transformers' continuous batching.

    Each prompt is computed once and its cache forked to its rollouts. The engine ends rows only at single tokens: if
    the closing tag of the last answer is one token, rows end there; otherwise they continue to the end of sequence or
    ``max_new_tokens`` and are cut at the tag afterwards. All random numbers come from one stream, so the samples of a
    call depend on its whole batch and on how a batch is split into calls.

    Args:
        policy: The model.
    """

    def __init__(self, policy: LMPolicy) -> None:
        self.policy = policy

    def _sample(self, request: SampleRequest) -> Samples:
        encoded = self.policy.encode_prompts(request.prompts)
        self.policy.check_length(encoded[0].shape[1], request.max_new_tokens)
        outputs = self._generate(
            prompt_rows(*encoded),
            GenerationConfig(
                do_sample=True,
                temperature=request.temperature,
                top_k=0,
                top_p=1.0,
                max_new_tokens=request.max_new_tokens,
                num_return_sequences=request.rollouts,
                eos_token_id=self._stops(request.num_answers),
                pad_token_id=self.policy.tokenizer.pad_token_id,
            ),
            int(np.random.SeedSequence([*request.seed, request.places[0]]).generate_state(1)[0]),
        )
        return to_samples(
            self.policy,
            encoded,
            [output.generated_tokens for output in outputs],
            [output.logprobs for output in outputs],
            request,
        )

    def _generate(self, rows: list[list[int]], generation: GenerationConfig, seed: int) -> list[Any]:
        """The engine's output for each rollout, those of a prompt adjacent."""
        from transformers import ContinuousBatchingConfig

        rollouts, length = generation.num_return_sequences, generation.max_new_tokens
        settings: dict[str, Any] = {"return_logprobs": True, "seed": seed}
        if self.policy.device.type == "cpu":
            # The defaults are for a GPU: on a CPU they would take most of the memory and attend over all of it.
            pages = -(-(max(map(len, rows)) + length) // CPU_PAGE) + 1
            settings |= {"page_size": CPU_PAGE, "num_blocks": pages * len(rows) * rollouts}
        with generators_kept(), quiet_transformers(), self._plain_attention():
            manager = self.policy.causal_lm.init_continuous_batching(
                generation_config=generation, continuous_batching_config=ContinuousBatchingConfig(**settings)
            )
            # All before the engine starts: otherwise its batches would depend on timing.
            requests = [manager.add_request(row, request_id=str(i)) for i, row in enumerate(rows)]
            manager.start()
            try:
                found = self._results(manager, len(rows) * rollouts)
            finally:
                manager.stop(block=True)
                manager.destroy()
        return [
            found[name]
            for request in requests
            for name in (request, *(f"{request}__child#{child}" for child in range(rollouts - 1)))
        ]

    def _results(self, manager: Any, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while len(found) < count:
            output = manager.get_result(timeout=1)
            if output is None and manager.is_running():
                continue
            reason = "it ended early" if output is None else output.error
            if reason is not None:
                if "out of memory" in reason:
                    raise torch.OutOfMemoryError(reason)
                raise BackendFailed(f"the backend continuous failed ({reason.strip()}): take --backend native")
            if output.is_finished():
                found[output.request_id] = output
        return found

    def _stops(self, num_answers: int) -> list[int]:
        """Tokens at which the engine ends a row."""
        closing = closing_token(self.policy.tokenizer, num_answers)
        alone = [] if closing is None else [closing]
        # For the engine, -1 is no token.
        return sorted({*self.policy.ending_ids, *alone}) or [-1]

    @contextmanager
    def _plain_attention(self) -> Iterator[None]:
        """Replace our attention function by one that the engine supports."""
        model = self.policy.causal_lm
        before = model.config._attn_implementation
        if before == ATTENTION:
            model.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            if model.config._attn_implementation != before:
                model.set_attn_implementation(before)
