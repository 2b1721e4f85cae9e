"""Word problems in GSM8K's schema (Cobbe et al., 2021): rows that are read, and generated stories about goods."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from envs_data.readers import BadRow
from vpo_envs.core import Frozen, Unparsable
from vpo_envs.tasks.generation import Namer, ascending
from vpo_envs.tasks.gsm8k.equations import SHOWN_CHARS, read_equation, read_number
from vpo_envs.tasks.gsm8k.task import FINAL, GSM8KTask

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


class GSM8KConfig(Frozen):
    """How word problems are drawn. Pairs are inclusive ranges."""

    events: Annotated[tuple[int, int], ascending(0, 4)] = Field((1, 3), description="events between start and end")
    numbers: Annotated[tuple[int, int], ascending(2, 50)] = Field((2, 12), description="size of a stated number")


PRESETS = {"paper": GSM8KConfig()}


def draw_task(source: random.Random, config: GSM8KConfig) -> GSM8KTask | None:
    """Draw a word problem; ``None`` if two of its results are equal."""
    question, answer = _draw_row(source, config)
    task = read_gsm8k_row({"question": question, "answer": answer})
    # With a value that occurs twice, the front would depend on which of the two is meant.
    return task if len(task.steps) == len(task.calculations) - 1 else None


def _draw_row(source: random.Random, config: GSM8KConfig) -> tuple[str, str]:
    """Return a question and its solution."""
    name, goods = Namer(source).word(), source.choice(GOODS)

    def number() -> int:
        return source.randint(*config.numbers)

    price = source.choice((0.25, 0.5, 1.5, 2, 3))
    costs = f"{name} sells {goods} for ${price:.2f} each."
    asides = (f"{name} has {number()} cousins.", f"{name} walks {number()} miles to the market.")
    # Up to three other numbers come first, so that no two places in a story hold the numbers of its first calculation.
    story = source.sample([costs, *asides], source.randint(0, 3))
    boxes, each = number(), number()
    count = boxes * each
    story += [f"{name} packs {boxes} boxes of {each} {goods} each."]
    solution = [f"The boxes hold {boxes} * {each} = <<{boxes}*{each}={count}>>{count} {goods}."]
    for _ in range(source.randint(*config.events)):
        size, other = number(), number()
        product, kind = size * other, source.choice(("given", "bought", "sold"))
        if kind == "given" and size < count:
            story.append(f"{name} gives {size} {goods} to a friend.")
            solution.append(f"That leaves {count} - {size} = <<{count}-{size}={count - size}>>{count - size}.")
            count -= size
        elif kind == "sold" and product < count:
            story.append(f"{size} neighbours take {other} {goods} each.")
            solution.append(f"They take {size} * {other} = <<{size}*{other}={product}>>{product} {goods}.")
            solution.append(f"That leaves {count} - {product} = <<{count}-{product}={count - product}>>.")
            count -= product
        else:
            story.append(f"Then {name} gets {size} bags with {other} {goods} each.")
            solution.append(f"The bags hold {size} * {other} = <<{size}*{other}={product}>>{product} {goods}.")
            solution.append(f"Together that is {count} + {product} = <<{count}+{product}={count + product}>>.")
            count += product
    sale = f"{name} sells the rest." if costs in story else f"{name} sells the rest for ${price:.2f} each."
    story.append(f"{sale} How much money does {name} get, in dollars?")
    solution.append(f"They bring {count} * {price} = $<<{count}*{price}={count * price:.2f}>>{count * price:.2f}.")
    return " ".join(story), "\n".join([*solution, f"#### {count * price:.2f}"])
