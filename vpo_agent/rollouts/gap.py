"""How far the log-probabilities of a sampler may be from those of the trainer."""

from __future__ import annotations

import torch

from vpo_agent.errors import BackendFailed

MOST_GAP = {torch.float32: 0.01, torch.bfloat16: 0.1}
"""Largest mean absolute difference per token, by the number format of the weights.

With the same weights the mean was at most 0.0001 in float32 and 0.03 in bfloat16, over two backends and twenty families
of models on a CPU. With a layer of vLLM that kept other weights it was 0.05 to 4 (docs/scaling.md).
"""


def check_gap(gap: float, dtype: torch.dtype, backend: str, when: str) -> None:
    """Check that a sampler has the weights of the trainer.

    Args:
        gap: Mean absolute difference between the log-probabilities of sampler and trainer, per token, at the weights
            that sampled; NaN if nothing was compared.
        dtype: Number format of the weights.
        backend: Name of the sampler's backend, for the message.
        when: When they were compared, for the message.

    Raises:
        BackendFailed: The gap is larger than :data:`MOST_GAP`.
    """
    if gap > MOST_GAP[dtype]:
        remedy = "--dtype float32" if backend == "native" else "--backend native"
        raise BackendFailed(
            f"{when} the log-probabilities of the backend {backend} differ from the trainer's by {gap:.2g} on average, "
            f"more than {MOST_GAP[dtype]:g}, so it samples from another policy than the one in training: use {remedy}"
        )
