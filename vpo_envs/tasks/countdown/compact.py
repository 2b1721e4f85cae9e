"""``vpo/Countdown-v0`` with ``preset="compact"``: three small numbers and a few words, for a small model."""

from __future__ import annotations

from types import MappingProxyType

from vpo_envs.tasks.countdown.env import CountdownEnv
from vpo_envs.tasks.countdown.generate import CountdownConfig
from vpo_envs.tasks.countdown.task import CountdownTask


class CountdownCompactEnv(CountdownEnv):
    """Write an expression of three small numbers that hits one of three targets.

    ## Description

    As in ``CountdownEnv``, but only an exact hit earns anything (``tolerance`` is 1), and every intermediate result
    must be a whole number. Two of the numbers hit the target with the highest scalar reward, and the other targets
    need all three. Each task is certified by its exact front as with ``preset="conflict"``. The prompt is a few words.

    Args:
        difficulty: Knobs by name; see ``vpo_envs.tasks.countdown.generate.CountdownConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    presets = MappingProxyType(
        {
            "compact": CountdownConfig(
                count=3, numbers=(1, 8), targets=(1, 40), gap=(1, 30), tolerance=1, most=3, integers=True
            )
        }
    )
    names_tags = False

    def prompt(self, task: CountdownTask, num_answers: int) -> str:
        """Return the numbers and the targets, each as one word."""
        rows = [("numbers", *task.numbers), ("targets", *task.targets), ("within", task.tolerance)]
        return "\n".join([*(" ".join(map(str, row)) for row in rows), f"answers {num_answers}"])
