"""A language model as decoding uses it: prompts are computed once, and rows that continue them have a cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vpo_envs.common.wording import counted

SPARE_COLUMNS = 64
"""Least number of spare columns of new storage; long rows get a quarter of their length."""


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
        self.max_positions = max_positions(self.config)
        self.takes_positions = "position_ids" in inspect.signature(causal_lm.forward).parameters
        layers = {type(layer) for layer in DynamicCache(config=self.config).layers}
        self.why_not_any_time = ""
        """Why rows cannot join while others run, as the rest of a sentence; empty if they can."""
        if not self.takes_positions:
            self.why_not_any_time = "it takes no positions of tokens"
        elif DynamicSlidingWindowLayer in layers:
            # The window would count the padding between the columns of the rows.
            self.why_not_any_time = "some of its layers attend to a sliding window"
        elif layers != {DynamicLayer}:
            self.why_not_any_time = "some of its layers remember tokens by something else than attention"
        self.joins_any_time = not self.why_not_any_time
        """Whether rows can join while others run."""
        self.is_known = self.takes_positions and layers <= {DynamicLayer, DynamicSlidingWindowLayer}
        """Whether nothing but attention, of known kinds, remembers tokens."""
        text = self.config.get_text_config()
        _, keys_of_layer = attention_widths(text)
        # One layer more: while the storage of a layer grows, its old storage is still there.
        self.bytes_of_token: int = 2 * (text.num_hidden_layers + 1) * keys_of_layer * causal_lm.dtype.itemsize
        """Bytes of a token's keys and values in the cache of a model whose layers all have full attention."""
        self.takes_masks = False
        """Whether the model accepts masks of four axes. It inspects the values of those of two axes, which makes the
        host wait for a GPU."""

    def next_logits(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: DynamicCache, **more: Any
    ) -> Tensor:
        """Return the logits of the token after ``ids``, (rows, vocabulary); the cache grows by ``ids``.

        The tokens and their positions are (rows, tokens). The mask is False at padding among the tokens of the cache
        and these, (rows, all tokens), or ``None`` without padding.
        """
        if self.max_positions is not None:
            # An ended row may run beyond the last position before it is removed.
            positions = positions.clamp_max(self.max_positions - 1)
        if self.takes_positions:
            more = {"position_ids": positions, **more}
        out = self._causal_lm(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1, **more
        )
        logits: Tensor = out.logits[:, -1]
        return logits

    def sampling_memory(
        self, *, prompts: int, prompt_tokens: int, rows: int, new_tokens: int, shared: bool = False
    ) -> int:
        """Return the bytes that sampling may take besides the weights, if every response has ``new_tokens`` tokens.

        Args:
            prompts: Prompts that are computed, P.
            prompt_tokens: Tokens of the longest prompt, Lp.
            rows: Responses sampled at the same time.
            new_tokens: Longest response, in tokens.
            shared: Whether rows share the keys and values of their prompts.
        """
        columns = new_tokens if shared else prompt_tokens + new_tokens
        caches = rows * (columns + max(SPARE_COLUMNS, columns // 4)) + prompts * prompt_tokens
        # Probabilities and their running sum in float32, beside the logits as they are and in float32.
        element = self._causal_lm.dtype.itemsize
        vocabulary = self._causal_lm.get_input_embeddings().weight.shape[0]
        logits = rows * vocabulary * (element + 12)
        # What one layer computes of the prompts: states, queries, keys and values, and three steps of a gated MLP.
        config = self.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        activations = prompts * prompt_tokens * (5 * config.hidden_size + 3 * inner) * element
        return int(caches * self.bytes_of_token + max(logits, activations))

    def check_tokens(self, rows: Sequence[Sequence[int]]) -> None:
        """Raise ValueError if a token has no embedding: the tokenizer is larger than the model."""
        known: int = self._causal_lm.get_input_embeddings().weight.shape[0]
        largest = max((max(row) for row in rows if row), default=0)
        if largest >= known:
            raise ValueError(
                f"the tokenizer wrote the token {largest}, and the model has embeddings for {counted(known, 'token')}: "
                "give the model with its own tokenizer"
            )

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Pad tokens on the left, (rows, longest), and return them with their mask.

        Raises:
            ValueError: As for :meth:`check_tokens`.
        """
        self.check_tokens(rows)
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
            texts = []
            for prompt, beginning in zip(which, beginnings, strict=True):
                texts.append([*prompts.ids[prompt][prompts.mask[prompt]].tolist(), *beginning])
            return self.read(*self.pad(texts))
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


class RowsLayer(DynamicLayer):
    """Keys and values of one full-attention layer.

    The newest tokens of all rows are in the same column, so a step writes one column, and rows that joined later or are
    shorter start further right. The columns to the left of a row must be masked; their values are finite.
    """

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self._stores: list[Tensor] = []
        self._rows = self._first = self._end = 0
        self.column: Tensor | None = None
        """Where `update` writes one token while a step is recorded, (1,); it then returns the whole storage."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append tokens to every row; shapes (rows, heads, new tokens, head width)."""
        if self.column is not None:
            whole = [store[: self._rows] for store in self._stores]
            for store, states in zip(whole, (key_states, value_states), strict=True):
                store.index_copy_(2, self.column, states)
            return whole[0], whole[1]
        new = key_states.shape[2]
        self._reserve((key_states, value_states), len(key_states), self._end - self._first, new)
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[: self._rows, :, self._end : self._end + new] = states
        self._end += new
        return self._view()

    def join(self, keys: Tensor, values: Tensor, which: Tensor) -> None:
        """Add the rows ``which`` of keys and values (P, heads, tokens, head width) after the present rows."""
        tokens, present = keys.shape[2], self._rows
        width = max(self._end - self._first, tokens)
        self._reserve((keys, values), present + len(which), width, 0)
        first = self._end - width
        for store, states in zip(self._stores, (keys, values), strict=True):
            # A masked NaN would still spread through the softmax.
            store[:present, :, first : self._first] = 0
            store[present : self._rows, :, : self._end - tokens] = 0
            store[present : self._rows, :, self._end - tokens : self._end] = states[which]
        self._first = first
        self._view()

    def keep(self, order: Tensor, moved: Tensor) -> None:
        """Keep the rows ``order``, of which only those with the new numbers ``moved`` are copied."""
        for store in self._stores:
            store[moved, :, self._first : self._end] = store[order[moved], :, self._first : self._end]
        self._rows = len(order)
        self._view()

    def trim(self, width: int) -> None:
        """Drop all but the last ``width`` columns."""
        self._first = max(self._first, self._end - width)
        self._view()

    @property
    def columns(self) -> slice:
        """The columns in use."""
        return slice(self._first, self._end)

    @property
    def capacity(self) -> int:
        """Number of columns, used or not."""
        return self._stores[0].shape[2]

    def reserve(self, more: int) -> None:
        """Make room for ``more`` columns after the newest."""
        self._reserve((self.keys, self.values), self._rows, self._end - self._first, more)
        self._view()

    def advance(self) -> None:
        """Take the next column into use, which a recorded step has written."""
        self._end += 1
        self._view()

    def _view(self) -> tuple[Tensor, Tensor]:
        if self._stores:
            keys, values = self._stores
            self.keys = keys[: self._rows, :, self._first : self._end]
            self.values = values[: self._rows, :, self._first : self._end]
        return self.keys, self.values

    def _reserve(self, like: Sequence[Tensor], rows: int, width: int, more: int) -> None:
        """Make room for ``rows`` rows of ``width`` columns up to the newest, and ``more`` after it."""
        if not self.is_initialized:
            self.lazy_initialization(*like)
        present, self._rows = self._rows, rows
        if self._stores:
            capacity, columns = self._stores[0].shape[::2]
            if rows <= capacity and width <= self._end and self._end + more <= columns:
                return
            rows = max(rows, capacity)
        used = self._end - self._first
        columns = width + more + max(SPARE_COLUMNS, width // 4)
        stores = [states.new_zeros(rows, states.shape[1], columns, states.shape[3]) for states in like]
        for new, old in zip(stores, self._stores, strict=False):
            new[:present, :, width - used : width] = old[:present, :, self._first : self._end]
        self._stores, self._first, self._end = stores, width - used, width


def positions_of(mask: Tensor) -> Tensor:
    """Return the position of each token among those where ``mask`` is True, (rows, tokens)."""
    return (mask.long().cumsum(1) - 1).clamp_min(0)


def attention_widths(text_config: Any) -> tuple[int, int]:
    """Return the widths of a token's queries and of its keys in one layer, in numbers; values are as wide as keys.

    A model without attention counts as one head as wide as the layer.
    """
    heads = getattr(text_config, "num_attention_heads", None) or 1
    width = getattr(text_config, "head_dim", None) or text_config.hidden_size // heads
    key_heads = getattr(text_config, "num_key_value_heads", None) or heads
    return heads * width, key_heads * width


def max_positions(config: Any) -> int | None:
    """Return the longest context of a model, in tokens; ``None`` if it has no limit.

    LongRoPE turns all tokens of a row by other angles once the row is longer than the original length. Tokens in the
    cache would keep their old angles, so the original length is the limit.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    limits = [kind["original_max_position_embeddings"] for kind in kinds if kind.get("rope_type") == "longrope"]
    whole: int | None = getattr(text, "max_position_embeddings", None)
    if whole is not None:
        limits.append(whole)
    return min(limits, default=None)


def check_context(positions: int | None, prompt: int, response: int) -> None:
    """Raise ValueError unless a prompt and a response of so many tokens fit into a context of ``positions``."""
    # The last token sampled is never read, so it needs no position.
    if positions is not None and prompt + response - 1 > positions:
        raise ValueError(
            f"a prompt of {prompt} tokens and max_new_tokens={response} do not fit into the {positions} positions of "
            "this model: lower max_new_tokens, or use another model"
        )
