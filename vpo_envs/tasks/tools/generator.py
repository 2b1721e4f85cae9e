"""Random tools, requests and gold calls, and conversations that need no call."""

from __future__ import annotations

import random
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from vpo_envs.core import Frozen, Split
from vpo_envs.generation import ascending, split_of_content
from vpo_envs.tasks.tools.services import JSON_TYPES, SERVICES, Service, draw_value, say
from vpo_envs.tasks.tools.task import ToolCall, ToolsTask, stated
from vpo_envs.tasks.tools.text import PAPER_RULES, ShownTool, instructions


class ToolsConfig(Frozen):
    """How tasks are drawn. Pairs are inclusive ranges, drawn uniformly."""

    requests: Annotated[tuple[int, int], ascending(1, 8)] = Field(
        (1, 3), description="calls that a request needs; always four with preset conflict"
    )
    distractors: Annotated[tuple[int, int], ascending(0, 10)] = Field(
        (1, 4), description="tools that are useless for the request"
    )
    siblings: float = Field(
        0.4, ge=0.0, le=1.0, description="probability that a tool has a look-alike with the same parameters"
    )
    repeats: float = Field(0.2, ge=0.0, le=1.0, description="probability that two calls go to the same tool")
    opaque: float = Field(0.3, ge=0.0, le=1.0, description="probability that a tool has a meaningless name")
    no_call: float = Field(0.15, ge=0.0, le=1.0, description="share of tasks where no call is wanted")


PRESETS: dict[str, Frozen | str | None] = {
    "conflict": ToolsConfig(),
    "paper": ToolsConfig(),
    "compact": "vpo_envs.tasks.tools.compact:ToolsCompactEnv",
}


class Want(NamedTuple):
    """A sub-request: a service and the values that are wanted."""

    service: Service
    values: tuple[Any, ...]

    def text(self) -> str:
        """Return the request in words."""
        said = " ".join(
            say(parameter, value) for parameter, value in zip(self.service.parameters, self.values, strict=True)
        )
        return f"{self.service.request} {said}".replace(" ,", ",").removesuffix(",")


OPENINGS = ("Please {}.", "Could you {}?", "I would like you to {}.", "I need you to {}, thanks.", "Today: {}.")


def draw_task(rng: np.random.Generator, config: ToolsConfig, split: Split) -> ToolsTask:
    """Draw a task of ``split``: a function of the generator's state, the configuration and the split."""
    source = random.Random(int.from_bytes(rng.bytes(16)))
    if source.random() < config.no_call:
        return _draw_reply_task(source, config, split)
    while True:
        wants = draw_wants(source, source.randint(*config.requests), config.repeats)
        dialogue = user_turn(source, wants)
        if split_of_content(stated(want.values for want in wants)) == split:
            break
    tools: dict[str, ShownTool] = {}
    calls = []
    for want in wants:
        if want.service.noun not in tools:
            tools[want.service.noun] = draw_tool(source, want.service, config.opaque)
        tool = tools[want.service.noun]
        calls.append(ToolCall(name=tool.name, parameters=arguments(tool, want)))
    shown = with_distractors(source, list(tools.values()), wants, config)
    return ToolsTask(instructions=instructions(shown, PAPER_RULES), dialogue=dialogue, calls=tuple(calls), exact=True)


def draw_wants(source: random.Random, count: int, repeats: float) -> list[Want]:
    """Draw ``count`` different sub-requests; ``repeats`` is the probability that two are for the same service."""
    services = source.sample(SERVICES, count)
    if count > 1 and source.random() < repeats:
        services[1] = services[0]
    wants: list[Want] = []
    for service in services:
        want = None
        while want is None or want in wants:
            want = Want(service, tuple(draw_value(source, parameter) for parameter in service.parameters))
        wants.append(want)
    return wants


