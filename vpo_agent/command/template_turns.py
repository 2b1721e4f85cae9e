"""An environment that replies: look into drawers, name the words in them, and open few."""

from collections import namedtuple
from collections.abc import Sequence

import numpy as np

import vpo_envs as vpo

WORDS = "apple", "bread", "cheese", "date", "egg", "fig", "grape", "honey"
DRAWERS = "a", "b", "c"


class Desk(vpo.Task):
    """A task: the word in each drawer."""

    words: tuple[str, str, str]


Named = namedtuple("Named", "right opened")


class DeskEnv(vpo.VectorTextEnv[Desk, frozenset[str], Named]):
    """Name the words in three drawers, which ``<look>a</look>`` opens."""

    task_type = Desk
    turn_tags = ("look",)  # </look> ends a turn: the environment replies, and the model writes on.
    objectives = (
        vpo.Objective("right", "Share of the words that are named", lambda named: named.right / 3),
        vpo.Objective("saved", "Share of the drawers left closed", lambda named: 1 - named.opened / 4),
    )

    def generate(self, rng: np.random.Generator) -> Desk:
        """Draw a task of this split, so that none is in two of them."""
        while True:
            desk = Desk(words=tuple(str(word) for word in rng.choice(WORDS, 3, replace=False)))
            if desk.split == self.split:
                return desk

    def prompt(self, task: Desk, num_answers: int) -> str:
        """Return what the model reads, with the tags of its answers; a model that can read takes whole sentences."""
        tags = " ".join(opening + closing for opening, closing in vpo.answer_tags(num_answers))
        return f"drawers a b c . <look> </look> opens one . {tags}"

    def respond(self, task: Desk, calls: Sequence[vpo.Call]) -> str | None:
        """Return the reply to the last call; ``None`` where there is nothing to say."""
        drawer = calls[-1].text.strip()
        return task.words[DRAWERS.index(drawer)] if drawer in DRAWERS else None

    def parse(self, text: str) -> frozenset[str]:
        """Return the answer in a tag."""
        if not (words := frozenset(text.split())):
            raise vpo.Unparsable("the answer has no words")
        return words

    def evaluate(self, task: Desk, answer: frozenset[str]) -> Named:
        """Return the facts that the objectives look at, without any call."""
        return self.evaluate_after(task, answer, ())

    def evaluate_after(self, task: Desk, answer: frozenset[str], calls: Sequence[vpo.Call]) -> Named:
        """Return these facts after the calls before the answer: only words that were looked up count."""
        opened = {call.text.strip() for call in calls}
        words = [word for drawer, word in zip(DRAWERS, task.words, strict=True) if drawer in opened]
        return Named(len(answer.intersection(words)), len(opened))

    def feasible(self, outcome: Named) -> bool:
        """Optional: whether an outcome earns anything; here, one right word at least."""
        return bool(outcome.right)

    def outcome_front(self, task: Desk) -> list[tuple[Named, str]]:
        """Optional: outcomes with their answers, including every outcome that no other beats."""
        front = []
        for count in (1, 2, 3):
            calls = [vpo.Call("look", drawer) for drawer in DRAWERS[:count]]
            words = " ".join(task.words[:count])
            front.append((self.evaluate_after(task, self.parse(words), calls), self.played(task, calls, words)))
        return front

    def demonstrations(self, task: Desk, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Optional: good answers of all kinds, fewest calls first."""
        chosen = sorted(rng.permutation(3)[:num_answers].tolist())
        return [self.outcome_front(task)[chosen[i % len(chosen)]][1] for i in range(num_answers)]


vpo.register_env("own/Desk-v0", f"{__name__}:DeskEnv")
