"""Rows that are decoded together, although they began at different times and have different lengths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from vpo_agent.policy.kv_cache import has_full_attention
from vpo_agent.policy.language_model import LMPolicy

COLUMNS_AT_ONCE = 64
"""Tokens by which the storage of a row grows."""


class Decoder(ABC):
    """The running rows of one model: rows join with a prompt, take one token at a time, and leave.

    Args:
        policy: Whose model and tokenizer are used; nothing else may use them meanwhile.
    """

    def __init__(self, policy: LMPolicy) -> None:
        self._policy = policy

    @property
    @abstractmethod
    def open(self) -> bool:
        """Whether rows may join now."""

    @abstractmethod
    def join(self, prompts: Sequence[Sequence[int]], copies: Sequence[int]) -> Tensor:
        """Add ``copies[i]`` adjacent rows for the tokens of each prompt, which is computed once.

        Returns:
            Logits of their first tokens, (new rows, vocabulary).
        """

    @abstractmethod
    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (rows,) to every row, and return the logits of the next, (rows, vocabulary)."""

    @abstractmethod
    def leave(self, rows: set[int]) -> list[int]:
        """Remove rows, and return the former places of those that stay, in their new order."""

    def _prefill(self, prompts: Sequence[Sequence[int]], cache: DynamicCache) -> tuple[Tensor, Tensor]:
        """Logits of the last position (P, vocabulary) and the mask (P, longest) of prompts padded on the left."""
        longest = max(len(prompt) for prompt in prompts)
        ids = torch.full((len(prompts), longest), self._policy._filler, dtype=torch.long)
        mask = torch.zeros(len(prompts), longest, dtype=torch.bool)
        for i, prompt in enumerate(prompts):
            ids[i, longest - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            mask[i, longest - len(prompt) :] = True
        padded = not bool(mask.all())
        ids, mask = ids.to(self._policy.device), mask.to(self._policy.device)
        return self._policy.next_logits(ids, mask if padded else None, self._policy.positions(mask), cache), mask


def make_decoder(policy: LMPolicy) -> Decoder:
    """The decoder that suits the model: rows join at any time where all its attention is full."""
    suits = policy._takes_positions and has_full_attention(policy.model_config)
    return SlotDecoder(policy) if suits else WindowDecoder(policy)


class SlotDecoder(Decoder):
    """Continuous batching: a row of storage for each row, filled from the left up to the row's own length."""

    def __init__(self, policy: LMPolicy) -> None:
        super().__init__(policy)
        self._slots = _Slots()
        self._cache = DynamicCache(config=policy.model_config)
        self._layers = [_SlotLayer(self._slots) for _ in self._cache.layers]
        self._cache.layers = list(self._layers)

    @property
    def open(self) -> bool:
        """Always: a row only ever sees its own storage."""
        return True

    def join(self, prompts: Sequence[Sequence[int]], copies: Sequence[int]) -> Tensor:
        """See :meth:`Decoder.join`."""
        fresh = DynamicCache(config=self._policy.model_config)
        logits, _ = self._prefill(prompts, fresh)
        sources = [i for i, count in enumerate(copies) for _ in range(count)]
        lengths = [len(prompts[i]) for i in sources]
        start = len(self._slots.lengths)
        for mine, theirs in zip(self._layers, fresh.layers, strict=True):
            assert isinstance(theirs, DynamicLayer)
            # Layers that share their keys and values with another have none.
            if theirs.keys is not None and theirs.values is not None:
                mine.take(theirs.keys, theirs.values, sources, lengths, start)
        self._slots.lengths += lengths
        return logits[torch.tensor(sources, device=logits.device)]

    def step(self, tokens: Tensor) -> Tensor:
        """See :meth:`Decoder.step`."""
        slots = self._slots
        lengths = torch.tensor(slots.lengths, device=tokens.device)
        slots.columns = lengths
        slots.rows = torch.arange(len(lengths), device=tokens.device)
        width = slots.longest + 1
        mask = None
        if min(slots.lengths) + 1 < width:
            mask = torch.arange(width, device=tokens.device)[None, :] <= lengths[:, None]
        logits = self._policy.next_logits(tokens[:, None], mask, lengths[:, None], self._cache)
        slots.lengths = [length + 1 for length in slots.lengths]
        return logits

    def leave(self, rows: set[int]) -> list[int]:
        """See :meth:`Decoder.leave`. The last rows take the places of those that leave, so that little is copied."""
        order = list(range(len(self._slots.lengths)))
        for row in sorted(rows, reverse=True):
            order[row] = order[-1]
            order.pop()
        for layer in self._layers:
            layer.move([(old, new) for new, old in enumerate(order) if old != new], bool(order))
        self._slots.lengths = [self._slots.lengths[old] for old in order]
        return order


class _Slots:
    """What the layers of a :class:`SlotDecoder` share: how long each row is, and where its next token goes."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.rows = torch.empty(0, dtype=torch.long)
        self.columns = torch.empty(0, dtype=torch.long)

    @property
    def longest(self) -> int:
        return max(self.lengths, default=0)


class _SlotLayer(DynamicLayer):
    """Keys and values of one layer, (rows, heads, columns, width), with room to spare in rows and columns."""

    def __init__(self, slots: _Slots) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self._slots = slots
        self._stores: list[Tensor] = []

    def get_seq_length(self) -> int:
        return self._slots.longest

    def take(self, keys: Tensor, values: Tensor, sources: list[int], lengths: list[int], start: int) -> None:
        """Copy the prompts of a fresh cache, padded on the left, into the rows from ``start`` on."""
        rows, columns = start + len(sources), max(self._slots.longest, *lengths) + 1
        if not self._stores:
            self._stores = [states.new_zeros(0, states.shape[1], 0, states.shape[3]) for states in (keys, values)]
        self._grow(rows, columns)
        self.is_initialized = True
        for store, states in zip(self._stores, (keys, values), strict=True):
            for row, (source, length) in enumerate(zip(sources, lengths, strict=True), start):
                store[row, :, :length] = states[source, :, states.shape[2] - length :]
                # What an earlier row left there is masked, but a masked NaN is still a NaN.
                store[row, :, length:] = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write one token of every row, (rows, heads, 1, width), behind the row's last."""
        slots = self._slots
        width = slots.longest + 1
        self._grow(len(slots.lengths), width)
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[slots.rows, :, slots.columns] = states[:, :, 0]
        keys, values = (store[: len(slots.lengths), :, :width] for store in self._stores)
        return keys, values

    def move(self, places: list[tuple[int, int]], occupied: bool) -> None:
        """Copy rows to earlier places; give the storage back where no row stays."""
        if not occupied:
            self._stores = []
            self.is_initialized = False
        for store in self._stores:
            for old, new in places:
                store[new] = store[old]

    def _grow(self, rows: int, columns: int) -> None:
        for i, store in enumerate(self._stores):
            if rows > store.shape[0] or columns > store.shape[2]:
                columns_kept = -(-columns // COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE
                shape = (max(rows, store.shape[0]), store.shape[1], max(columns_kept, store.shape[2]), store.shape[3])
                larger = store.new_zeros(shape)
                larger[: store.shape[0], :, : store.shape[2]] = store
                self._stores[i] = larger


class WindowDecoder(Decoder):
    """Batches in turn, for models with other layers than full attention: rows join when the batch before has ended."""

    def __init__(self, policy: LMPolicy) -> None:
        super().__init__(policy)
        self._cache: DynamicCache | None = None
        self._mask = torch.empty(0, 0, dtype=torch.bool)

    @property
    def open(self) -> bool:
        """Only while no row is running."""
        return self._cache is None

    def join(self, prompts: Sequence[Sequence[int]], copies: Sequence[int]) -> Tensor:
        """See :meth:`Decoder.join`."""
        cache = DynamicCache(config=self._policy.model_config)
        logits, mask = self._prefill(prompts, cache)
        sources = torch.tensor([i for i, count in enumerate(copies) for _ in range(count)], device=mask.device)
        cache.batch_select_indices(sources)
        self._cache, self._mask = cache, mask[sources]
        return logits[sources]

    def step(self, tokens: Tensor) -> Tensor:
        """See :meth:`Decoder.step`."""
        assert self._cache is not None
        positions = self._mask.sum(1)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        mask = None if bool(self._mask.all()) else self._mask
        return self._policy.next_logits(tokens[:, None], mask, positions[:, None], self._cache)

    def leave(self, rows: set[int]) -> list[int]:
        """See :meth:`Decoder.leave`."""
        order = [row for row in range(len(self._mask)) if row not in rows]
        if not order or self._cache is None:
            self._cache = None
            return []
        keep = torch.tensor(order, device=self._mask.device)
        self._cache.batch_select_indices(keep)
        self._mask = self._mask[keep]
        return order
