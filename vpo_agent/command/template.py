"""An environment: write a note in a few words, which names the facts, greets, and is brief."""

from collections import namedtuple

import numpy as np

import vpo_envs as vpo

WHO = "Ada", "Ben", "Cem", "Dora", "Emil", "Fay"
WHAT = "tea", "chess", "lunch", "tennis", "music", "cake"
WHEN = "Monday", "noon", "tonight", "Friday", "June", "Sunday"
MOST_WORDS = 6


class Note(vpo.Task):
    """A task: frozen data that survives JSON."""

    facts: tuple[str, str, str]  # who, what and when


Sent = namedtuple("Sent", "facts greeting words")


class NoteEnv(vpo.VectorTextEnv[Note, tuple[str, ...], Sent]):
    """Write a note in a few words."""

    task_type = Note
    objectives = (  # Each maps an outcome to [0, 1], higher is better.
        vpo.Objective("facts", "It names who, what and when", lambda sent: sent.facts / 3),
        vpo.Objective("greeting", "It says hello", lambda sent: float(sent.greeting)),
        vpo.Objective("brevity", "It is short", lambda sent: 1 - sent.words / MOST_WORDS),
    )

    def generate(self, rng: np.random.Generator) -> Note:
        """Draw a task of this split, so that none is in two of them."""
        while True:
            facts = str(rng.choice(WHO)), str(rng.choice(WHAT)), str(rng.choice(WHEN))
            note = Note(facts=facts)
            if note.split == self.split:
                return note

    def prompt(self, task: Note, num_answers: int) -> str:
        """Return what the model reads, with the tags of its answers; a model that can read takes whole sentences."""
        tags = " ".join(opening + closing for opening, closing in vpo.answer_tags(num_answers))
        return "a note to {} : we have {} on {} . hello ? {}".format(*task.facts, tags)

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the answer in a tag; equal answers are duplicates, here in any order of their words."""
        if not 1 <= len(words := text.split()) <= MOST_WORDS:
            raise vpo.Unparsable(f"a note has 1 to {MOST_WORDS} words, got {len(words)}")
        return tuple(sorted(words))

    def evaluate(self, task: Note, answer: tuple[str, ...]) -> Sent:
        """Return the facts that the objectives look at."""
        return Sent(sum(fact in answer for fact in task.facts), "hello" in answer, len(answer))

    def outcome_front(self, task: Note) -> list[tuple[Sent, str]]:
        """Optional: outcomes with their answers, including every outcome that no other beats."""
        notes = [" ".join([*hello, *task.facts[:count]]) for hello in ((), ("hello",)) for count in range(4)]
        return [(self.evaluate(task, self.parse(note)), note) for note in notes if note]

    def demonstrations(self, task: Note, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Optional: good answers of all kinds, for a warm start and for the checks."""
        answers = rng.choice([point.answer for point in self.front(task)], num_answers).tolist()
        return [str(answer) for answer in answers]


vpo.register_env("own/Note-v0", f"{__name__}:NoteEnv")
