"""How masked entities are put to a model, and how their names are read back."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_envs.core import Unparsable
from vpo_envs.tasks.eureqa.task import LETTERS, EUREQATask
from vpo_envs.text import answer_tags, normalise_name, read_tag

TAGS = tuple(f"entity_{letter}" for letter in LETTERS)


def read_names(text: str) -> tuple[str, ...]:
    """Read the names of A to E, normalised; empty where a tag is missing or holds no letter or digit.

    Raises:
        Unparsable: No entity is named.
    """
    names = tuple([normalise_name(name) if (name := read_tag(text, tag)) else "" for tag in TAGS])
    if not any(names):
        raise Unparsable("no entity is named: <entity_A>…</entity_A> to <entity_E>…</entity_E> are wanted")
    return names


def write_names(names: Sequence[str]) -> str:
    """What stands inside an answer tag."""
    return "".join(f"<{tag}>{name}</{tag}>" for tag, name in zip(TAGS, names, strict=True))


def narrative_prompt(task: EUREQATask, num_answers: int, *, many_worlds: bool) -> str:
    """Facts, clues, the leaf and the tags that are wanted.

    Args:
        task: The narrative.
        num_answers: Answers wanted.
        many_worlds: Whether the clues fit several worlds, agreement with each of which is scored.
    """
    known = ["Known facts:", *[f"- {fact}" for fact in task.facts], ""] if task.facts else []
    masked = ", ".join(f"entity {letter} is {mask!r}" for letter, mask in zip(LETTERS, task.masks, strict=False))
    plain = task.masks == tuple(f"entity {letter}" for letter in (*LETTERS, "F"))
    lines = [
        "In the clues some entities are masked. Find out who or what they are.",
        "",
        *known,
        "Clues:",
        *task.clues,
        f"{task.masks[-1][:1].upper()}{task.masks[-1][1:]} is {task.leaf}.",
        "",
        *([] if plain else [f"Of the masks, {masked}."]),
        "Name the entities A to E, each with its full name in its tag.",
    ]
    if many_worlds:
        lines.append(
            "The clues fit more than one world. An answer is scored on the share of its names that agree with each one."
        )
    else:
        lines.append("Each entity that is named rightly scores by itself.")
    if num_answers > 1:
        lines.append(
            f"Give {num_answers} different answers that make different trade-offs between these goals. They are judged "
            "together: under each weighting of the goals only the best of them counts."
        )
    lines.append("Use this form:")
    blank = write_names(["..."] * len(TAGS))
    return "\n".join([*lines, *[f"{opening}{blank}{closing}" for opening, closing in answer_tags(num_answers)]])
