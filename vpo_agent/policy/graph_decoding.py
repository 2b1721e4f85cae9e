"""Decoding steps as CUDA graphs: a step is recorded once and then replayed, so that nothing is launched one by one.

A small model's decoding step is hundreds of short operations, and a GPU waits for the launch of each. A graph can only
be replayed on the same memory, so keys and values have their full length from the start, the step's place in it is a
number on the device, and a mask hides what is not written yet. Graphs are recorded anew in every call, after the
weights have changed, and when half of the rows have ended. On a CPU the same steps run without being recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import DynamicCache

from vpo_agent.policy.group_decoding import GroupDecoder
from vpo_agent.policy.kv_cache import FixedLayer, keys_and_values

WARM_UP = 2
"""Runs before a step is recorded, in which libraries set up what must not be set up while recording."""


class GraphGroupDecoder(GroupDecoder):
    """Rows that are decoded by replaying one recorded step; see `vpo_agent.policy.graph_decoding`."""

    _seen: Tensor
    """Which columns each row sees, (rows, 1, 1, columns)."""
    _step: Callable[[], Tensor] | None = None
    """The step of these rows, once there is one."""

    def leave(self, ended: Tensor) -> Tensor:
        """See :meth:`GroupDecoder.leave`; rows stay until half have ended, since another number is another graph."""
        if int(ended.sum()) * 2 < len(ended):
            return torch.arange(len(ended), device=ended.device)
        order = super().leave(ended)
        self._seen = self._seen[order]
        self._step = None
        return order

    def step(self, token: Tensor) -> None:
        """See :meth:`GroupDecoder.step`."""
        self._seen.index_fill_(3, self._column, True)
        if self._step is None:
            self._token, self._where = token[:, None].clone(), self._position[:, None].clone()
            self._step = _recorded(self._decode) if token.is_cuda else self._decode
        else:
            self._token.copy_(token[:, None])
            self._where.copy_(self._position[:, None])
        self.logits = self._step()
        self._position = self._position + 1
        self._column += 1

    def _decode(self) -> Tensor:
        return self._policy.next_logits(self._token, self._seen, self._where, self._cache)

    def _new_cache(self, room: int) -> DynamicCache:
        return DynamicCache(config=self._policy.model_config)

    def _repeat(self, mask: Tensor | None, rollouts: int, room: int) -> None:
        longest = self._cache.get_seq_length()
        device = self._position.device
        self._column = torch.tensor([longest], device=device)
        self._cache.layers = [
            FixedLayer(keys.repeat_interleave(rollouts, 0), values.repeat_interleave(rollouts, 0), room, self._column)
            for keys, values in keys_and_values(self._cache)
        ]
        self._seen = torch.zeros(len(self._position), 1, 1, longest + room, dtype=torch.bool, device=device)
        self._seen[:, 0, 0, :longest] = True if mask is None else mask.repeat_interleave(rollouts, 0)


def _recorded(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record what ``step`` does on the GPU; its result lies in the same memory after every replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay
