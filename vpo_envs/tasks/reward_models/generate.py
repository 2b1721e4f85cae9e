"""Built-in prompts, each with reference answers from poor to good."""

from __future__ import annotations

import random
from typing import NamedTuple

from vpo_envs.tasks.reward_models.task import RewardTask


class _Wish(NamedTuple):
    """Something that people ask an assistant for, and a good way to begin and to end the answer."""

    request: str
    start: str
    end: str


WISHES = (
    _Wish("Explain to {reader} why {topic} matters.", "Here is why {topic} matters.", "Does that help?"),
    _Wish("Write a short note to {reader} about {topic}.", "Dear reader, a word about {topic}.", "With kind regards."),
    _Wish("Give {reader} three tips on {topic}.", "Three tips on {topic}.", "Start with the first one."),
    _Wish("Persuade {reader} to care about {topic}.", "Think of {topic} for a moment.", "It is worth a try."),
    _Wish("Tell {reader} a short story about {topic}.", "This story is about {topic}.", "And so it ended well."),
    _Wish("Warn {reader} of the risks of {topic}.", "Be careful with {topic}.", "When in doubt, ask for help."),
)
READERS = (
    *("a child of eight", "a busy manager", "a new colleague", "an old friend", "a sceptical scientist"),
    *("a nervous beginner", "a tired nurse", "a proud gardener", "a first-year student", "a retired sailor"),
)
TOPICS = (
    *("sleep", "compost", "bicycles", "public libraries", "learning a language", "tidal power", "bread", "chess"),
    *("vaccines", "saving money", "street trees", "night buses", "old maps", "rain barrels", "choirs", "allotments"),
)
POOR = ("No.", "I do not know.", "It depends on many things.")
"""The first references of every prompt."""
MIDDLE = (
    "Many people find that a little each week is enough, and that it grows easier with time.",
    "It costs little, it can be begun today, and others are glad to show how it is done.",
    "The best reason is a plain one: it makes ordinary days a bit better for everybody.",
)


def draw_prompt(source: random.Random) -> RewardTask:
    """Draw a prompt."""
    wish, reader, topic = source.choice(WISHES), source.choice(READERS), source.choice(TOPICS)
    request, start, end = (text.format(reader=reader, topic=topic) for text in wish)
    middle = f"{start} {source.choice(MIDDLE)}"
    return RewardTask(request=request, references=(*POOR, start, middle, f"{middle} {end}"))
