"""The space of texts in which observations and actions lie."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

SAMPLE_CHARS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/_,.#\n"
MAX_RESPONSE_CHARS = 1_000_000
"""Longest response in the action space; longer ones are still scored."""


class TextSpace(gym.spaces.Text):
    """All strings of at most ``max_length`` characters in any script.

    Gymnasium's ``Text`` checks every character against a set, which takes milliseconds for a response and cannot hold
    all of Unicode. Here membership depends on the length only, and samples are short and plain.
    """

    def __init__(self, max_length: int, seed: int | None = None) -> None:
        """Make the space of all strings with at most ``max_length`` characters."""
        super().__init__(max_length=max_length, min_length=0, charset=SAMPLE_CHARS, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random plain string of at most 64 characters."""
        if mask is not None or probability is not None:
            raise ValueError("TextSpace.sample takes no mask and no probability")
        length = int(self.np_random.integers(0, min(64, self.max_length) + 1))
        return "".join(SAMPLE_CHARS[i] for i in self.np_random.integers(0, len(SAMPLE_CHARS), size=length))

    def __eq__(self, other: object) -> bool:
        """Equal to text spaces of the same length."""
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    def __repr__(self) -> str:
        """``TextSpace(max_length)``."""
        return f"TextSpace({self.max_length})"
