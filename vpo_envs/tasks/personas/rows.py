"""Rows of IFEval (Zhou et al., 2023, arXiv 2311.07911) as tasks: every instruction of a row is an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs_data.readers import BadRow
from vpo_envs.tasks.personas.checks import Check
from vpo_envs.tasks.personas.task import PersonasTask

MAX_INSTRUCTIONS = 4
"""Most instructions of a row; IFEval has up to three."""


class _Row(BaseModel):  # type: ignore[no-redef]  # pydantic's plugin gives it an argument named kwargs of its own
    model_config = ConfigDict(strict=True, frozen=True)

    key: int | str
    prompt: str = Field(min_length=1)
    instruction_id_list: list[str] = Field(min_length=1, max_length=MAX_INSTRUCTIONS)
    kwargs: list[dict[str, Any]]


Arguments = Mapping[str, Any]
Reader = Callable[[Arguments], Check | list[Check]]


def _relation(arguments: Arguments, number: str, relation: str) -> dict[str, Any]:
    """Return the band of IFEval's relations ``less than`` and ``at least``."""
    if arguments[relation] == "at least":
        return {"least": arguments[number]}
    if arguments[relation] == "less than":
        return {"most": arguments[number] - 1}
    raise ValueError(f"unknown relation {arguments[relation]!r}: known are 'at least' and 'less than'")


def _exactly(number: int) -> dict[str, Any]:
    return {"least": number, "most": number}


READERS: dict[str, Reader] = {
    "keywords:existence": lambda a: [Check(family="keyword", value=word.lower(), least=1) for word in a["keywords"]],
    "keywords:forbidden_words": lambda a: [
        Check(family="keyword", value=word.lower(), most=0) for word in a["forbidden_words"]
    ],
    "keywords:frequency": lambda a: Check(
        family="keyword", value=a["keyword"].strip().lower(), **_relation(a, "frequency", "relation")
    ),
    "keywords:letter_frequency": lambda a: Check(
        family="letter", value=a["letter"].lower(), **_relation(a, "let_frequency", "let_relation")
    ),
    "length_constraints:number_sentences": lambda a: Check(
        family="sentences", **_relation(a, "num_sentences", "relation")
    ),
    "length_constraints:number_words": lambda a: Check(family="words", **_relation(a, "num_words", "relation")),
    "length_constraints:number_paragraphs": lambda a: Check(family="paragraphs", **_exactly(a["num_paragraphs"])),
    "detectable_content:number_placeholders": lambda a: Check(family="placeholders", least=a["num_placeholders"]),
    "detectable_content:postscript": lambda a: Check(
        family="postscript", value=a["postscript_marker"].strip().lower(), least=1
    ),
    "detectable_format:number_bullet_lists": lambda a: Check(family="bullets", **_exactly(a["num_bullets"])),
    "detectable_format:constrained_response": lambda _: Check(
        family="choice", value="my answer is yes.\nmy answer is no.\nmy answer is maybe.", least=1
    ),
    "detectable_format:number_highlighted_sections": lambda a: Check(family="highlights", least=a["num_highlights"]),
    "detectable_format:multiple_sections": lambda a: Check(
        family="sections", value=a["section_spliter"].strip().lower(), least=a["num_sections"]
    ),
    "detectable_format:json_format": lambda _: Check(family="json", least=1),
    "detectable_format:title": lambda _: Check(family="title", least=1),
    "startend:end_checker": lambda a: Check(family="closes", value=a["end_phrase"].strip().lower(), least=1),
    "startend:quotation": lambda _: Check(family="quoted", least=1),
    "change_case:capital_word_frequency": lambda a: Check(
        family="capital_words", **_relation(a, "capital_frequency", "capital_relation")
    ),
    "change_case:english_capital": lambda _: Check(family="lowercase", most=0),
    "change_case:english_lowercase": lambda _: Check(family="capitals", most=0),
    "punctuation:no_comma": lambda _: Check(family="mark", value=",", most=0),
}
"""The instructions that are supported, by IFEval's id, with the checks that each stands for."""


def read_ifeval_row(raw: Mapping[str, Any]) -> PersonasTask:
    """Return the task of a row; an instruction of several checks counts by the share that holds.

    Raises:
        BadRow: Another schema, or an instruction that is not supported.
        ValidationError: The row does not fit the schema.
    """
    if "instruction_id_list" not in raw:
        raise BadRow("", "unknown schema: a row of IFEval has key, prompt, instruction_id_list and kwargs")
    row = _Row.model_validate(dict(raw))
    if len(row.kwargs) != len(row.instruction_id_list):
        raise BadRow("kwargs", f"expected one object for each of {len(row.instruction_id_list)} instructions")
    personas = []
    for number, (name, arguments) in enumerate(zip(row.instruction_id_list, row.kwargs, strict=True)):
        if name not in READERS:
            known = ", ".join(READERS)
            raise BadRow(f"instruction_id_list.{number}", f"{name!r} is not supported; supported are {known}")
        try:
            read = READERS[name](arguments)
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRow(f"kwargs.{number}", f"the arguments of {name!r} lack or misstate {error}") from None
        except ValidationError:
            given = ", ".join(f"{key} {value!r}" for key, value in arguments.items() if value is not None)
            raise BadRow(
                f"kwargs.{number}", f"the arguments of {name!r} describe no check that can hold: {given}"
            ) from None
        personas.append(tuple(read) if isinstance(read, list) else (read,))
    return PersonasTask(request=row.prompt, personas=tuple(personas))
