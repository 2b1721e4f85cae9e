"""Random tools, requests and gold calls, conversations that need no call, and requests beyond the credits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from envs_data.parsing import parse_toml
from vpo_envs.core import Frozen
from vpo_envs.pareto import needs_a_set
from vpo_envs.tasks.generation import ascending, invent_name
from vpo_envs.tasks.tools.front import affordable
from vpo_envs.tasks.tools.task import (
    NUM_REQUESTS,
    PAPER_RULES,
    Market,
    Offer,
    ShownTool,
    SubRequest,
    ToolCall,
    ToolsTask,
    instructions,
)

Kind = Literal["name", "town", "choice", "code", "date", "count", "amount", "flag", "names", "words", "range"]

JSON_TYPES: dict[Kind, str] = {
    **dict.fromkeys(("name", "town", "choice", "code", "date"), "string"),
    "count": "integer",
    "amount": "number",
    "flag": "boolean",
    "names": "list of strings",
    "words": "list of strings",
    "range": "object with the integers min and max",
}


class Parameter(NamedTuple):
    """One parameter of a service."""

    keys: list[str]
    """Names that a tool may give it, in snake case."""
    kind: Kind
    description: str
    phrase: str
    """How a request states the value, with ``{}`` for it; for a flag, the words for true, a bar, those for false."""
    choices: Sequence[str] = ()
    low: int = 1
    high: int = 9


class Service(NamedTuple):
    """Something that a tool does."""

    verb: str
    noun: str
    request: str
    """The request up to the first parameter."""
    description: str
    sibling: list[str]
    """Verb and description of a tool that takes the same parameters and does something else."""
    parameters: list[Parameter]


_TEXT = files("vpo_envs.tasks.tools").joinpath("services.toml").read_text(encoding="utf-8")
SERVICES = tuple(
    Service(**{**service, "parameters": [Parameter(**parameter) for parameter in service["parameters"]]})
    for service in parse_toml(_TEXT)["services"]
)

ONSETS = ("B", "Br", "D", "F", "G", "Gr", "H", "K", "L", "M", "N", "P", "R", "S", "T", "Tr", "V", "W")
MIDDLES = ("a", "e", "i", "o", "u", "ai", "eo")
CODAS = ("lan", "mir", "nok", "rell", "sen", "tova", "vik", "zar", "dun", "phi", "gost", "nem")
TOWN_ENDS = ("burg", "field", "ham", "mouth", "stead", "wick")


def draw_value(source: random.Random, parameter: Parameter) -> Any:
    """Draw a value for a parameter."""
    low, high = parameter.low, parameter.high
    match parameter.kind:
        case "name":
            return _name(source)
        case "town":
            return _name(source) + source.choice(TOWN_ENDS)
        case "choice":
            return source.choice(parameter.choices)
        case "code":
            return f"{_name(source)[:2].upper()}-{source.randrange(1000, 9999)}"
        case "date":
            return f"{source.randrange(2027, 2032)}-{source.randrange(1, 13):02}-{source.randrange(1, 29):02}"
        case "count":
            return source.randint(low, high)
        case "amount":
            return source.randint(10 * low, 10 * high) / 10
        case "flag":
            return source.random() < 0.5
        case "names":
            return [_name(source) for _ in range(source.randint(2, 3))]
        case "words":
            return source.sample(parameter.choices, source.randint(2, 4))
        case "range":
            first, second = sorted(source.sample(range(low, high + 1), 2))
            return {"min": first, "max": second}


def say(parameter: Parameter, value: Any) -> str:
    """Return how a request states a value."""
    if parameter.kind == "flag":
        return parameter.phrase.split("|")[0 if value else 1]
    if isinstance(value, list):
        value = ", ".join(value[:-1]) + " and " + value[-1]
    elif isinstance(value, dict):
        value = f"{value['min']} to {value['max']}"
    return parameter.phrase.format(value)


def _name(source: random.Random) -> str:
    return invent_name(source, ONSETS, MIDDLES, CODAS)


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


PRESETS = {
    "conflict": ToolsConfig(),
    "paper": ToolsConfig(),
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


def draw_task(source: random.Random, config: ToolsConfig) -> ToolsTask:
    """Draw a task with preset ``paper``."""
    if source.random() < config.no_call:
        return _draw_reply_task(source, config)
    wants = draw_wants(source, source.randint(*config.requests), config.repeats)
    dialogue = user_turn(source, wants)
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


def _draw_reply_task(source: random.Random, config: ToolsConfig) -> ToolsTask:
    """Draw a task whose conversation already contains the answer, so that a reply is wanted and no call."""
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


RULES = (
    "Always begin with <think>. Then make all your calls in one <tool_call>, one JSON object of the form above per "
    "line; one <response> may follow. An attempt in any other form scores nothing, such as one with a second "
    "<tool_call> or with text outside these tags.",
    "Each call costs the price of its tool. The calls of one attempt may cost at most {budget} credits in total: an "
    "attempt that costs more scores nothing, and so does one that calls a tool that is not listed.",
    "A sub-request is served by a call to a tool that does it, with exactly the right arguments (lists in the order in "
    "which the user states them), and scores the accuracy of that tool; if both tools are called, the better one "
    "counts. Each sub-request is an objective.",
)


def draw_market_task(source: random.Random, config: ToolsConfig) -> ToolsTask | None:
    """Draw a task with preset ``conflict``; ``None`` if it is not certified.

    Certified means that several attempts score more than one; see :func:`vpo_envs.pareto.needs_a_set`.
    """
    wants = draw_wants(source, NUM_REQUESTS, 0.0)
    dialogue = user_turn(source, wants)
    tools: list[ShownTool] = []
    requests = []
    for want in wants:
        price = source.randint(2, 4)
        terms = [(price, 1.0), (source.randint(1, price - 1), source.choice((0.4, 0.5, 0.6, 0.7)))]
        offers = []
        bare = draw_tool(source, want.service, 0.0)
        for (cost, accuracy), grade in zip(terms, ("exact", "quick"), strict=True):
            note = f"{bare.description} Costs {cost} credit{'s' * (cost > 1)} a call; accuracy {accuracy}."
            tool = bare._replace(name=f"{bare.name}_{grade}", description=note)
            tools.append(tool)
            offers.append(Offer(tool=tool.name, price=cost, accuracy=accuracy))
        requests.append(SubRequest(arguments=arguments(bare, want), offers=tuple(offers)))
    everything = sum(request.offers[0].price for request in requests)
    budget = source.randint(everything // 3, everything * 2 // 3)
    market = Market(requests=tuple(requests), budget=budget)
    if not needs_a_set(affordable(market)[0]):
        return None
    shown = with_distractors(source, tools, wants, config.model_copy(update={"distractors": (0, 0), "siblings": 0.0}))
    rules = [rule.format(budget=budget) for rule in RULES]
    return ToolsTask(instructions=instructions(shown, rules), dialogue=dialogue, market=market)
