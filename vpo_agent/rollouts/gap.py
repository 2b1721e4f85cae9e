"""How far the log-probabilities of a sampler may be from the trainer's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from vpo_agent.errors import BackendFailed

MOST_GAP = {torch.float32: 0.01, torch.bfloat16: 0.2}
"""Largest mean absolute difference per token, by the number format of the weights.

With the same weights the mean was at most 0.0001 in float32 and 0.05 in bfloat16, natively and with vLLM, for twenty
families of models on a CPU; where vLLM computed another model it was 0.05 to 4 (docs/scaling.md).
"""
TRIAL_CHANGE, TRIAL_ADAPTERS = 0.1, 0.1
"""Standard deviation of the noise of trial weights, as a share of the root mean square of each tensor; and of the noise
added to adapters that are still 0."""
MOST_GROWTH, SMALL_GAP = 4.0, 0.001
"""Largest gap at trial weights, in multiples of the gap before, or of this one if that was smaller.

Measured on six models on a CPU: at most 2.4 if the engine takes all weights, and 4.7 to 60,000 if it does not take a
tied head or the adapters.
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
            f"{MOST_GAP[dtype]:g}: it does not sample from the policy in training; use --backend native; if that "
            "fails too, use it with --dtype float32"
        )


@torch.no_grad()
def check_hand_over(measure: Callable[[], float], model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Check that an engine computes the same model as the trainer, and takes all weights that it is given.

    One update changes weights so little that a layer which keeps its old weights shows only after many updates. So the
    check changes the weights by more, for a moment.

    Args:
        measure: Samples with the current weights of the model, and returns the gap as of :func:`check_gap`.
        model: The model; its weights are the same afterwards.
        dtype: Number format of the weights.

    Raises:
        BackendFailed: The gap is larger than :data:`MOST_GAP`, or grows more than :data:`MOST_GROWTH` allows.
    """
    start = measure()
    check_gap(start, dtype, "at the start")
    with trial_weights(model):
        trial = measure()
    if trial > MOST_GROWTH * max(start, SMALL_GAP):
        raise BackendFailed(
            f"the sampler's log-probabilities differ from the trainer's by {start:.2g} on average with the weights of "
            f"the model's file and by {trial:.2g} with others: it does not take all weights that it is given; use "
            "--backend native"
        )


@contextmanager
def trial_weights(model: torch.nn.Module) -> Iterator[None]:
    """Add noise to the trained weights of a model, and restore them."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    before = [weight.clone() for weight in trained]
    generator = torch.Generator(trained[0].device).manual_seed(0)
    try:
        for weight in trained:
            deviation = TRIAL_CHANGE * float(weight.square().mean().sqrt()) or TRIAL_ADAPTERS
            weight.add_(torch.empty_like(weight).normal_(generator=generator), alpha=deviation)
        yield
    finally:
        for weight, old in zip(trained, before, strict=True):
            weight.copy_(old)
