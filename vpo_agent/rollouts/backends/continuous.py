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
from vpo_agent.policy.loading import quiet_transformers
from vpo_agent.policy.samples import SampleRequest
from vpo_agent.rollouts.backends.responses import EngineSampler
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


class ContinuousSampler(EngineSampler):
    """Samples from a policy by transformers' continuous batching.

    Each prompt is computed once and its cache forked to its rollouts. The engine ends rows only at single tokens: if
    the closing tag of the last answer is one token, rows end there; otherwise they continue to the end of sequence or
    ``max_new_tokens`` and are cut at the tag afterwards. All random numbers come from one stream, so the samples of a
    call depend on its whole batch and on how a batch is split into calls.
    """

    def _generate(self, prompts: list[list[int]], request: SampleRequest) -> tuple[list[list[int]], list[list[float]]]:
        from transformers import ContinuousBatchingConfig

        closing = closing_token(self.policy.tokenizer, request.num_answers)
        generation = GenerationConfig(
            do_sample=True,
            temperature=request.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=request.max_new_tokens,
            num_return_sequences=request.rollouts,
            # The engine reads -1 as no token.
            eos_token_id=sorted({*self.policy.ending_ids, *([] if closing is None else [closing])}) or [-1],
            pad_token_id=self.policy.tokenizer.pad_token_id,
        )
        seed = int(np.random.SeedSequence([*request.seed, request.places[0]]).generate_state(1)[0])
        settings: dict[str, Any] = {"return_logprobs": True, "seed": seed}
        responses = len(prompts) * request.rollouts
        if self.policy.device.type == "cpu":
            # The defaults are for a GPU: on a CPU they would take most of the memory and attend over all of it.
            pages = -(-(max(map(len, prompts)) + request.max_new_tokens) // CPU_PAGE) + 1
            settings |= {"page_size": CPU_PAGE, "num_blocks": pages * responses}
        with quiet_transformers(), self._plain_attention():
            manager = self.policy.causal_lm.init_continuous_batching(
                generation_config=generation, continuous_batching_config=ContinuousBatchingConfig(**settings)
            )
            # All before the engine starts: otherwise its batches would depend on timing.
            names = [manager.add_request(row, request_id=str(i)) for i, row in enumerate(prompts)]
            manager.start()
            try:
                found = self._results(manager, responses)
            finally:
                manager.stop(block=True)
                manager.destroy()
        children = ["", *(f"__child#{child}" for child in range(request.rollouts - 1))]
        outputs = [found[name + child] for name in names for child in children]
        return [output.generated_tokens for output in outputs], [output.logprobs for output in outputs]

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
                raise BackendFailed(f"the backend continuous failed ({reason.strip()}): use --backend native")
            if output.is_finished():
                found[output.request_id] = output
        return found

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
