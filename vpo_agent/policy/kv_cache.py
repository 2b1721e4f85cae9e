"""A key-value cache whose rows join and leave, with spare columns, so that a decoding step does not copy it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer

SPARE_COLUMNS = 64
"""Least number of spare columns of new storage; long rows get a quarter of their length."""


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
        """Keep the rows ``order``, of which only those at the new places ``moved`` are copied."""
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
            self.keys, self.values = (store[: self._rows, :, self._first : self._end] for store in self._stores)
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
