"""``vpo/Archive-v0`` with ``preset="compact"``: documents of two words, for small models."""

from __future__ import annotations

import random
from types import MappingProxyType

from vpo_envs.tasks.archive.env import ArchiveEnv
from vpo_envs.tasks.archive.generate import ArchiveConfig
from vpo_envs.tasks.archive.task import ArchiveTask, Document

NAMES = 64


class ArchiveCompactEnv(ArchiveEnv):
    """Answer a question from documents of two words, which must be opened first, and open few of them.

    ## Description

    The question is a name such as ``n5``. Its document ``n9 n40`` leads to the name n9 and says that ``n40`` is the
    broad answer. The document of n9 leads on, and its second word is the near answer. The third document has the far
    answer.

    ## Action space

    Text: calls such as ``<open>n5</open>``, each of which gets a document, and ``num_answers`` answers of one word.

    ## Rewards

    Those of :class:`vpo_envs.ArchiveEnv`.
    """

    namespace = 31
    names_tags = False
    presets = MappingProxyType({"compact": ArchiveConfig(asides=6)})

    def draw(self, source: random.Random) -> ArchiveTask:
        """Draw the documents that lead to the far answer, and others."""
        config = self.config
        names = [f"n{number}" for number in source.sample(range(NAMES), 7 + 3 * config.asides)]
        first, second, third, beyond, kind, near, far, *others = names
        lines = [(first, second, kind), (second, third, near), (third, beyond, far)]
        lines += zip(others[::3], others[1::3], others[2::3], strict=True)
        source.shuffle(lines)
        return ArchiveTask(
            question=first,
            documents=tuple(Document(title=name, text=f"{leads} {word}") for name, leads, word in lines),
            way=(first, second, third),
            kind=kind,
            near=near,
            far=far,
            broad=config.broad,
        )

    @staticmethod
    def prompt(task: ArchiveTask, num_answers: int) -> str:
        """Return the name that the question is about."""
        return f"answers {num_answers} about {task.question}"
