"""What a reader must know of a pool: that its answers cannot be read, or that its rewards leave [0, 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.pool import Pool
from vpo_envs import Status

MOSTLY = 0.5
SHOWN_CHARACTERS = 300
ROUNDING = 1e-6
"""Rewards are stored in 32 bits."""


def unread_notice(
    status: NDArray[np.int8], tokens: NDArray[np.int32] | None, limit: int | None, response: str | None
) -> str | None:
    """Return a warning if most answers are missing or unparsable, or most responses cut, with one; else ``None``.

    A response is cut if it has as many tokens as are allowed and lacks its last answer.

    Args:
        status: Status of each answer, (…, m).
        tokens: Generated tokens of each response, any shape, in the same order; ``None`` if unknown.
        limit: ``max_new_tokens``; ``None`` if unknown.
        response: A response as the model wrote it.
    """
    unread = float(np.isin(status, (Status.MISSING, Status.UNPARSABLE)).mean())
    unfinished = status[..., -1].ravel() == Status.MISSING
    cut = 0.0 if tokens is None or limit is None else float((unfinished & (tokens.ravel() >= limit)).mean())
    if max(unread, cut) < MOSTLY:
        return None
    text = f"{unread:.0%} of the answers cannot be read"
    if cut >= MOSTLY:
        text = f"{cut:.0%} of the responses were cut at --max-new-tokens {limit}, and {text}: allow more"
    if response is None:
        return text
    return f"{text}. The first response: {response[:SHOWN_CHARACTERS]!r}{'…' * (len(response) > SHOWN_CHARACTERS)}"


def notices(pool: Pool) -> list[str]:
    """Return the warnings about a pool."""
    response = pool.responses[0][0] if pool.responses else None
    unread = unread_notice(pool.status, pool.tokens, pool.source.get("max_new_tokens"), response)
    return [one for one in (unread, outside_notice(pool)) if one is not None]


def outside_notice(pool: Pool) -> str | None:
    """Return a warning that names the objectives whose rewards leave [0, 1]; ``None`` if none does."""
    flat = pool.active_rewards().reshape(-1, len(pool.objectives))
    bounds = zip(pool.objectives, flat.min(axis=0), flat.max(axis=0), strict=True)
    outside = [f"{name} ({low:g} to {high:g})" for name, low, high in bounds if low < -ROUNDING or high > 1 + ROUNDING]
    if not outside:
        return None
    return (
        f"rewards leave [0, 1]: {', '.join(outside)}. Utilities and best@k are on that scale, and there is no "
        "hypervolume; scale the objective, and see vpo check"
    )
