"""The registry of estimators, and `advantages`, which checks its arguments and calls one of them."""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from vpo_agent.estimators.choices import Answers, unknown_estimator
from vpo_agent.estimators.reward_groups import RewardGroups

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
    function: Callable[..., Tensor | Advantages]
    """Takes a `RewardGroups`, and options by keyword; returns `Advantages` or, unless ``compares_rollouts``, scores."""
    answers: Answers
    """"single": rollouts of one answer only; "set": any number."""
    needs_weights: bool
    """Whether `advantages` requires drawn weights."""
    compares_rollouts: bool
    """Whether an advantage takes more from the other rollouts of its group than the mean and deviation of their scores.

    If not, any trainer that standardises rewards within a group, as GRPO does, can take the scores as rewards.
    """

    def compute(self, groups: RewardGroups, options: Mapping[str, Any]) -> Advantages:
        """Return advantages and scores, (P, G), 0 for invalid rollouts; :meth:`check_options` knows the options."""
        result = self.function(groups, **options)
        wanted = Advantages if self.compares_rollouts else Tensor
        if not isinstance(result, wanted):
            raise TypeError(
                f"{self.name} is registered with compares_rollouts={self.compares_rollouts}, so it must return "
                f"{wanted.__name__}; it returned {type(result).__name__}"
            )
        scores_alone = isinstance(result, Tensor)
        if isinstance(result, Tensor):
            result = Advantages(result, result)
        for field, values in result._asdict().items():
            if values.shape != groups.valid.shape:
                shape = tuple(groups.valid.shape)
                raise ValueError(
                    f"{field} of {self.name} need shape {shape}, one per rollout; got {tuple(values.shape)}"
                )
        if scores_alone:
            result = Advantages(standardise(result.scores, groups.valid), result.scores)
        return Advantages(*(torch.where(groups.valid, values, 0.0) for values in result))

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError for an option that the function does not take, or of the wrong kind."""
        parameters = inspect.signature(self.function).parameters
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            return
        known = tuple(parameters)[1:]
        for option, value in options.items():
            if option not in known:
                raise ValueError(f"{self.name} takes {', '.join(known) or 'no options'}; got {option!r}")
            default = parameters[option].default
            kind: type | None = None
            if default is None and re.fullmatch(
                r"int \| None|typing.Optional\[int\]", str(parameters[option].annotation)
            ):
                kind, wanted = numbers.Integral, "a whole number"
            elif isinstance(default, int | float) and not isinstance(default, bool):
                kind, wanted = numbers.Real, "a number"
            if kind and (isinstance(value, bool) or not isinstance(value, kind)) and value is not default:
                raise ValueError(
                    f"method_options {option}={value!r} is invalid for {self.name}: give {wanted} (default {default})"
                )


_REGISTRY: dict[str, Estimator] = {}

Function = TypeVar("Function", bound=Callable[..., Tensor | Advantages])


def register_estimator(
    name: str, *, answers: Answers, needs_weights: bool = False, compares_rollouts: bool = True
) -> Callable[[Function], Function]:
    """Return a decorator that registers a function of a `RewardGroups` and leaves it unchanged.

    Args:
        name: its name in `advantages(method=...)`.
        answers: "single" if a rollout must have exactly one answer, "set" if it may have several.
        needs_weights: whether the function uses drawn weights.
        compares_rollouts: True if the function returns `Advantages`. False if it returns the score of each rollout by
            itself, (P, G); the advantages are then the scores standardised within each group.

    Raises:
        ValueError: the name is taken, or `answers` is neither of the two.
    """
    if name in _REGISTRY:
        raise ValueError(f"the estimator {name!r} is already registered; choose another name")
    if answers not in ("single", "set"):
        raise ValueError(f"answers must be 'single' or 'set'; got {answers!r}")

    def enter(function: Function) -> Function:
        _REGISTRY[name] = Estimator(name, function, answers, needs_weights, compares_rollouts)
        return function

    return enter


def estimator(name: str) -> Estimator:
    """Return the estimator of this name; ValueError if none is registered."""
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
    answered: Tensor | None = None,
    **options: object,
) -> Advantages:
    """Compute the advantage and the score of every rollout.

    Both kinds of weights are restricted to the active objectives and scaled to sum 1.

    Args:
        rewards: (P, G, M, d), any dtype and device; finite wherever the rollout is valid, the answer asked for and the
            objective active.
        method: name of a registered estimator, see `available_estimators`.
        weights: (P, K, d) on the simplex, see `vpo_agent.estimators.weights.draw_weights`; only some methods use them.
        scalar_weights: (d,) or (P, d) fixed weights of the scalar reward, on any scale; None: equal ones.
        active: (P, d) boolean, the objectives that count for a prompt; None: all.
        valid: (P, G) boolean, False where the scorer failed; such a rollout gets 0 and is left out of all statistics.
        answered: (P, M) boolean, the answers that a prompt asks for; None: all M.
        **options: options of the method, such as `k` of max_at_k.

    Returns:
        Advantages and scores, (P, G), float64 for float64 rewards, otherwise float32.

    Raises:
        ValueError: an unknown method or option, a shape that does not fit, several answers for a method of single
            answers, weights missing or off the simplex, no active objective, rewards that are not finite.
    """
    chosen = estimator(method)
    chosen.check_options(options)
    if chosen.answers == "single" and rewards.dim() == 4 and rewards.shape[2] > 1:
        raise ValueError(
            f"{chosen.name} scores one answer per rollout; got rewards of {rewards.shape[2]}; "
            "make the environment with num_answers=1, or use multi_rlvr or vpo"
        )
    if chosen.needs_weights and weights is None:
        raise ValueError(
            f"{method} needs weights of shape (P, K, d); draw them with vpo_agent.estimators.weights.draw_weights"
        )
    groups = RewardGroups.checked(
        rewards,
        weights=weights if chosen.needs_weights else None,
        scalar_weights=scalar_weights,
        active=active,
        valid=valid,
        answered=answered,
    )
    result = chosen.compute(groups, options)
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    return Advantages(result.advantages.to(dtype), result.scores.to(dtype))


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
