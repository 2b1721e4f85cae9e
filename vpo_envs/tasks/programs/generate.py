"""Draws programs with the examples that show and judge them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from vpo_envs.core import Frozen, Objective, Split, split_of_content
from vpo_envs.tasks.generation import ascending
from vpo_envs.tasks.language import LISTS, MAX_STEPS, TEXTS, Step, all_functions, behaviour, run

NUMBERS = range(-9, 10)
MAX_INPUT = 6
MAX_NUMBER = 40
"""No number of an example is larger, so that a tokenizer of words knows all of them."""
LETTERS = "aabbccdeeeghiiklmnnooprrssttuy"
TRIES = 60
REDRAWS = 10
"""Sets of examples that are drawn for a program until the hidden ones decide it."""
PART_OF = ("first", "first", "second", "both")
"""Which part of a program each of four examples needs, where parts can be seen apart."""

Example = tuple[Any, Any]


class ProgramsConfig(Frozen):
    """How programs and their examples are drawn."""

    steps: Annotated[tuple[int, int], ascending(1, MAX_STEPS)] = Field((3, 3), description="steps of a program")
    examples: int = Field(4, ge=1, le=8, description="examples in the prompt, and as many hidden ones that are scored")
    parts: bool = Field(
        False, description="whether two of four examples need the first part alone, one the second, and one both"
    )
    distractors: int = Field(0, ge=0, le=8, description="examples of another program, under another name")
    decisive: bool = Field(
        True, description="whether no program that does something else is right on all hidden examples"
    )

    @model_validator(mode="after")
    def _parts_need_four(self) -> Self:
        if self.parts and self.examples != len(PART_OF):
            raise ValueError(f"parts=true needs examples={len(PART_OF)}, got {self.examples}")
        if self.parts and self.steps[0] < 2:
            raise ValueError(f"parts=true needs programs of two steps or more, got steps={self.steps}")
        return self


def objectives_of(count: int, score_of: Callable[[int], Callable[[Any], float]]) -> tuple[Objective, ...]:
    """Return the objectives of ``count`` hidden examples, each with the score of its position."""
    return tuple(Objective(f"example_{i + 1}", f"Hidden example {i + 1} is right", score_of(i)) for i in range(count))


class DrawnProgram(NamedTuple):
    """A program with its examples; a shown and a hidden one at the same position need the same part of it."""

    program: tuple[str, ...]
    shown: tuple[Example, ...]
    hidden: tuple[Example, ...]
    cut: int
    """Number of steps of the first part; 0 if the program has no parts."""
    others: tuple[Example, ...]
    """Examples of another program."""


def draw_program(
    source: random.Random, config: ProgramsConfig, split: Split, *, texts: bool = False
) -> DrawnProgram | None:
    """Draw a program of a split whose steps all matter, with its examples; ``None`` if it is not in the split.

    ``None`` as well if a shorter program does the same, or if no examples show and decide it. The split follows from
    what the program does, so no two splits share a function under two names.
    """
    steps = TEXTS if texts else LISTS
    count = source.randint(*config.steps)
    cut = source.randint(1, count - 1) if config.parts else 0
    names = [name for name in steps if steps[name].idle] if config.parts else list(steps)
    program = tuple(source.sample(names, count) if config.parts else source.choices(names, k=count))
    done = behaviour(steps, program)
    if split_of_content(repr(done)) != split or len(all_functions(texts)[done].program) < count:
        return None
    size = config.examples
    for _ in range(REDRAWS if config.decisive else 1):
        examples = _parted(source, steps, program, cut) if config.parts else _plain(source, steps, program, 2 * size)
        if examples is None or not all_steps_matter(steps, program, examples[:size]):
            return None
        if not config.decisive or not _another_passes(texts, done, examples[size:]):
            break
    else:
        return None
    others = _plain(source, steps, source.choices(list(steps), k=count), config.distractors)
    if others is None:
        return None
    return DrawnProgram(program, tuple(examples[:size]), tuple(examples[size:]), cut, tuple(others))


def draw_value(source: random.Random, texts: bool) -> Any:
    """Draw an input: a list of two to six numbers, often with repetitions, or a word."""
    if texts:
        word = "".join(source.choices(LETTERS, k=source.randint(3, 8)))
        return source.choice([word, word.title(), word[:1] + word[1:].upper()])
    values = source.choices(NUMBERS, k=source.randint(2, MAX_INPUT))
    return tuple(source.choices(values, k=len(values)) if source.random() < 0.3 else values)


def _plain(
    source: random.Random, steps: Mapping[str, Step], program: Sequence[str], count: int
) -> list[Example] | None:
    """Return ``count`` examples with different inputs and few equal outputs."""
    outputs: dict[Any, Any] = {}
    if not count:
        return []
    for _ in range(TRIES):
        value = draw_value(source, steps is TEXTS)
        output = run(steps, program, value)
        if output and _in_range(output) and value not in outputs and list(outputs.values()).count(output) < 2:
            outputs[value] = output
            if len(outputs) == count:
                return list(outputs.items())
    return None


def _parted(source: random.Random, steps: Mapping[str, Step], program: Sequence[str], cut: int) -> list[Example] | None:
    """Return examples of the kinds of :data:`PART_OF`, first those to show and then those to hide."""
    examples: dict[str, list[Example]] = {kind: [] for kind in PART_OF}
    need = {kind: 2 * PART_OF.count(kind) for kind in PART_OF}
    seen = set()
    for _ in range(10 * TRIES):
        value = draw_value(source, steps is TEXTS)
        first, second = run(steps, program[:cut], value), run(steps, program[cut:], value)
        whole = run(steps, program[cut:], first)
        kind = "first" if whole == first != second else "second" if whole == second != first else "both"
        if kind == "both" and whole in (first, second, value):
            continue
        if whole and value not in seen and _in_range(whole) and len(examples[kind]) < need[kind]:
            seen.add(value)
            examples[kind].append((value, whole))
            if all(len(examples[kind]) == need[kind] for kind in need):
                shown = [examples[kind].pop() for kind in PART_OF]
                return shown + [examples[kind].pop() for kind in PART_OF]
    return None


def _in_range(output: Any) -> bool:
    return isinstance(output, str) or all(abs(number) <= MAX_NUMBER for number in output)


def all_steps_matter(steps: Mapping[str, Step], program: Sequence[str], examples: Sequence[Example]) -> bool:
    """Return whether the examples show every step: without any one of them the program fails an example."""
    shorter = [(*program[:i], *program[i + 1 :]) for i in range(len(program))]
    return all(any(run(steps, without, value) != output for value, output in examples) for without in shorter)


def _another_passes(texts: bool, done: tuple[Any, ...], hidden: Sequence[Example]) -> bool:
    """Return whether a program that does something else is right on all hidden examples."""
    steps = TEXTS if texts else LISTS
    (first, wanted), *rest = hidden
    reached = [first]
    for other, (program, parent, last) in all_functions(texts).items():
        output = last(reached[parent])
        if program:
            reached.append(output)
        right = output == wanted and all(run(steps, program, value) == output for value, output in rest)
        if right and other != done:
            return True
    return False


def near_programs(
    steps: Mapping[str, Step], program: Sequence[str], examples: Sequence[Example]
) -> list[tuple[str, ...]]:
    """Return the programs one edit away (a step replaced, dropped or added) that fit an example but not all."""
    edits = {(*program[:i], *program[i + 1 :]) for i in range(len(program))}
    for i in range(len(program) + 1):
        for name in steps:
            edits.add((*program[:i], name, *program[i + 1 :]))
            edits.add((*program[:i], name, *program[i:]))
    near = []
    for edit in sorted(edits):
        fits = [run(steps, edit, value) == output for value, output in examples]
        if edit and any(fits) and not all(fits) and len(edit) <= MAX_STEPS:
            near.append(edit)
    return near
