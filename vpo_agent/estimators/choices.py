"""What settings may choose, known without torch, so that a wrong setting is refused at once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from vpo_envs.common.wording import counted, did_you_mean

Answers = Literal["single", "set"]

BUILT_IN: dict[str, Answers] = {
    **{"vpo": "set", "vpo_pool": "set", "set_rl": "single", "max_at_k": "single", "multi_rlvr": "set"},
    "grpo": "single",
}
"""The built-in estimators in the order of the registry, and what they score: rollouts of one answer, or of several."""


POOLED = ("vpo_pool", "set_rl", "max_at_k")
"""Methods that score pools of rollouts, with the option k."""
MOST_ANSWERS_OF_A_SEARCH = 128
FEWEST_FOR_A_POOL = 16
"""Number of answers of a search from which ``vpo_pool`` is chosen. On five tasks, ``vpo`` scored at least as high as
``vpo_pool`` with 10 answers, and ``vpo_pool`` at least as high as ``vpo`` with 30 answers."""
SET_SIZE = 3
"""Default number of answers in a response for methods that take several."""


def settings_for_search(budget: int, given: Mapping[str, Any], rollouts: int) -> dict[str, Any]:
    """Return method, number of answers and options that train for a search of up to ``budget`` answers.

    | answers of the search | method | answers of a response | rollouts of a pool, k |
    |---|---|---|---|
    | 1 | grpo | 1 | |
    | 2 | vpo | 2 | |
    | 3 to 15 | vpo | 3 | |
    | 16 to 128 | vpo_pool, baseline subset | 3 | a third of the answers, at most half the ``rollouts`` |

    Settings that are ``given`` stay, and the others follow them. A pool of all rollouts of a prompt has no other pool
    to be compared with: on a maze, training with k = 8 of 8 rollouts lost answers that k = 4 kept.

    Raises:
        ValueError: A response has more answers than the search, or the given method trains for fewer answers.
    """
    method = given.get("method")
    m = given.get("num_answers") or (1 if method and answers_of(method) == "single" else min(SET_SIZE, budget))
    longest = max(m) if isinstance(m, list) else m
    if longest > budget:
        raise ValueError(
            f"search_budget={budget} is below the {longest} answers of a response: raise it, or lower num_answers"
        )
    k = round(budget / longest)
    if method not in POOLED and longest > 1 and budget < FEWEST_FOR_A_POOL:
        k = 1
    if k > 1 and method in BUILT_IN and method not in POOLED:
        raise ValueError(
            f"method {method} trains for the {counted(longest, 'answer')} of a response, not for "
            f"search_budget={budget}: leave method out, or choose {', '.join(POOLED[:-1])} or {POOLED[-1]}"
        )
    k = max(1, min(k, rollouts // 2))
    if method is None:
        method = "vpo_pool" if k > 1 else "grpo" if longest == 1 else "vpo"
    options = {"k": k, "baseline": "subset" if k > 1 else "group"} if method in POOLED else {}
    return {"method": method, "num_answers": m, "method_options": {**options, **(given.get("method_options") or {})}}


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
    return ValueError(f"unknown method {name!r}: {choices}, or add your own with register_estimator")
