"""The rows of a cache on a GPU: a decoding step of all layers is recorded once, as a CUDA graph, and then replayed.

A step of one token launches hundreds of kernels, and Python launches them more slowly than a GPU runs them. A graph
needs the same memory at every replay. So a step here attends to whole columns of the cache, masks the columns not yet
written, and keeps its place in tensors. It is recorded anew when rows join or leave, or the columns are full.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from vpo_agent.policy.cached_model import CachedModel, RowsLayer
from vpo_agent.policy.row_cache import RowCache

COLUMNS_AHEAD = 128
"""Columns made room for at a time: their memory against recording anew."""


class GraphRowCache(RowCache):
    """Rows whose steps are replayed; on a CPU the same steps are computed each time."""

    leaving_share = 2
    """Fewer removals, since each has the step recorded anew."""
    _step: Step | None

    def append(self, tokens: Tensor) -> Tensor:
        """See :meth:`RowCache.append`; the next call overwrites the logits."""
        layers = [layer for layer in self._cache.layers if layer.is_initialized]
        if self._step is None or layers[0].columns.stop == layers[0].capacity:
            for layer in layers:
                layer.reserve(COLUMNS_AHEAD)
            self._step = Step(self._model, self._cache, layers, self._mask, self._positions)
        logits = self._step.run(tokens)
        for layer in layers:
            layer.advance()
        self._appended += 1
        self._mask = self._step.mask[:, 0, 0, layers[0].columns]
        self._positions = self._step.positions
        return logits

    def _settle(self) -> None:
        super()._settle()
        self._step = None

    def _clear(self) -> None:
        super()._clear()
        self._step = None


class Step:
    """One token for each row, in place: computed the first time, recorded the second, replayed from then on."""

    def __init__(
        self, model: CachedModel, cache: Any, layers: list[RowsLayer], mask: Tensor, positions: Tensor
    ) -> None:
        self._model, self._cache, self._layers = model, cache, layers
        self._tokens = torch.zeros_like(positions)
        self.positions = positions.clone()
        """Of the next token of each row, (rows,)."""
        self.mask = mask.new_zeros(len(mask), 1, 1, layers[0].capacity)
        """Which columns of the whole storage each row sees, (rows, 1, 1, columns)."""
        self.mask[:, 0, 0, layers[0].columns] = mask
        self._column = positions.new_full((1,), layers[0].columns.stop)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: Tensor | None = None

    def run(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token of each row, (rows, vocabulary)."""
        self._tokens.copy_(tokens)
        if not tokens.is_cuda:
            return self._compute()
        if self._graph is None:
            present_stream = torch.cuda.current_stream(tokens.device)
            recording_stream, first_graph = _recording_stream(tokens.device)
            recording_stream.wait_stream(present_stream)
            with torch.cuda.stream(recording_stream):
                if self._logits is not None:
                    with suppress(torch.OutOfMemoryError):  # Without the memory for it, the step is computed as before.
                        self._graph = self._record(self._logits, first_graph.pool())
                if self._graph is None:
                    self._logits = self._compute()
            present_stream.wait_stream(recording_stream)
        if self._graph is not None:
            self._graph.replay()
        assert self._logits is not None
        return self._logits

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float) -> Tensor:
        """Compute attention of one token of each row, (rows, 1, heads, width)."""
        rows, heads, _, width = query.shape
        # Heads that share keys are adjacent, so they can pass as several tokens of one head: nothing is copied.
        queries = query.reshape(rows, key.shape[1], -1, width)
        out = scaled_dot_product_attention(queries, key, value, self.mask, scale=scale)
        return out.reshape(rows, 1, heads, width)

    def _record(self, logits: Tensor, pool: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            logits.copy_(self._compute())
        finally:
            graph.capture_end()
        return graph

    def _compute(self) -> Tensor:
        self.mask.index_fill_(3, self._column, True)
        for layer in self._layers:
            layer.column = self._column
        try:
            # A mask of four axes passes through the model untouched; `attend` has its own.
            unused = self._tokens.new_zeros(1, 1, 1, 1)
            positions = self.positions[:, None]
            logits = self._model.next_logits(self._tokens[:, None], unused, positions, self._cache, layout=self)
        finally:
            for layer in self._layers:
                layer.column = None
        self.positions += 1
        self._column += 1
        return logits


@contextmanager
def no_waits() -> Iterator[None]:
    """Raise RuntimeError where the host would wait for a GPU, at which a recording would fail and lose its memory."""
    with warnings.catch_warnings():  # PyTorch says that the mode is a prototype.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@cache
def _recording_stream(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.CUDAGraph]:
    """Return the stream on which steps are recorded, and a first graph that is recorded on it.

    The workspaces of the stream must exist before a step is recorded. All recordings have the memory of the first
    graph, which it keeps for them; logits are copied out of it.
    """
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        torch.zeros(1, device=device)
    return stream, graph
