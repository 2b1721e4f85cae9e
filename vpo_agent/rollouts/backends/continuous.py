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
from vpo_agent.policy.memory import page_tokens, pages_of_row
from vpo_agent.policy.samples import SampleRequest
from vpo_agent.rollouts.backends.responses import EngineSampler
from vpo_agent.rollouts.spans import closing_token

KEPT = "_cached_continuous_batching_manager"
"""Where transformers keeps an engine."""


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

    The engine is kept for calls of the same size and settings, and its cache stays allocated in between, so also during
    the update. Neither the time that this saves nor the memory was measured on a GPU.
    """

    def __init__(self, policy: LMPolicy) -> None:
        super().__init__(policy)
        self._manager: Any = None
        self._made_for: tuple[Any, ...] = ()

    def _generate(self, prompts: list[list[int]], request: SampleRequest) -> tuple[list[list[int]], list[list[float]]]:
        closing = closing_token(self.policy.tokenizer, request.num_answers)
        # The engine reads -1 as no token.
        ending = sorted({*self.policy.ending_ids, *([] if closing is None else [closing])}) or [-1]
        seed = int(np.random.SeedSequence([*request.seed, request.places[0]]).generate_state(1)[0])
        # The defaults would take most of the memory, which the update needs too, and a CPU would attend over all of it.
        # The size depends on this call alone, since the samples depend on it.
        page = page_tokens(on_gpu=self.policy.device.type != "cpu")
        pages = pages_of_row(max(map(len, prompts)), request.max_new_tokens, page)
        responses = len(prompts) * request.rollouts
        with quiet_transformers(), self._plain_attention():
            manager = self._engine(request, ending, page, pages * responses, seed)
            # A new engine seeds itself; one that was kept does not.
            torch.manual_seed(seed)
            kept = False
            try:
                # All before the engine starts: otherwise its batches would depend on timing.
                names = [manager.add_request(row, request_id=str(i)) for i, row in enumerate(prompts)]
                if None in names:
                    raise BackendFailed("the backend continuous takes no requests: use --backend native")
                manager.start()
                try:
                    found = self._results(manager, responses)
                    # Releases of transformers that have no such status make a new engine each time.
                    kept = hasattr(manager, "background_thread_status")
                finally:
                    manager.stop(block=True, keep_for_next_session=kept)
            finally:
                if not kept:
                    self._drop()
        children = ["", *(f"__child#{child}" for child in range(request.rollouts - 1))]
        outputs = [found[name + child] for name in names for child in children]
        return [output.generated_tokens for output in outputs], [output.logprobs for output in outputs]

    def _engine(self, request: SampleRequest, ending: list[int], page: int, blocks: int, seed: int) -> Any:
        """Return an engine that has not started: the one of the last call if its settings are the same."""
        from transformers import ContinuousBatchingConfig

        model = self.policy.causal_lm
        settings = (request.temperature, request.max_new_tokens, request.rollouts, *ending, page, blocks)
        # The model holds the engine that is kept, and another sampler may have replaced it.
        if settings == self._made_for and getattr(model, KEPT, None) is self._manager is not None:
            # It refuses requests after it has stopped.
            self._manager.background_thread_status.clear()
            return model.init_continuous_batching()
        self._drop()
        generation = GenerationConfig(
            do_sample=True,
            temperature=request.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=request.max_new_tokens,
            num_return_sequences=request.rollouts,
            eos_token_id=ending,
            pad_token_id=self.policy.tokenizer.pad_token_id,
        )
        # Prompts of the last call must not be found again: the weights have changed since.
        config = ContinuousBatchingConfig(
            return_logprobs=True, seed=seed, page_size=page, num_blocks=blocks, allow_block_sharing=False
        )
        self._manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=config)
        self._made_for = settings
        return self._manager

    def _drop(self) -> None:
        """Free the engine and its cache."""
        for manager in (self._manager, getattr(self.policy.causal_lm, KEPT, None)):
            if manager is not None:
                manager.destroy()
        self._manager = None
        if hasattr(self.policy.causal_lm, KEPT):
            delattr(self.policy.causal_lm, KEPT)

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
