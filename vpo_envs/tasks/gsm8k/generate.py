"""Word problems in GSM8K's schema (Cobbe et al., 2021): rows that are read, and generated stories about goods."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from envs_data.readers import BadRow
from vpo_envs.core import Frozen, Unparsable
from vpo_envs.tasks.generation import Namer, ascending
from vpo_envs.tasks.gsm8k.equations import SHOWN_CHARS, read_equation, read_number
from vpo_envs.tasks.gsm8k.task import FINAL, SPARE, GSM8KTask

MARK = re.compile(r"<<([^<>]*)>>")


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    question: str = Field(min_length=1)
    answer: str


def read_gsm8k_row(raw: Mapping[str, Any]) -> GSM8KTask:
    """Return the task of a row: its question, the calculations in ``<<…>>``, and the final answer after ``####``.

    Calculations that do not hold exactly, such as ``<<10/3=3.33>>``, and those that calculate nothing, such as
    ``<<14=14>>``, are left out.
    """
    if "question" not in raw and "answer" not in raw:
        raise BadRow("", "unknown schema: a row of GSM8K has question and answer")
    row = _Row.model_validate(dict(raw))
    solution, mark, final = row.answer.rpartition(FINAL)
    if not mark:
        raise BadRow("answer", f"there is no final answer after {FINAL}: {row.answer[-SHOWN_CHARS:]!r}")
    try:
        read_number(final)
        calculations = tuple([text for text in MARK.findall(solution) if read_equation(text).right])
    except Unparsable as error:
        raise BadRow("answer", str(error)) from None
    return GSM8KTask(question=row.question, calculations=calculations, final=final.strip())


GOODS = ("apples", "candles", "pencils", "postcards", "marbles", "cookies", "stamps", "buttons")


SENTENCES = {
    "start": (
        "{name} starts the day with {a} boxes of {b} {goods} each.",
        "In the morning {name} has {a} trays with {b} {goods} on each.",
        "{name}'s stall opens with {a} rows of {b} {goods} each.",
    ),
    "more": (
        "Then {a} bags of {b} {goods} each arrive for {name}.",
        "{a} friends bring {name} {b} {goods} each.",
        "For {a} hours {name} makes {b} more {goods} an hour.",
        "{name} buys {a} packs with {b} {goods} in each.",
    ),
    "less": (
        "Then {a} bags of {b} {goods} each are stolen from {name}.",
        "{a} friends get {b} {goods} each from {name} as a gift.",
        "For {a} hours {name} loses {b} of the {goods} an hour.",
        "{name} throws away {a} packs with {b} spoilt {goods} in each.",
    ),
    "aside": (
        "{a} bags of {b} {goods} each lie on a neighbour's stall.",
        "{a} friends show {name} {b} photographs each.",
        "For {a} hours {b} children an hour walk past.",
        "{name} counts {a} lamps with {b} moths around each.",
        "A neighbour sells {a} packs with {b} of her own {goods} in each.",
    ),
    "price": (
        "Of everything on the stall, one of the {goods} costs {a} coins and an empty bag {b}.",
        "An empty bag costs {a} coins, and each of the {goods} costs {b}.",
    ),
}
"""Sentences of a story, each with two numbers, so that numbers and their places do not tell the kinds apart."""
GOODS_COME_FIRST = (True, False)
"""Whether the first number of each sentence about the price is that of the goods."""


class GSM8KConfig(Frozen):
    """How word problems are drawn. Pairs are inclusive ranges."""

    events: Annotated[tuple[int, int], ascending(0, 3)] = Field((1, 3), description="events between start and end")
    sentences: int = Field(
        6,
        ge=2,
        le=12,
        description="sentences with numbers, among them some that do not matter",
    )
    numbers: Annotated[tuple[int, int], ascending(2, 50)] = Field((2, 12), description="size of a stated number")

    @model_validator(mode="after")
    def _have_room(self) -> Self:
        if self.sentences < self.events[1] + 2:
            raise ValueError(
                f"sentences must be at least {self.events[1] + 2}, the most events and two, got {self.sentences}"
            )
        return self


PRESETS = {"paper": GSM8KConfig()}


def draw_task(source: random.Random, config: GSM8KConfig) -> GSM8KTask | None:
    """Draw a word problem; ``None`` if two of its results are equal."""
    question, answer = _draw_row(source, config)
    task = read_gsm8k_row({"question": question, "answer": answer})
    # With a value that occurs twice, the front would depend on which of the two is meant.
    if len(task.steps) < len(task.calculations) - 1:
        return None
    # The number of equations that the prompt allows must not tell how many the story takes.
    return task.model_copy(update={"most": 2 + 2 * config.events[1] + SPARE})


def _draw_row(source: random.Random, config: GSM8KConfig) -> tuple[str, str]:
    """Return a question and its solution."""
    name, goods = Namer(source).word(), source.choice(GOODS)

    def sentence(kind: str, a: int, b: int) -> str:
        return source.choice(SENTENCES[kind]).format(name=name, goods=goods, a=a, b=b)

    def pair() -> tuple[int, int]:
        return source.randint(*config.numbers), source.randint(*config.numbers)

    a, b = pair()
    count = a * b
    story = [sentence("start", a, b)]
    solution = [f"There are {a} * {b} = <<{a}*{b}={count}>>{count} {goods}."]
    events = source.randint(*config.events)
    for _ in range(events):
        a, b = pair()
        less = source.random() < 0.5 and a * b < count
        sign, after = ("-", count - a * b) if less else ("+", count + a * b)
        story.append(sentence("less" if less else "more", a, b))
        solution.append(f"Then {a} * {b} = <<{a}*{b}={a * b}>>{a * b} {goods} come or go.")
        solution.append(f"That makes {count} {sign} {a * b} = <<{count}{sign}{a * b}={after}>>{after}.")
        count = after
    price, other = pair()
    which = source.randrange(len(SENTENCES["price"]))
    stated = (price, other) if GOODS_COME_FIRST[which] else (other, price)
    others = [SENTENCES["price"][which].format(goods=goods, a=stated[0], b=stated[1])]
    others += [sentence("aside", *pair()) for _ in range(config.sentences - events - 2)]
    for text in others:
        story.insert(source.randint(0, len(story)), text)
    story.append(f"In the evening {name} sells all {goods} that are left. How many coins does {name} get for them?")
    solution.append(f"They bring {count} * {price} = <<{count}*{price}={count * price}>>{count * price} coins.")
    return " ".join(story), "\n".join([*solution, f"#### {count * price}"])
