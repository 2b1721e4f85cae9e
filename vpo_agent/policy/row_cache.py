"""The rows of a model's cache: they continue prompts, take tokens and leave.

There are four layouts. Usually rows can join at any time (:class:`~vpo_agent.policy.cached_model.RowsLayer`). Models
with layers other than full attention, such as sliding windows or linear attention, use the cache of transformers, and
rows join only when no others are left. On a CPU, rows that begin together share the keys and values of their prompts
(:class:`SharedRowCache`). On a GPU, decoding steps are recorded and replayed (`vpo_agent.policy.graph_row_cache`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vpo_agent.policy.cached_model import CachedModel, Prompts, RowsLayer


class RowCache:
    """Rows with the keys and values of all their tokens; nothing else may use the model while rows are running."""

    leaving_share = 8
    """Ended rows should leave once they are one in this many: each removal copies part of the cache."""

    def __init__(self, model: CachedModel) -> None:
        self._model = model
        self._cache: Any
        self._mask: Tensor
        """Which columns of the cache each row sees, (rows, columns)."""
        self._positions: Tensor
        """Of the next token of each row, (rows,)."""
        # The host keeps count, because asking the device would have to wait for it.
        self._widths: list[int]
        """Columns of each row from its first token on, without those appended."""
        self._gaps: list[bool]
        """Whether a row has padding among its tokens."""
        self._appended = 0
        self._clear()

    @property
    def open(self) -> bool:
        """Whether rows may join now."""
        return self._model.joins_any_time or not len(self._positions)

    def join(self, prompts: Prompts, which: Sequence[int]) -> Tensor:
        """Add a row for each index of a prompt in ``which``, after the present rows.

        Returns:
            Logits of their first tokens, (new rows, vocabulary).
        """
        rows = torch.tensor(which, device=prompts.mask.device)
        mask = prompts.mask[rows]
        widths = (mask.shape[1] - mask.int().argmax(1)).tolist()
        gaps = [seen < width for seen, width in zip(mask.sum(1).tolist(), widths, strict=True)]
        if self._model.joins_any_time:
            for layer, source in zip(self._cache.layers, prompts.cache.layers, strict=True):
                # A layer that shares the keys and values of another has none.
                if source.is_initialized:
                    layer.join(source.keys, source.values, rows)
        else:
            self._cache = copy.deepcopy(prompts.cache)
            self._cache.reorder_cache(rows)
        if len(self._positions):
            width = max(self._mask.shape[1], mask.shape[1])
            self._mask = torch.cat([pad(part, (width - part.shape[1], 0)) for part in (self._mask, mask)])
            self._positions = torch.cat([self._positions, mask.sum(1)])
        else:
            self._mask, self._positions = mask, mask.sum(1)
        self._widths += [width - self._appended for width in widths]
        self._gaps += gaps
        self._settle()
        return prompts.logits[rows]

    def append(self, tokens: Tensor) -> Tensor:
        """Append a token to each row, (rows,), and return the logits of the next, (rows, vocabulary)."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        self._appended += 1
        mask = self._mask if self._padded else None
        if mask is not None and self._model.takes_masks:
            mask = mask[:, None, None]
        logits = self._model.next_logits(tokens[:, None], mask, self._positions[:, None], self._cache)
        self._positions = self._positions + 1
        return logits

    def keep(self, order: Sequence[int]) -> None:
        """Keep the rows ``order``, in this order; only rows that move are copied."""
        if not order:
            self._clear()
            return
        moved = [new for new, old in enumerate(order) if new != old]
        rows = torch.tensor(order, dtype=torch.long).to(self._positions.device, non_blocking=True)
        moved_rows = torch.tensor(moved, dtype=torch.long).to(self._positions.device, non_blocking=True)
        self._keep(order, rows, moved_rows)
        self._positions = self._positions[rows]

    def _keep(self, order: Sequence[int], rows: Tensor, moved: Tensor) -> None:
        """Keep ``rows``, which are ``order`` as a tensor; ``moved`` are those that get another number."""
        self._widths = [self._widths[row] for row in order]
        self._gaps = [self._gaps[row] for row in order]
        for layer in self._cache.layers:
            if isinstance(layer, RowsLayer):
                layer.keep(rows, moved)
            else:
                layer.reorder_cache(rows)
        self._mask = self._mask[rows]
        self._settle()

    def _settle(self) -> None:
        """Drop columns that no row sees, and note whether the others have padding."""
        if self._model.joins_any_time:
            width = max(self._widths) + self._appended
            self._mask = self._mask[:, -width:]
            for layer in self._cache.layers:
                layer.trim(width)
        self._padded = any(self._gaps) or min(self._widths) + self._appended < self._mask.shape[1]

    def _clear(self) -> None:
        self._cache = DynamicCache(config=self._model.config)
        if self._model.joins_any_time:
            self._cache.layers = [RowsLayer() for _ in self._cache.layers]
        self._positions = torch.empty(0, dtype=torch.long)
        self._widths, self._gaps = [], []


