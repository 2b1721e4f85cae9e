"""MO-Gymnasium's episode statistics for vector environments that reset a copy in the step in which its episode ends."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from mo_gymnasium.wrappers.vector import wrappers


class RecordEpisodeStatistics(wrappers.MORecordEpisodeStatistics):
    """Record returns (n, d), discounted returns and lengths of episodes in ``info["episode"]``, as MO-Gymnasium does.

    ``mo_gymnasium.wrappers.vector.MORecordEpisodeStatistics`` 1.3.2 takes the step after the end of an episode for a
    reset, whatever the environment's autoreset mode is. With same-step autoreset, which the vector environments of
    ``gym.make_vec`` have here, that step is one of the next episode, so it reports 0 for an episode of one step. It
    also adds up discounted returns over all episodes. This one is right in both modes.

    Args:
        env: The vector environment.
        gamma: Discount factor.
        buffer_length: Episodes in ``return_queue`` and ``length_queue``.
        stats_key: The key in ``info``.
    """

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Make a step, and add its rewards to the episodes in which it counts."""
        done = self.prev_dones
        discounted: Any = self.disc_episode_returns  # an array from the first reset on
        discounted[done] = 0
        if self._autoreset_mode == AutoresetMode.SAME_STEP:
            self.episode_returns[done] = 0
            self.episode_lengths[done] = 0
            self.episode_start_times[done] = time.perf_counter()
            self.prev_dones = np.zeros_like(done)
        return super().step(actions)
