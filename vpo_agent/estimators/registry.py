"""The registry of estimators, and `advantages`, which calls them."""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vpo_agent.estimators.choices import Answers, unknown_estimator
from vpo_agent.estimators.reward_groups import checked_groups

EPSILON = 1e-6
"""A deviation below this counts as no signal. It is also added to denominators."""


class Advantages(NamedTuple):
    """The result of an estimator; 0 for invalid rollouts."""

    advantages: Tensor
    """Factor of the policy gradient of each rollout's tokens, (P, G)."""
    scores: Tensor
    """Score of each rollout by itself, such as the set score or the scalar reward, (P, G)."""


@dataclass(frozen=True)
class Estimator:
    """A registered estimator."""

    name: str
    function: Callable[..., Advantages]
    """Takes a `RewardGroups`, and options by keyword."""
    answers: Answers
    """"single": rollouts of one answer only; "set": any number."""
    needs_weights: bool
    """Whether `advantages` requires drawn weights."""


_REGISTRY: dict[str, Estimator] = {}


def register_estimator(
    name: str, *, answers: Answers, needs_weights: bool = False
) -> Callable[[Callable[..., Advantages]], Callable[..., Advantages]]:
    """Return a decorator that registers a function and leaves it unchanged.

    Args:
        name: its name in `advantages(method=...)`.
        answers: "single" if a rollout must have exactly one answer, "set" if it may have several.
        needs_weights: whether the function uses drawn weights.

    Raises:
        ValueError: the name is taken, or `answers` is neither of the two.
    """
    if name in _REGISTRY:
        raise ValueError(f"the estimator {name!r} is already registered; choose another name")
    if answers not in ("single", "set"):
        raise ValueError(f"answers must be 'single' or 'set'; got {answers!r}")

    def enter(function: Callable[..., Advantages]) -> Callable[..., Advantages]:
        _REGISTRY[name] = Estimator(name, function, answers, needs_weights)
        return function

    return enter


def estimator(name: str) -> Estimator:
    """Return the estimator of this name."""
    if name not in _REGISTRY:
        raise unknown_estimator(name, _REGISTRY)
    return _REGISTRY[name]


def available_estimators() -> tuple[str, ...]:
    """Return the names of all registered estimators, in the order of their registration."""
    return tuple(_REGISTRY)


def advantages(
    rewards: Tensor,
    *,
    method: str = "vpo",
    weights: Tensor | None = None,
    scalar_weights: Tensor | Sequence[float] | None = None,
    active: Tensor | None = None,
    valid: Tensor | None = None,
    **options: object,
) -> Advantages:
    """Compute the advantage and the score of every rollout.

    Both kinds of weights are restricted to the active objectives and scaled to sum 1.

    Args:
        rewards: (P, G, m, d), any dtype and device; finite wherever the rollout is valid and the objective active.
        method: name of a registered estimator, see `available_estimators`.
        weights: (P, K, d) on the simplex, see `vpo_agent.estimators.weights.draw_weights`; only some methods use them.
        scalar_weights: (d,) or (P, d) fixed weights of the scalar reward, on any scale; None: equal ones.
        active: (P, d) boolean, the objectives that count for a prompt; None: all.
        valid: (P, G) boolean, False where the scorer failed; such a rollout gets 0 and is left out of all statistics.
        **options: options of the method, such as `k` of max_at_k.

    Returns:
        Advantages and scores, (P, G), float64 for float64 rewards, otherwise float32.

    Raises:
        ValueError: an unknown method or option, a shape that does not fit, several answers for a method of single
            answers, weights missing or off the simplex, no active objective, rewards that are not finite.
    """
    chosen = estimator(method)
    _check_options(chosen, options)
    if chosen.answers == "single" and rewards.dim() == 4 and rewards.shape[2] > 1:
        raise ValueError(
            f"{chosen.name} scores one answer per rollout; got rewards of {rewards.shape[2]}; "
            "make the environment with num_answers=1, or use multi_rlvr or vpo"
        )
    if chosen.needs_weights and weights is None:
        raise ValueError(
            f"{method} needs weights of shape (P, K, d); draw them with vpo_agent.estimators.weights.draw_weights"
        )
    groups = checked_groups(rewards, weights if chosen.needs_weights else None, scalar_weights, active, valid)
    result = chosen.function(groups, **options)
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32

    def checked(field: str, values: Tensor) -> Tensor:
        if values.shape != groups.valid.shape:
            shape = (*groups.valid.shape,)
            raise ValueError(f"{field} of {method} need shape {shape}, one per rollout; got {(*values.shape,)}")
        return torch.where(groups.valid, values, 0.0).to(dtype)

    return Advantages(checked("advantages", result.advantages), checked("scores", result.scores))


def standardise(scores: Tensor, valid: Tensor) -> Tensor:
    """Standardise scores, (P, G), to mean 0 and population deviation 1 over the valid rollouts of each group.

    (score - mean) / (deviation + 1e-6), all zeros if the deviation is below 1e-6: the advantage of GRPO (arXiv
    2402.03300) as the VPO paper uses it. 0 where not valid.
    """
    count = valid.sum(dim=1, keepdim=True).clamp(min=1)
    mean = torch.where(valid, scores, 0.0).sum(dim=1, keepdim=True) / count
    centred = torch.where(valid, scores - mean, 0.0)
    deviation = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
    return torch.where(deviation < EPSILON, 0.0, centred) / (deviation + EPSILON)


def _check_options(chosen: Estimator, options: dict[str, object]) -> None:
    parameters = inspect.signature(chosen.function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = tuple(parameters)[1:]
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"{chosen.name} takes {', '.join(known) or 'no options'}; got {option!r}")
        default = parameters[option].default
        kind: type | None = None
        if default is None and re.fullmatch(r"int \| None|typing.Optional\[int\]", str(parameters[option].annotation)):
            kind, wanted = numbers.Integral, "a whole number"
        elif isinstance(default, int | float) and not isinstance(default, bool):
            kind, wanted = numbers.Real, "a number"
        if kind and (isinstance(value, bool) or not isinstance(value, kind)) and value is not default:
            named = f"method_options {option}={value!r}"
            raise ValueError(f"{named} is invalid for {chosen.name}: give {wanted} (default {default})")
