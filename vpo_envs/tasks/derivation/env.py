"""``vpo/Derivation-v0``: systems of linear equations, solved line by line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpo_envs.core import UnknownFront, VectorTextEnv
from vpo_envs.tasks.derivation.generator import PRESETS, DerivationConfig, draw_task
from vpo_envs.tasks.derivation.scoring import OBJECTIVES, DerivationOutcome, judge
from vpo_envs.tasks.derivation.solutions import KINDS, derive
from vpo_envs.tasks.derivation.task import DerivationTask, is_general
from vpo_envs.tasks.derivation.text import Derivation, compact_prompt, full_prompt, in_few_words, read_derivation
from vpo_envs.tasks.preset_env import PresetEnv


class DerivationEnv(PresetEnv[DerivationTask, Derivation, DerivationOutcome]):
    """Solve a system of linear equations line by line, in few lines, by elimination or by substitution.

    ## Description

    Two or three linear equations in as many unknowns have one solution, in whole numbers. A derivation is a list of
    equations, each of which follows from earlier lines by the method that it names; this is checked in exact fractions.
    The shortest derivations of three unknowns mix the methods, and those of a single method take a line more.

    ## Action space

    Text: ``num_answers`` derivations, each in its tag. A line names a method, the lines it uses, and an equation; lines
    are separated by line breaks or semicolons. The given lines are numbered from 1, and the answer's own go on::

        eliminate 1 2 : 3 y - 2 z = 7
        isolate 1 : x = 4 - 3/2 y + z
        substitute 5 3 : y + 4 z = 9

    ``eliminate i j`` cancels an unknown that both lines have, and neither may be the value of an unknown. ``substitute
    i j`` puts line i, which has an unknown alone on its left side, into line j. Equations may be multiplied by any
    number. At most 16 lines and 4,000 characters; anything else is unparsable.

    ## Rewards

    Three objectives, each in [0, 1], all zero unless every line is right and the value of every unknown is stated:

    0. ``few_lines``: 1 with the fewest lines that can solve the system (2 for two unknowns, 6 for three), else 0.
    1. ``by_elimination``: 1 if all lines eliminate, falling evenly to 0 at three quarters of them.
    2. ``by_substitution``: the same for lines that isolate or substitute.

    With three unknowns the best three derivations are worth 1.43 times the best one, and 1.28 times the best three with
    nearly the best mean. ``pareto_front()`` is exact for generated systems, in which no unknown cancels by accident.

    Args:
        preset: ``"conflict"`` (three unknowns), ``"easy"`` (two unknowns) or ``"embedded"`` (one left side
            and small solutions, for a small model).
        prompt_style: ``"full"`` explains the rules, ``"compact"`` is the equations and their solution in a few words.
        difficulty: Knobs that replace the preset's, by name; see
            ``vpo_envs.tasks.derivation.generator.DerivationConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    task_type = DerivationTask
    namespace = 17
    noun = "derivation"
    presets = PRESETS
    config: DerivationConfig
    objectives = OBJECTIVES

    def generate(self, rng: np.random.Generator) -> DerivationTask:
        """Draw a system of this split."""
        return draw_task(rng, self.config, self.split)

    def prompt(self, task: DerivationTask, num_answers: int) -> str:
        """Return the equations and the tags to fill in, in the environment's prompt style."""
        return (full_prompt if self.prompt_style == "full" else compact_prompt)(task, num_answers)

    parse = staticmethod(read_derivation)
    evaluate = staticmethod(judge)

    def feasible(self, outcome: DerivationOutcome) -> bool:
        """Return whether every line is right and every unknown is found."""
        return outcome.solved

    def outcome_front(self, task: DerivationTask) -> Sequence[tuple[DerivationOutcome, str]]:
        """Return a derivation of each kind: all by one method, and the shortest ones with as much of one as possible.

        Raises:
            UnknownFront: An unknown of the task cancels by accident, so that shorter derivations may exist, or the
                subclass has objectives of its own.
        """
        if self.objectives is not OBJECTIVES or type(self).reward_vector is not VectorTextEnv.reward_vector:
            raise UnknownFront(f"{type(self).__name__} scores derivations in its own way: override outcome_front")
        if not is_general(task):
            raise UnknownFront("an unknown is missing or cancels by accident, so shorter derivations may exist")
        order = range(len(task.equations))
        answers = [self._derivation(task, kind, order, order) for kind in KINDS]
        return [(judge(task, read_derivation(answer)), answer) for answer in answers]

    def demonstrations(self, task: DerivationTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return derivations of each kind equally often, in random order.

        Unknowns and equations are taken in random order, or in their own order where a small model has to learn them.
        """
        count = len(task.equations)

        def order() -> list[int]:
            return rng.permutation(count).tolist() if self.prompt_style == "full" else list(range(count))

        kinds = [KINDS[i] for _ in range(-(-num_answers // len(KINDS))) for i in rng.permutation(len(KINDS))]
        return [self._derivation(task, kind, order(), order()) for kind in kinds[:num_answers]]

    def _derivation(self, task: DerivationTask, kind: str, unknowns: Sequence[int], givens: Sequence[int]) -> str:
        """Return a derivation in the prompt's style; in the compact one every number is a product of two words."""
        if self.prompt_style == "full":
            return "\n".join(derive(task, kind, unknowns, givens))
        return " ; ".join(map(in_few_words, derive(task, kind, unknowns, givens, in_terms=True)))
