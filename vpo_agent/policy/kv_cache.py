"""Key-value caches with room set aside, so that a decoding step writes one token instead of copying all of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """Full-attention keys and values of one layer, with room for ``room`` more tokens than the prompt has."""

    keys: Tensor
    values: Tensor

    def __init__(self, room: int) -> None:
        """Set aside room for ``room`` tokens after the first update."""
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self.room = room
        self._keys_store: Tensor | None = None
        self._values_store: Tensor | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append tokens; shapes (rows, heads, new tokens, head width)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        if self._keys_store is None:
            self._store(torch.arange(len(self.keys), device=self.keys.device))
        assert self._keys_store is not None
        assert self._values_store is not None
        start = self.keys.shape[-2]
        stop = start + key_states.shape[-2]
        self._keys_store[:, :, start:stop] = key_states
        self._values_store[:, :, start:stop] = value_states
        self.keys, self.values = self._keys_store[:, :, :stop], self._values_store[:, :, :stop]
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row ``repeats`` times, adjacent."""
        if self.get_seq_length():
            self._store(torch.arange(len(self.keys), device=self.keys.device).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only the rows in ``indices``."""
        if self.get_seq_length():
            self._store(indices)

    def move(self, order: Tensor, places: Tensor) -> None:
        """Keep the rows in ``order``, of which only those at ``places`` move, in the storage that there is.

        A row may move to the place of one that is left out alone.
        """
        if self._keys_store is None or self._values_store is None:
            self.batch_select_indices(order)
            return
        length, rows = self.keys.shape[-2], order[places]
        for store in (self._keys_store, self._values_store):
            store[places, :, :length] = store[rows, :, :length]
        self._keys_store, self._values_store = (s[: len(order)] for s in (self._keys_store, self._values_store))
        self.keys, self.values = self._keys_store[:, :, :length], self._values_store[:, :, :length]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the rows in the order of ``beam_idx``."""
        if self.get_seq_length():
            self._store(beam_idx)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._keys_store = self._values_store = None

    def _store(self, rows: Tensor) -> None:
        """Copy ``rows`` into fresh storage with room for the tokens still to come."""
        length = self.keys.shape[-2]
        if self._keys_store is None:
            self._capacity = length + self.room
        shape = (len(rows), self.keys.shape[1], self._capacity, self.keys.shape[-1])
        stores = []
        for states in (self.keys, self.values):
            store = states.new_empty(*shape[:3], states.shape[-1])
            store[:, :, :length] = states[rows]
            stores.append(store)
        self._keys_store, self._values_store = stores
        self.keys, self.values = self._keys_store[:, :, :length], self._values_store[:, :, :length]


class FixedLayer(DynamicLayer):
    """Keys and values of one layer with their full length from the start, written at a column that lies on the device.

    Args:
        keys: Of the prompts, (rows, key heads, Lp, width).
        values: The same shape.
        room: Tokens that follow at most.
        column: Where the next token goes, (1,); shared by the layers, and moved on by whoever decodes.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, room: int, column: Tensor) -> None:
        """Copy the prompts, and leave zeros behind them."""
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self.lazy_initialization(keys, values)
        self.keys, self.values = (pad(states, (0, 0, 0, room)) for states in (keys, values))
        self.column = column

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write one token of every row, and return all columns, also those not written yet."""
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values

    def move(self, order: Tensor, places: Tensor) -> None:
        """Keep the rows in ``order``, of which only those at ``places`` move, each to the place of one left out."""
        rows = order[places]
        for states in (self.keys, self.values):
            states[places] = states[rows]
        self.keys, self.values = self.keys[: len(order)], self.values[: len(order)]


def has_full_attention(config: Any) -> bool:
    """Whether all layers of a model hold the keys and values of every token, as those of a window do not."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def keys_and_values(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    """What each layer holds, (rows, key heads, tokens, width) twice.

    Raises:
        NotImplementedError: A layer does not hold all keys and values.
    """
    found = []
    for layer in cache.layers:
        if type(layer) is not DynamicLayer or layer.keys is None or layer.values is None:
            raise NotImplementedError(f"a layer of full attention is needed, not a {type(layer).__name__}")
        found.append((layer.keys, layer.values))
    return found


def preallocated_cache(config: Any, room: int) -> DynamicCache:
    """A cache for ``config`` whose full-attention layers have room for ``room`` tokens after the prompt."""
    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer(room) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def move_rows(cache: DynamicCache, order: Tensor, places: Tensor) -> None:
    """Keep the rows in ``order``, of which only those at ``places`` move, each to the place of one that is left out."""
    for layer in cache.layers:
        if isinstance(layer, PreallocatedLayer | FixedLayer):
            layer.move(order, places)
        else:
            cast("Any", layer).batch_select_indices(order)
