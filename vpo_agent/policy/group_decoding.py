"""Decoding several responses to each prompt: the rows of a batch, which begin together and leave one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import DynamicCache

from vpo_agent.policy.kv_cache import move_rows, preallocated_cache
from vpo_agent.policy.shared_prompts import SharedPrompts

if TYPE_CHECKING:
    from vpo_agent.policy.language_model import LMPolicy


class GroupDecoder:
    """Rows whose prompts are computed once, and repeated for each row in the cache.

    Args:
        policy: Whose model is used; nothing else may use it meanwhile.
        prompt_ids: (P, Lp), padded on the left.
        prompt_mask: (P, Lp).
        rollouts: Rows of each prompt, adjacent.
        room: Tokens that follow at most.
    """

    logits: Tensor
    """Of the next token of each row, (rows, vocabulary)."""

    def __init__(self, policy: LMPolicy, prompt_ids: Tensor, prompt_mask: Tensor, *, rollouts: int, room: int) -> None:
        self._policy = policy
        # A mask is only needed for padding; without one the attention takes its fast path.
        mask = None if bool(prompt_mask.all()) else prompt_mask
        self._mask: Tensor | None = None
        self._position = prompt_mask.sum(1).repeat_interleave(rollouts)
        self._cache = self._new_cache(room)
        logits = policy.next_logits(prompt_ids, mask, policy.positions(prompt_mask), self._cache)
        self.logits = logits.repeat_interleave(rollouts, 0)
        self._repeat(mask, rollouts, room)

    def leave(self, ended: Tensor) -> Tensor:
        """Take the rows ``ended``, (rows,), out; the last rows take their places, so that little is copied.

        Returns:
            Former places of the rows that stay, in their new order.
        """
        stay = len(ended) - int(ended.sum())
        order = torch.arange(stay, device=ended.device)
        places = ended[:stay].nonzero()[:, 0]
        order[places] = (~ended[stay:]).nonzero()[:, 0] + stay
        move_rows(self._cache, order, places)
        self._position = self._position[order]
        self._mask = self._mask[order] if self._mask is not None else None
        return order

    def step(self, token: Tensor) -> None:
        """Append a token to each row, (rows,)."""
        if self._mask is not None:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        self.logits = self._policy.next_logits(token[:, None], self._mask, self._position[:, None], self._cache)
        self._position = self._position + 1

    def _new_cache(self, room: int) -> DynamicCache:
        return preallocated_cache(self._policy.model_config, room)

    def _repeat(self, mask: Tensor | None, rollouts: int, room: int) -> None:
        self._cache.batch_repeat_interleave(rollouts)
        self._mask = mask.repeat_interleave(rollouts, 0) if mask is not None else None


class SharingGroupDecoder(GroupDecoder):
    """Rows whose prompts stand once, see `vpo_agent.policy.shared_prompts`; the cache holds the responses alone."""

    def leave(self, ended: Tensor) -> Tensor:
        """See :meth:`GroupDecoder.leave`."""
        order = super().leave(ended)
        self._shared.keep(order)
        return order

    def step(self, token: Tensor) -> None:
        """See :meth:`GroupDecoder.step`."""
        # A mask of four axes passes through the model untouched.
        unused = token.new_zeros(1, 1, 1, 1)
        self.logits = self._policy.next_logits(
            token[:, None], unused, self._position[:, None], self._cache, shared=self._shared
        )
        self._position = self._position + 1

    def _new_cache(self, room: int) -> DynamicCache:
        return DynamicCache(config=self._policy.model_config)

    def _repeat(self, mask: Tensor | None, rollouts: int, room: int) -> None:
        self._shared = SharedPrompts.of(self._cache, mask, rollouts)
        self._cache = preallocated_cache(self._policy.model_config, room)
