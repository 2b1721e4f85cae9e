"""What the generated tools do: services with parameters, each with words for a request and a way to draw a value."""

from __future__ import annotations

import random
from typing import Any, Literal, NamedTuple

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

    keys: tuple[str, ...]
    """Names that a tool may give it, in snake case."""
    kind: Kind
    description: str
    phrase: str
    """How a request says the value, with ``{}`` for it; of a flag, what is said if it is true, a bar, and if not."""
    choices: tuple[str, ...] = ()
    low: int = 1
    high: int = 9


class Service(NamedTuple):
    """Something that a tool does."""

    verb: str
    noun: str
    request: str
    """The request as far as the first parameter."""
    description: str
    sibling: tuple[str, str]
    """Verb and description of a tool that takes the same parameters and does something else."""
    parameters: tuple[Parameter, ...]


P = Parameter
SERVICES: tuple[Service, ...] = (
    Service(
        "book",
        "table",
        "book a table",
        "Reserves a table in a restaurant.",
        ("cancel", "Gives back a table that was reserved in a restaurant."),
        (
            P(("restaurant", "venue"), "name", "Name of the restaurant", "at {}"),
            P(("guests", "party_size"), "count", "How many people come", "for {} people", low=2, high=14),
            P(("outdoors", "open_air"), "flag", "Whether the table is outside", "outside|inside"),
        ),
    ),
    Service(
        "send",
        "parcel",
        "send a parcel",
        "Sends a parcel to somebody.",
        ("price", "Says what it would cost to send a parcel, without sending it."),
        (
            P(("recipient", "addressee"), "name", "Who gets the parcel", "to {}"),
            P(("town", "destination"), "town", "Town that it goes to", "in {}"),
            P(("weight", "kilograms"), "amount", "Weight in kilograms", "weighing {} kg", low=1, high=30),
            P(("insured", "with_insurance"), "flag", "Whether it is insured", "with insurance|without insurance"),
        ),
    ),
    Service(
        "forecast",
        "weather",
        "give me the weather forecast",
        "Forecasts the weather of a town.",
        ("archive", "Says what the weather of a town was in past days."),
        (
            P(("town", "place", "location"), "town", "Which town", "for {}"),
            P(("days", "horizon"), "count", "How many days ahead", "over {} days", low=2, high=14),
        ),
    ),
    Service(
        "rent",
        "bicycle",
        "rent a bicycle",
        "Rents a bicycle at a station.",
        ("return", "Takes a rented bicycle back at a station."),
        (
            P(("station", "stand"), "name", "Name of the station", "at the {} station"),
            P(("hours", "duration"), "count", "For how many hours", "for {} hours", low=2, high=48),
            P(("electric", "with_motor"), "flag", "Whether it has a motor", "with a motor|without a motor"),
        ),
    ),
    Service(
        "set",
        "temperature",
        "set the temperature",
        "Sets the temperature of a store room.",
        ("log", "Writes a temperature that was measured into the log of a store room."),
        (
            P(
                ("room", "store"),
                "choice",
                "Which store room",
                "of the {}",
                ("cold store", "wine cellar", "seed vault"),
            ),
            P(("celsius", "degrees"), "amount", "Degrees Celsius", "to {} degrees", low=-30, high=15),
        ),
    ),
    Service(
        "order",
        "groceries",
        "order groceries",
        "Orders groceries from a shop.",
        ("compare", "Compares prices of groceries without ordering them."),
        (
            P(
                ("items", "products"),
                "words",
                "What to buy",
                ", namely {},",
                ("lentils", "butter", "plums", "rye bread", "barley", "honey", "chard", "salt", "walnuts", "vinegar"),
            ),
            P(("shop", "seller"), "name", "Name of the shop", "from {}"),
            P(("express", "urgent"), "flag", "Whether it comes today", "by express|without express"),
        ),
    ),
    Service(
        "schedule",
        "meeting",
        "schedule a meeting",
        "Puts a meeting into the calendar.",
        ("propose", "Asks people whether a meeting would suit them, without fixing it."),
        (
            P(("people", "participants"), "names", "Who takes part", "with {}"),
            P(("date", "day"), "date", "Day, as YYYY-MM-DD", "on {}"),
            P(("minutes", "length"), "count", "Length in minutes", "lasting {} minutes", low=10, high=180),
        ),
    ),
    Service(
        "find",
        "flights",
        "find flights",
        "Looks for flights between two towns.",
        ("watch", "Sends a message when the price of flights between two towns falls."),
        (
            P(("origin", "from_town"), "town", "Where the flight starts", "from {}"),
            P(("destination", "to_town"), "town", "Where it goes", "to {}"),
            P(("date", "departure"), "date", "Day, as YYYY-MM-DD", "on {}"),
            P(("price", "price_range"), "range", "Lowest and highest price", "priced {}", low=40, high=900),
        ),
    ),
    Service(
        "transfer",
        "money",
        "transfer money",
        "Pays an amount to somebody.",
        ("request", "Asks somebody to pay an amount."),
        (
            P(("payee", "receiver"), "name", "Who is paid", "to {}"),
            P(("amount", "total"), "amount", "How much", ", {}", low=5, high=900),
            P(("currency", "unit"), "choice", "Currency", "in {}", ("crowns", "florins", "ducats", "thalers")),
        ),
    ),
    Service(
        "track",
        "shipment",
        "track the shipment",
        "Says where a shipment is.",
        ("redirect", "Sends a shipment that is under way somewhere else."),
        (
            P(("code", "tracking_code"), "code", "Code of the shipment", "{}"),
            P(
                ("history", "with_history"),
                "flag",
                "Whether to list past stops",
                "with its past stops|without past stops",
            ),
        ),
    ),
    Service(
        "translate",
        "phrase",
        "translate the words",
        "Translates words.",
        ("pronounce", "Reads words aloud."),
        (
            P(
                ("text", "phrase"),
                "choice",
                "The words",
                "'{}'",
                (
                    "where is the mill",
                    "two loaves please",
                    "the bridge is closed",
                    "see you in spring",
                    "mind the step",
                ),
            ),
            P(
                ("language", "target"),
                "choice",
                "Into which language",
                "into {}",
                ("Basque", "Welsh", "Sorbian", "Maltese"),
            ),
            P(("formal", "polite"), "flag", "Whether to be formal", "in formal words|in informal words"),
        ),
    ),
    Service(
        "report",
        "fault",
        "report a fault",
        "Reports a broken device to the workshop.",
        ("close", "Closes the report of a device that works again."),
        (
            P(
                ("device", "machine"),
                "choice",
                "Which device",
                "of the {}",
                ("lift", "boiler", "turnstile", "pump", "fan"),
            ),
            P(("serial", "serial_code"), "code", "Serial code of the device", "with the serial code {}"),
            P(("severity", "level"), "count", "From 1 to 9", "of severity {}", low=1, high=9),
        ),
    ),
    Service(
        "list",
        "homes",
        "list homes",
        "Lists homes that are to let.",
        ("value", "Estimates what homes are worth."),
        (
            P(("town", "place"), "town", "Which town", "in {}"),
            P(("rooms", "room_range"), "range", "Fewest and most rooms", "with {} rooms", low=1, high=9),
            P(("garden", "with_garden"), "flag", "Whether there is a garden", "with a garden|without a garden"),
        ),
    ),
    Service(
        "play",
        "music",
        "play music",
        "Plays the music of an artist.",
        ("download", "Stores the music of an artist for later."),
        (
            P(("artist", "performer"), "name", "Whose music", "by {}"),
            P(("minutes", "duration"), "count", "How long", "for {} minutes", low=5, high=240),
            P(("shuffle", "mixed"), "flag", "Whether in random order", "in random order|in album order"),
        ),
    ),
)

ONSETS = ("B", "Br", "D", "F", "G", "Gr", "H", "K", "L", "M", "N", "P", "R", "S", "T", "Tr", "V", "W")
MIDDLES = ("a", "e", "i", "o", "u", "ai", "eo")
CODAS = ("lan", "mir", "nok", "rell", "sen", "tova", "vik", "zar", "dun", "phi", "gost", "nem")
TOWN_ENDS = ("burg", "field", "ham", "mouth", "stead", "wick")


def draw_value(source: random.Random, parameter: Parameter) -> Any:
    """A random value for a parameter."""
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
    """How a request says a value."""
    if parameter.kind == "flag":
        return parameter.phrase.split("|")[0 if value else 1]
    if isinstance(value, list):
        value = ", ".join(value[:-1]) + " and " + value[-1]
    elif isinstance(value, dict):
        value = f"{value['min']} to {value['max']}"
    return parameter.phrase.format(value)


def _name(source: random.Random) -> str:
    return source.choice(ONSETS) + source.choice(MIDDLES) + source.choice(CODAS)