class SharedRowCache(RowCache):
    """Rows that join at the same time and share the keys and values of their prompts."""

    @property
    def open(self) -> bool:
        """Only while no row is running."""
        return not len(self._positions)

    def join(self, prompts: Prompts, which: Sequence[int]) -> Tensor:
        """See :meth:`RowCache.join`."""
        rows = torch.tensor(which, device=prompts.mask.device)
        mask = None if bool(prompts.mask.all()) else prompts.mask
        self._shared = SharedPrompts(prompts.cache, mask, rows)
        self._positions = prompts.mask.sum(1)[rows]
        return prompts.logits[rows]

    def append(self, tokens: Tensor) -> Tensor:
        """See :meth:`RowCache.append`."""
        # A mask of four axes passes through the model untouched; the prompts have their own.
        unused = tokens.new_zeros(1, 1, 1, 1)
        positions = self._positions[:, None]
        logits = self._model.next_logits(tokens[:, None], unused, positions, self._cache, layout=self._shared)
        self._positions = self._positions + 1
        return logits

    def _keep(self, order: Sequence[int], rows: Tensor, moved: Tensor) -> None:
        for layer in self._cache.layers:
            layer.keep(rows, moved)
        self._shared.keep(rows)


class SharedPrompts:
    """Keys and values of P prompts, (P, key heads, Lp, width) in each layer, and the prompt of each row.

    The rows of a group see the same prompt. Repeating its cache for each row costs memory, and time in every decoding
    step, which reads all of it. Here the queries of a prompt's rows attend to one copy of its keys, and each row
    attends to its own tokens separately. Both are parts of one softmax, so the whole is their mean weighted by their
    normalisers, whose logarithms PyTorch's attention function for the CPU returns.

    Args:
        cache: Keys and values of the prompts.
        mask: False at padding, (P, Lp); ``None`` without padding.
        owner: The prompt of each row, (rows,).

    Raises:
        NotImplementedError: A layer does not hold all keys and values.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor | None, owner: Tensor) -> None:
        for layer in cache.layers:
            if type(layer) is not DynamicLayer or not layer.is_initialized:
                raise NotImplementedError(f"a layer of full attention is needed, not a {type(layer).__name__}")
        layers: list[Any] = list(cache.layers)
        self.keys = [layer.keys for layer in layers]
        self.values = [layer.values for layer in layers]
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
        # scaled_dot_product_attention calls this on a CPU, but does not return the normaliser, (rows, heads, tokens).
        attention = partial(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, scale=scale)
        over_response, norm_of_response = attention(queries, key, value)

        table = queries.index_select(0, self.row_at).view(prompts, -1, *queries.shape[1:]).transpose(1, 2)
        bias = None if self.bias is None else self.bias.to(query.dtype)
        table_over_prompt, table_of_norms = attention(
            table.flatten(2, 3), self.keys[layer], self.values[layer], attn_mask=bias
        )
        # From the cells of the table back to rows.
        cells = table_over_prompt.view(*table.shape[:-1], -1).transpose(1, 2).flatten(0, 1)
        over_prompt = cells.index_select(0, self.cell_of_row)
        cells = table_of_norms.view(*table.shape[:-1], -1).transpose(1, 2).flatten(0, 1)
        norm_of_prompt = cells.index_select(0, self.cell_of_row)
        share_of_response = torch.sigmoid(norm_of_response[..., None] - norm_of_prompt).to(query.dtype)
        return torch.lerp(over_prompt, over_response, share_of_response).reshape(rows, 1, heads, width)

    def _lay_out(self) -> None:
        """Compute a table of the rows of each prompt, (P, most rows of a prompt), which may have gaps."""
        rows, prompts = len(self.owner), len(self.keys[0])
        counts = torch.bincount(self.owner, minlength=prompts)
        widest = int(counts.max())
        by_prompt = self.owner.argsort(stable=True)
        ranks = torch.arange(rows, device=self.owner.device) - (counts.cumsum(0) - counts)[self.owner[by_prompt]]
        cells = self.owner[by_prompt] * widest + ranks
        self.row_at = by_prompt.new_zeros(prompts * widest)
        """The row in each cell of the table; in a gap, any row."""
        self.row_at[cells] = by_prompt
        self.cell_of_row = torch.empty_like(cells)
        """The cell of each row."""
        self.cell_of_row[by_prompt] = cells
        self.bias: Tensor | None = None
        """Added to the scores, (P, 1, 1, Lp)."""
        if self.mask is not None:
            self.bias = torch.zeros(self.mask.shape, device=self.mask.device).masked_fill(~self.mask, -torch.inf)
            self.bias = self.bias[:, None, None, :]
