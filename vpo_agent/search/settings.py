"""What to search for and how, the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from vpo_agent.search.goal import Goal, check_goal
from vpo_agent.search.variation import Variation

Method = Literal["best-of-n", "evolve", "beam", "dvts"]
TREES = ("beam", "dvts")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a search; a ValueError names a number that is out of range, or an unknown choice.

    The budget counts answers, or tokens, so it is equal for policies that write one answer per response and for those
    that write sets.
    """

    method: Method = "evolve"
    goal: Goal = "scalar"
    """What is searched for: the best scalar reward, or the expected utility of all answers together."""
    iterations: int = 200
    """Answers sampled for each instance."""
    tokens: int | None = None
    """Tokens sampled for each instance, a budget in place of that of answers."""
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 1024
    """Longest response, in tokens."""
    variation: Variation = "prefix"
    """``evolve``: ``"prefix"``, for any causal model, or ``"rewrite"``, for one that follows instructions."""
    start: int = 30
    """``evolve``: answers sampled first, as best-of-n does."""
    offspring: int = 5
    """``evolve``: children of an instance per call of the policy, all from the same archive."""
    fresh: float = 0.1
    """``evolve``: share of children that keep nothing of a parent."""
    width: int | None = None
    """Tree search: unfinished answers that a tree keeps; 4 for ``beam`` and 1 for ``dvts`` by default."""
    branches: int = 2
    """Tree search: continuations sampled for each of them."""
    segment: int = 1
    """Tree search: tokens of a continuation. What comes before an answer is sampled once, through its opening tag."""
    value_noise: float = 0.0
    """Tree search: standard deviation of the noise on each value, see :class:`~vpo_agent.search.values.Verifier`."""

    def __post_init__(self) -> None:
        for name, choices in (("method", get_args(Method)), ("variation", get_args(Variation))):
            if getattr(self, name) not in choices:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose one of {', '.join(choices)}")
        check_goal(self.goal)
        for name in ("iterations", "tokens", "start", "offspring", "max_new_tokens", "width", "branches", "segment"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if not 0 <= self.fresh <= 1:
            raise ValueError(f"fresh must be from 0 to 1, got {self.fresh}")
        if not 0 <= self.value_noise < np.inf:
            raise ValueError(f"value_noise must be a finite number of at least 0, got {self.value_noise}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")

    @property
    def label(self) -> str:
        """The method, as tables call it."""
        if self.method == "evolve":
            return f"evolve ({self.variation})"
        return (
            f"{self.method} (noise {self.value_noise:g})" if self.value_noise and self.method in TREES else self.method
        )
