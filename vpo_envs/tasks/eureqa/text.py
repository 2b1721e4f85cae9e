"""The prompt of a narrative, and the reader of the names that answer it."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_envs.core import Unparsable
from vpo_envs.tasks.eureqa.task import LETTERS, MASKS, EUREQATask
from vpo_envs.text import answer_tags, normalise_name, read_tag, several_answers

TAGS = tuple(f"entity_{letter}" for letter in LETTERS)


def read_names(text: str) -> tuple[str, ...]:
    """Read the names of A to E, normalised; empty where a tag is missing or contains no letter or digit.

    Raises:
        Unparsable: No entity is named.
    """
    names = tuple([normalise_name(name) if (name := read_tag(text, tag)) else "" for tag in TAGS])
    if not any(names):
        raise Unparsable("no entity is named: expected <entity_A>…</entity_A> to <entity_E>…</entity_E>")
    return names


def write_names(names: Sequence[str]) -> str:
    """Return the content of an answer tag that names A to E."""
    return "".join(f"<{tag}>{name}</{tag}>" for tag, name in zip(TAGS, names, strict=True))


def narrative_prompt(task: EUREQATask, num_answers: int) -> str:
    """Return the facts, the clues, the leaf and the tags to fill in."""
    known = ["Known facts:", *[f"- {fact}" for fact in task.facts], ""] if task.facts else []
    masked = ", ".join(f"entity {letter} is {mask!r}" for letter, mask in zip(LETTERS, task.masks, strict=False))
    lines = [
        "In the clues below, the names of some entities are masked. Work out who or what they are.",
        "",
        *known,
        "Clues:",
        *task.clues,
        f"{task.masks[-1][:1].upper()}{task.masks[-1][1:]} is {task.leaf}.",
        "",
        *([] if task.masks == MASKS else [f"In these clues, {masked}."]),
        "Name the entities A to E. Write the full name of each in its tag.",
    ]
    if len(task.worlds) > 1:
        lines.append(
            "The clues fit more than one world. For each of these worlds, an answer is scored on the share of its "
            "names that are right there."
        )
    else:
        lines.append("Each correct name scores separately.")
    if num_answers > 1:
        lines.append(several_answers(num_answers))
    lines.append("Use this form:")
    blank = write_names(["..."] * len(TAGS))
    return "\n".join([*lines, *[f"{opening}{blank}{closing}" for opening, closing in answer_tags(num_answers)]])
