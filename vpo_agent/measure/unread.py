"""What to say where most answers of a model cannot be read, so that a run does not earn nothing in silence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.pool import Pool
from vpo_envs import Status

MOSTLY = 0.5
SHOWN_CHARACTERS = 300


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


def unread_in_pool(pool: Pool) -> str | None:
    """Return the warning about a pool, or ``None``."""
    response = pool.responses[0][0] if pool.responses else None
    return unread_notice(pool.status, pool.tokens, pool.source.get("max_new_tokens"), response)
