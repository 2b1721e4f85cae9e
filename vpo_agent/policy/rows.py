"""The rows of a model's cache: prompts are computed once; rows continue them, take tokens and leave.

There are four layouts. Usually rows can join at any time (:class:`~vpo_agent.policy.kv_cache.RowsLayer`). Models with
layers other than full attention, such as sliding windows or linear attention, use the cache of transformers, and rows
join only when no others are left. On a CPU, rows that begin together share the keys and values of their prompts
(`vpo_agent.policy.shared_prompts`). On a GPU, decoding steps are recorded and replayed (`vpo_agent.policy.graph_rows`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vpo_agent.policy.kv_cache import RowsLayer
from vpo_agent.policy.shared_prompts import SharedPrompts


@dataclass(frozen=True)
class Prompts:
    """P prompts and what the model computed for them."""

    ids: Tensor
    """Tokens, padded on the left, (P, Lp)."""
    mask: Tensor
    """False at padding, (P, Lp)."""
    logits: Tensor
    """Logits of the token after each prompt, (P, vocabulary)."""
    cache: Any
    """Keys and values of their tokens, a ``DynamicCache``."""


class CachedModel:
    """A causal language model as decoding uses it: the logits of the next token, given a cache."""

    def __init__(self, causal_lm: Any, filler: int) -> None:
        self._causal_lm = causal_lm
        self._filler = filler
        self.config = causal_lm.config
        self.most_positions = most_positions(self.config)
        self.takes_positions = "position_ids" in inspect.signature(causal_lm.forward).parameters
        layers = {type(layer) for layer in DynamicCache(config=self.config).layers}
        self.joins_any_time = self.takes_positions and layers == {DynamicLayer}
        """Whether rows can join while others run; a sliding window would count the padding between their columns."""
        self.is_known = self.takes_positions and layers <= {DynamicLayer, DynamicSlidingWindowLayer}
        """Whether nothing but attention, of known kinds, remembers tokens."""
        self.takes_masks = False
        """Whether the model takes masks of four axes; it would look at the values of others, for which a GPU waits."""

    def next_logits(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: DynamicCache, **more: Any
    ) -> Tensor:
        """Return the logits of the token after ``ids``, (rows, vocabulary); the cache grows by ``ids``.

        The tokens and their positions are (rows, tokens). The mask is False at padding among the tokens of the cache
        and these, (rows, all tokens), or ``None`` without padding.
        """
        if self.most_positions is not None:
            # An ended row may run beyond the last position before it is removed.
            positions = positions.clamp_max(self.most_positions - 1)
        where = {"position_ids": positions} if self.takes_positions else {}
        out = self._causal_lm(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1, **where, **more
        )
        logits: Tensor = out.logits[:, -1]
        return logits

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Pad tokens on the left, (rows, longest), and return them with their mask."""
        device = self._causal_lm.device
        longest = max(map(len, rows))
        ids = torch.tensor([[self._filler] * (longest - len(row)) + list(row) for row in rows], dtype=torch.long)
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(longest) >= longest - lengths[:, None]
        return ids.to(device), mask.to(device)

    def read(self, ids: Tensor, mask: Tensor) -> Prompts:
        """Compute prompts, padded on the left, (P, Lp)."""
        cache = DynamicCache(config=self.config)
        # Attention is faster without a mask.
        logits = self.next_logits(ids, None if bool(mask.all()) else mask, positions_of(mask), cache)
        return Prompts(ids, mask, logits, cache)

    def extend(self, prompts: Prompts, which: Sequence[int], beginnings: Sequence[Sequence[int]]) -> Prompts:
        """Compute the prompts ``which``, each followed by the beginning of a response; some may be empty."""
        if not self.joins_any_time:
            heads = [prompts.ids[i][prompts.mask[i]].tolist() for i in which]
            return self.read(*self.pad([[*head, *begun] for head, begun in zip(heads, beginnings, strict=True)]))
        ids, mask = self.pad(beginnings)
        rows = torch.tensor(which, device=ids.device)
        cache: Any = DynamicCache(config=self.config)
        for layer, source in zip(cache.layers, prompts.cache.layers, strict=True):
            if source.is_initialized:
                layer.update(source.keys[rows], source.values[rows])
        # Padding is also between a prompt and its beginning.
        seen = torch.cat([prompts.mask[rows], mask], dim=1)
        logits = self.next_logits(ids, seen, positions_of(seen)[:, -ids.shape[1] :], cache)
        empty = ~mask.any(1)
        logits[empty] = prompts.logits[rows[empty]]
        return Prompts(torch.cat([prompts.ids[rows], ids], dim=1), seen, logits, cache)


class Rows:
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
            both = (self._mask, mask)
            self._mask = torch.cat([pad(one, (width - one.shape[1], 0)) for one in both])
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
        moved = [place for place, row in enumerate(order) if row != place]
        rows, places = (
            torch.tensor(one, dtype=torch.long).to(self._positions.device, non_blocking=True) for one in (order, moved)
        )
        self._keep(order, rows, places)
        self._positions = self._positions[rows]

    def _keep(self, order: Sequence[int], rows: Tensor, moved: Tensor) -> None:
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


class SharingRows(Rows):
    """Rows that join at the same time and share the keys and values of their prompts."""

    @property
    def open(self) -> bool:
        """Only while no row is running."""
        return not len(self._positions)

    def join(self, prompts: Prompts, which: Sequence[int]) -> Tensor:
        """See :meth:`Rows.join`."""
        rows = torch.tensor(which, device=prompts.mask.device)
        mask = None if bool(prompts.mask.all()) else prompts.mask
        self._shared = SharedPrompts(prompts.cache, mask, rows)
        self._positions = prompts.mask.sum(1)[rows]
        return prompts.logits[rows]

    def append(self, tokens: Tensor) -> Tensor:
        """See :meth:`Rows.append`."""
        # A mask of four axes passes through the model untouched; the prompts have their own.
        unused = tokens.new_zeros(1, 1, 1, 1)
        positions = self._positions[:, None]
        logits = self._model.next_logits(tokens[:, None], unused, positions, self._cache, ours=self._shared)
        self._positions = self._positions + 1
        return logits

    def _keep(self, order: Sequence[int], rows: Tensor, moved: Tensor) -> None:
        for layer in self._cache.layers:
            layer.keep(rows, moved)
        self._shared.keep(rows)


def positions_of(mask: Tensor) -> Tensor:
    """Return the position of each token among those where ``mask`` is True, (rows, tokens)."""
    return (mask.long().cumsum(1) - 1).clamp_min(0)


def most_positions(config: Any) -> int | None:
    """Return the longest context of a model, in tokens; ``None`` if it has no limit.

    LongRoPE turns all tokens of a row by other angles once it is longer than the original length, and those in the
    cache would keep theirs, so that length is the limit.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    limits = [kind["original_max_position_embeddings"] for kind in kinds if kind.get("rope_type") == "longrope"]
    whole: int | None = getattr(text, "max_position_embeddings", None)
    return min([*limits, *([] if whole is None else [whole])], default=None)


def check_context(positions: int | None, prompt: int, response: int) -> None:
    """Raise ValueError unless a prompt and a response of so many tokens fit into a context of ``positions``."""
    # The last token sampled is never read, so it needs no position.
    if positions is not None and prompt + response - 1 > positions:
        raise ValueError(
            f"a prompt of {prompt} tokens and max_new_tokens={response} do not fit into the {positions} positions of "
            "this model: lower max_new_tokens, or use another model"
        )