def user_turn(source: random.Random, wants: list[Want]) -> str:
    """Return the turn of a user who asks for all sub-requests."""
    texts = [want.text() for want in wants]
    joined = texts[0] if len(texts) == 1 else "; ".join(texts[:-1]) + "; and " + texts[-1]
    return f"<user> {source.choice(OPENINGS).format(joined)} </user>"


def draw_tool(source: random.Random, service: Service, opaque: float, *, sibling: bool = False) -> ShownTool:
    """Draw a tool for a service, or one that looks like it, with random names for itself and its parameters."""
    verb, description = service.sibling if sibling else (service.verb, service.description)
    camel = source.random() < 0.5
    if source.random() < opaque:
        name = "".join(source.choices("abcdefghkmnpqrstuvwxyzABCDEFGHKMNPQRSTUVWXYZ23456789", k=source.randint(6, 10)))
    else:
        name = source.choice(("{0}_{1}", "{1}.{0}", "{0}-{1}", "{0}_{1}_api", "{1}_{0}")).format(verb, service.noun)
    parameters = tuple(
        (_cased(source.choice(parameter.keys), camel), JSON_TYPES[parameter.kind], parameter.description)
        for parameter in service.parameters
    )
    return ShownTool(name, description, parameters)


def arguments(tool: ShownTool, want: Want) -> dict[str, Any]:
    """Return the arguments with which a tool serves a sub-request."""
    return {key: value for (key, _, _), value in zip(tool.parameters, want.values, strict=True)}


def with_distractors(
    source: random.Random, tools: list[ShownTool], wants: list[Want], config: ToolsConfig
) -> list[ShownTool]:
    """Return the tools among useless ones, in random order, without repeating a name."""
    used = {want.service.noun for want in wants}
    others = [service for service in SERVICES if service.noun not in used]
    extra = [
        draw_tool(source, s, config.opaque)
        for s in source.sample(others, min(len(others), source.randint(*config.distractors)))
    ]
    for want in wants:
        if source.random() < config.siblings:
            extra.append(draw_tool(source, want.service, config.opaque, sibling=True))
    # An opaque name may be drawn twice; the tools that are wanted take precedence.
    unique = {tool.name: tool for tool in reversed([*tools, *extra])}
    shown = list(unique.values())
    source.shuffle(shown)
    return shown


def _draw_reply_task(source: random.Random, config: ToolsConfig, split: Split) -> ToolsTask:
    """Draw a task whose conversation already contains the answer, so that a reply is wanted and no call."""
    while True:
        want = draw_wants(source, 1, 0.0)[0]
        tool = draw_tool(source, want.service, config.opaque)
        call = ToolCall(name=tool.name, parameters=arguments(tool, want))
        fields = source.sample(RESULT_FIELDS, 4)
        values = source.sample(range(1000, 10_000), 4)
        asked = source.randrange(4)
        dialogue = "\n".join(
            [
                user_turn(source, [want]),
                f"<tool_call>\n{call.model_dump_json()}\n</tool_call>",
                "<obs> " + "; ".join(f"{f}: {v}" for f, v in zip(fields, values, strict=True)) + " </obs>",
                f"<user> Thank you. What was the {fields[asked]}? </user>",
            ]
        )
        if split_of_content(dialogue) == split:
            break
    shown = with_distractors(source, [tool], [want], config)
    said = {str(value) for value in want.values if not isinstance(value, list | dict)}
    return ToolsTask(
        instructions=instructions(shown, PAPER_RULES),
        dialogue=dialogue,
        reply=f"The {fields[asked]} was {values[asked]}.",
        mention=(str(values[asked]),),
        avoid=tuple(
            text for i, v in enumerate(values) if i != asked for text in (fields[i], str(v)) if text not in said
        ),
    )


RESULT_FIELDS = tuple(
    f"{thing} number" for thing in ("reference", "desk", "account", "locker", "badge", "queue", "invoice", "shelf")
)


def _cased(name: str, camel: bool) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest) if camel else name
