"""How far the log-probabilities of a sampler may be from those of the trainer."""

from __future__ import annotations

import torch

from vpo_agent.errors import BackendFailed

MOST_GAP = {torch.float32: 0.01, torch.bfloat16: 0.2}
"""Largest mean absolute difference per token, by the number format of the weights.

With the same weights the mean was at most 0.0001 in float32 and 0.05 in bfloat16, natively and with vLLM, for twenty
families of models on a CPU; where vLLM computed another model it was 0.05 to 4 (docs/scaling.md).
"""


def check_gap(gap: float, dtype: torch.dtype, when: str) -> None:
    """Check that a sampler has the weights of the trainer.

    Args:
        gap: Mean absolute difference between the log-probabilities of sampler and trainer, per token, at the weights
            that sampled; NaN if nothing was compared.
        dtype: Number format of the weights.
        when: When they were compared, for the message.

    Raises:
        BackendFailed: The gap is larger than :data:`MOST_GAP`.
    """
    if gap > MOST_GAP[dtype]:
        raise BackendFailed(
            f"{when} the sampler's log-probabilities differ from the trainer's by {gap:.2g} on average, more than "
            f"{MOST_GAP[dtype]:g}: it does not sample from the policy in training; use --backend native, or with that "
            "--dtype float32"
        )
