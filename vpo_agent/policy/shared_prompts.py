"""Decoding many responses to each prompt with one copy of the prompt's keys and values.

The rows of a group see the same prompt. Repeating its cache for each row costs memory, and time in every decoding step,
which reads all of it. Here the queries of a prompt's rows attend to one copy of its keys, and each row attends to its
own tokens separately. Both are parts of one softmax, so the whole is their mean weighted by their normalisers, whose
logarithms PyTorch's attention function for the CPU returns.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class SharedPrompts:
    """Keys and values of P prompts, (P, key heads, Lp, width) in each layer, and the prompt of each row.

    Args:
        cache: Of the prompts.
        mask: False at padding, (P, Lp); ``None`` without padding.
        owner: The prompt of each row, (rows,).

    Raises:
        NotImplementedError: A layer does not hold all keys and values.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor | None, owner: Tensor) -> None:
        for layer in cache.layers:
            if type(layer) is not DynamicLayer or not layer.is_initialized:
                raise NotImplementedError(f"a layer of full attention is needed, not a {type(layer).__name__}")
        self.keys, self.values = ([getattr(one, name) for one in cache.layers] for name in ("keys", "values"))
        if any(key.shape != value.shape for key, value in zip(self.keys, self.values, strict=True)):
            # The function that computes attention would end the process.
            raise NotImplementedError("keys and values of the same width are needed")
        self.mask, self.owner = mask, owner
        self._lay_out()

    def keep(self, rows: Tensor) -> None:
        """Keep only ``rows``, in this order, and their prompts."""
        prompts, self.owner = self.owner[rows].unique(return_inverse=True)
        if len(prompts) < len(self.keys[0]):
            self.keys = [states[prompts] for states in self.keys]
            self.values = [states[prompts] for states in self.values]
            self.mask = self.mask[prompts] if self.mask is not None else None
        self._lay_out()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float) -> Tensor:
        """Compute attention of one token of each row over its prompt and its response so far, (rows, 1, heads, width).

        The query is (rows, heads, 1, width); keys and values are of the responses, (rows, key heads, tokens, width).
        """
        rows, heads, _, width = query.shape
        prompts, key_heads = self.keys[layer].shape[:2]
        # Heads that share keys are adjacent, so they can pass as several tokens of one head.
        queries = query.view(rows, key_heads, -1, width)
        own, own_norm = _attend(queries, key, value, None, scale)

        table = queries.index_select(0, self.row_at).view(prompts, -1, *queries.shape[1:]).transpose(1, 2)
        bias = None if self.bias is None else self.bias.to(query.dtype)
        before, before_norm = _attend(table.flatten(2, 3), self.keys[layer], self.values[layer], bias, scale)
        before, before_norm = (
            part.view(*table.shape[:-1], -1).transpose(1, 2).flatten(0, 1).index_select(0, self.place)
            for part in (before, before_norm)
        )
        share = torch.sigmoid(own_norm - before_norm).to(query.dtype)
        return torch.lerp(before, own, share).reshape(rows, 1, heads, width)

    def _lay_out(self) -> None:
        """Compute a table of the rows of each prompt, (P, most rows of a prompt), which may have gaps."""
        rows, prompts = len(self.owner), len(self.keys[0])
        counts = torch.bincount(self.owner, minlength=prompts)
        widest = int(counts.max())
        by_prompt = self.owner.argsort(stable=True)
        ranks = torch.arange(rows, device=self.owner.device) - (counts.cumsum(0) - counts)[self.owner[by_prompt]]
        places = self.owner[by_prompt] * widest + ranks
        self.row_at = by_prompt.new_zeros(prompts * widest)
        """The row at each place of the table; in a gap, any row."""
        self.row_at[places] = by_prompt
        self.place = torch.empty_like(places)
        """The place of each row."""
        self.place[by_prompt] = places
        self.bias: Tensor | None = None
        """Added to the scores, (P, 1, 1, Lp)."""
        if self.mask is not None:
            self.bias = torch.zeros(self.mask.shape, device=self.mask.device).masked_fill(~self.mask, -torch.inf)
            self.bias = self.bias[:, None, None, :]


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Attention, and the logarithm of its normaliser (rows, heads, tokens, 1)."""
    # scaled_dot_product_attention calls this on a CPU, but does not return the normaliser.
    out, norm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=bias, scale=scale)
    return out, norm[..., None]
