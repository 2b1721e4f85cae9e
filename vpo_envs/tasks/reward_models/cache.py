"""A scorer that remembers what it has scored, by content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from vpo_envs.core import ScorerFailure

Pair = tuple[str, str]
"""A request and an answer to it."""
Scores = tuple[float, ...]
"""Raw scores of one answer, one for each head."""
Scorer = Callable[[Sequence[Pair]], "list[Scores | ScorerFailure]"]
"""Scores several answers; a failure stands where an answer could not be scored."""
REMEMBERED = 100_000


class ScoreCache:
    """Scores each request and answer once and remembers the latest; failures are tried again.

    Args:
        scorer: What scores the answers that are new.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: OrderedDict[Pair, Scores] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores | ScorerFailure]:
        """Return the scores of each pair, in order."""
        # One batch at a time: a model on a device is not shared between threads.
        with self._lock:
            new = list(dict.fromkeys(pair for pair in pairs if pair not in self._known))
            failed: dict[Pair, ScorerFailure] = {}
            for pair, scores in zip(new, self._scorer(new) if new else [], strict=True):
                if isinstance(scores, ScorerFailure):
                    failed[pair] = scores
                else:
                    self._known[pair] = scores
            found: list[Scores | ScorerFailure] = []
            for pair in pairs:
                if pair in failed:
                    found.append(failed[pair])
                else:
                    self._known.move_to_end(pair)
                    found.append(self._known[pair])
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return found
