"""What settings may choose, known without torch, so that a wrong setting is refused at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Literal

from vpo_envs.wording import did_you_mean

Answers = Literal["single", "set"]
Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]

SINGLE = ("grpo", "dr_grpo", "random_weights", "goal_conditioned", "rs_grpo", "darling", "pareto_rank")
BUILT_IN: dict[str, Answers] = {
    **{"vpo": "set", "vpo_pool": "set", "set_rl": "single", "max_at_k": "single", "multi_rlvr": "set"},
    **dict.fromkeys(SINGLE, "single"),
    "vpo_credit": "set",
}
"""The built-in estimators in the order of the registry, and what they score: rollouts of one answer, or of several."""


def answers_of(method: str) -> Answers:
    """Return what an estimator scores, built in or registered by a module that is loaded; ValueError for another."""
    registered = getattr(sys.modules.get("vpo_agent.estimators.registry"), "_REGISTRY", {})
    known: dict[str, Answers] = {**BUILT_IN, **{name: one.answers for name, one in registered.items()}}
    if method not in known:
        raise unknown_estimator(method, known)
    return known[method]


def unknown_estimator(name: str, known: Iterable[str]) -> ValueError:
    """Return the error for a name that no estimator has."""
    known = tuple(known)
    choices = f"{did_you_mean(str(name), known)}choose one of {', '.join(known)}"
    return ValueError(f"unknown estimator {name!r}: {choices}, or add your own with register_estimator")
