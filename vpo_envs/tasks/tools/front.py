"""The exact front of conflict mode: everything that the credits can buy."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.tools.task import Market, Offer, write_attempt


def front_attempts(market: Market) -> list[str]:
    """Return the attempts that no other beats in accuracy for each sub-request and in cost.

    All ways to call one tool or none for each sub-request are tried. Calling both tools, one twice or one that serves
    nothing costs more and serves no better.
    """
    served, costs, choices = affordable(market)
    keep = non_dominated(np.column_stack([served, -costs]))
    attempts = []
    for kept, choice in zip(keep, choices, strict=True):
        pairs = zip(choice, market.requests, strict=True)
        calls = [(offer.tool, request.arguments) for offer, request in pairs if offer is not None]
        if kept and calls:
            attempts.append(write_attempt(calls))
    # If nothing is affordable, all attempts score 0, and any one of them attains the front.
    return attempts or [write_attempt([], "There are not enough credits for any of this.")]


def affordable(market: Market) -> tuple[NDArray[np.float64], NDArray[np.float64], list[tuple[Offer | None, ...]]]:
    """Return every affordable choice of offers: its accuracy by sub-request (n, 4), its cost (n,) and the choice."""
    choices = [
        choice
        for choice in product(*[(None, *request.offers) for request in market.requests])
        if sum(offer.price for offer in choice if offer is not None) <= market.budget
    ]
    served = np.array([[0.0 if offer is None else offer.accuracy for offer in choice] for choice in choices])
    costs = np.array([float(sum(offer.price for offer in choice if offer is not None)) for choice in choices])
    return served, costs, choices
