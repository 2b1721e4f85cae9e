"""The exact front of a word problem: which intermediate values to show, each of which costs brevity."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from vpo_envs.core import UnknownFront, Unparsable
from vpo_envs.tasks.gsm8k.task import TOKEN, GSM8KOutcome, GSM8KTask, judge, read_answer, read_number, write_answer

MOST_STEPS = 8
"""Most intermediate values of a task whose front is computed; it has a point for each set of them."""


def front_answers(task: GSM8KTask) -> Iterator[tuple[GSM8KOutcome, str]]:
    """Yield the shortest answer that shows each set of intermediate values.

    Each value shown takes an equation, and the last of them is used by one more, whose result is the final answer. So
    no answer is shorter. The final answer alone shows nothing and takes no equation.

    Raises:
        UnknownFront: The task's own calculations do not lead from each value to the final answer, or are too many.
    """
    if len(task.steps) > MOST_STEPS:
        raise UnknownFront(f"the solution has {len(task.steps)} intermediate values, more than {MOST_STEPS}")
    for count in range(len(task.steps) + 1):
        for shown in combinations(range(len(task.steps)), count):
            text = write_answer(_shortest(task, shown) if shown else [], task.final)
            wanted = tuple([i in shown for i in range(len(task.steps))])
            try:
                outcome = judge(task, read_answer(text))
            except Unparsable:
                raise UnknownFront("the solution in one equation is too long") from None
            if outcome != GSM8KOutcome(wanted, True, count + bool(shown), task.limit):
                raise UnknownFront("the calculations of the solution do not lead from each value to the final answer")
            yield outcome, text


def _shortest(task: GSM8KTask, shown: tuple[int, ...]) -> list[str]:
    """Return the calculations of the values shown and of the final answer, with those of other values put in."""
    kept = {task.steps[i] for i in shown}
    hidden: dict[object, str] = {}
    lines: dict[object, str] = {}
    final = ""
    for text, equation in zip(task.calculations, task.equations, strict=True):
        left = " ".join(_put_in(token, hidden) for token in TOKEN.findall(text.partition("=")[0]))
        line = f"{left} = {text.partition('=')[2]}"
        if equation.result == task.answer:
            final = line
        elif equation.result in kept:
            lines.setdefault(equation.result, line)
        else:
            hidden.setdefault(equation.result, f"( {left} )")
    return [*lines.values(), *([final] if final else [])]


def _put_in(token: str, hidden: dict[object, str]) -> str:
    return hidden.get(read_number(token), token) if token[0] in "0123456789." else token
