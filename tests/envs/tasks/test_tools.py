"""The tools task: reading attempts, comparing calls, replies, generated tasks, conflict preset, and the environment."""

from __future__ import annotations

import json
import re
import time
from decimal import Decimal
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpo_envs import Objective, Status, ToolCall, ToolsEnv, ToolsTask, UnknownFront, Unparsable
from vpo_envs.tasks.tools.matching import argument_match, key_f1, match_calls, text_match, value_match
from vpo_envs.tasks.tools.scoring import is_real_reply
from vpo_envs.tasks.tools.task import read_attempt, write_attempt
from vpo_envs.text import format_answers

BOOK = ("book", {"venue": "Red Hall", "guests": 4, "outside": False})
SEND = ("send", {"to": "Ann", "kg": 2.5})
ONES = [1.0, 1.0, 1.0, 1.0]
ZEROS = [0.0, 0.0, 0.0, 0.0]


def call_task(*calls: tuple[str, dict[str, Any]]) -> ToolsTask:
    wanted = tuple(ToolCall(name=name, parameters=arguments) for name, arguments in calls)
    return ToolsTask(instructions="The tools are book and send.", dialogue="<user> Do it. </user>", calls=wanted)


def reply_task(**fields: Any) -> ToolsTask:
    dialogue = (
        "<user> What did the oak table cost in the little shop on the corner of Mill Road? </user> <obs> 40 </obs>"
    )
    return ToolsTask(instructions="No tool is of use.", dialogue=dialogue, reply="It cost 40 crowns.", **fields)


def score(task: ToolsTask, attempt: str, env: ToolsEnv | None = None) -> list[float]:
    env = env or ToolsEnv(preset="paper")
    return env.score_batch([task], [f"<answer>{attempt}</answer>"]).rewards[0, 0].tolist()


def calls_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in read_attempt(text).calls]


# --- reading an attempt ---


def test_calls_and_a_response_are_read() -> None:
    attempt = read_attempt(write_attempt([BOOK, SEND], "Done."))
    assert [tuple(call) for call in attempt.calls] == [BOOK, SEND]
    assert (attempt.response, attempt.well_formed) == ("Done.", True)


@pytest.mark.parametrize(
    "thinking",
    [
        "I should write <tool_call> now.",
        '<tool_call>\n{"name": "wrong", "parameters": {}}\n</tool_call>',
        "The format is <think> </think> <tool_call> </tool_call>, I recall.",
        "A </think> in between, and a <response>no</response>.",
        "<think> twice <think>",
    ],
)
def test_tags_in_the_thinking_mislead_nobody(thinking: str) -> None:
    attempt = read_attempt(write_attempt([BOOK], thinking=thinking))
    assert [tuple(call) for call in attempt.calls] == [BOOK]
    assert attempt.well_formed


@pytest.mark.parametrize(
    "text", ["</tool_call>", "<tool_call>", "</think>", "<response>x</response>", 'a "quoted" {x}']
)
def test_tags_inside_a_value_are_part_of_it(text: str) -> None:
    call = ("note", {"text": text})
    assert calls_of(write_attempt([call, BOOK])) == [call, BOOK]


def test_a_response_may_speak_of_tags() -> None:
    attempt = read_attempt("<think>a</think><response>I close </think> and </response> myself.</response>")
    assert attempt.response == "I close </think> and </response> myself."
    assert attempt.well_formed


def test_objects_may_be_spread_over_lines() -> None:
    text = json.dumps({"name": BOOK[0], "parameters": BOOK[1]}, indent=2)
    attempt = read_attempt(f"<think>a</think>\n<tool_call>{text}{text}</tool_call>")
    assert len(attempt.calls) == 2
    assert attempt.well_formed


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('<tool_call>{"name": "a", "parameters": {}}</tool_call>', 1),
        ('x <think>t</think><tool_call>{"name": "a", "parameters": {}}</tool_call>', 1),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}}</tool_call> so there', 1),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}}', 1),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}}, {"name": "b", "parameters": {}}</tool_call>', 1),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}}\n{"name": "b"}</tool_call>', 1),
        ('<think></think><tool_call>{"name": "a", "parameters": {}} 7 {"name": "b", "parameters": {}}</tool_call>', 2),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}, "id": 1}</tool_call><response>r</response>', 0),
        ("<think>t</think><tool_call></tool_call><response>r</response>", 0),
        ('<think>t</think><response>r</response><tool_call>{"name": "a", "parameters": {}}</tool_call>', 0),
        ('<think>t</think><tool_call>{"name": "a", "parameters": {}}</tool_call><response>r', 1),
    ],
)
def test_what_can_be_read_of_an_ill_formed_attempt_counts(text: str, calls: int) -> None:
    attempt = read_attempt(text)
    assert not attempt.well_formed
    assert len(attempt.calls) == calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        "book",
        "<think>only thoughts</think>",
        '<think><tool_call>{"name": "a", "parameters": {}}</tool_call>',
        "<think>t</think><tool_call></tool_call>",
        "<think>t</think><tool_call>[1]</tool_call>",
        '<think>t</think><tool_call>{"name": "a", "parameters": {"x": NaN}}</tool_call>',
        '<think>t</think><tool_call>{"name": "a", "parameters": {"x": 1e999}}</tool_call>',
        '<think>t</think><tool_call>{"name": "a", "parameters": {"x": 1, "x": 2}}</tool_call>',
        '<think>t</think><tool_call>{"name": 5, "parameters": {}}</tool_call>',
        '<think>t</think><tool_call>{"name": "a", "parameters": []}</tool_call>',
        '<think>t</think><tool_call>{"name": "a", "parameters": {"x": ' + "[" * 40 + "]" * 40 + "}}</tool_call>",
        '<think>t</think><tool_call>{"name": "a", "parameters": ' + '{"x":' * 100_000 + "</tool_call>",
        '<think>t</think><tool_call>{"name": "a", "parameters": {"x": ' + "9" * 5000 + "}}</tool_call>",
        write_attempt([("a", {"n": i}) for i in range(65)]),
    ],
    ids=lambda text: ascii(text[:40]) + str(len(text)),
)
def test_what_holds_neither_a_call_nor_a_response_is_no_attempt(text: str) -> None:
    with pytest.raises(Unparsable):
        read_attempt(text)


def test_the_same_calls_are_the_same_answer_whatever_the_order_and_the_thinking() -> None:
    first = write_attempt([BOOK, SEND], thinking="a")
    again = write_attempt([("send", {"kg": 2.50, "to": "Ann"}), BOOK], "Done.", thinking="b")
    other = write_attempt([BOOK, ("send", {"to": "Ann", "kg": 2.6})])
    batch = ToolsEnv(num_answers=3, preset="paper").score_batch(
        [call_task(BOOK, SEND)], [format_answers([first, again, other])]
    )
    assert batch.status.tolist() == [[Status.OK, Status.DUPLICATE, Status.OK]]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        ([], {}, False),
        (None, False, False),
        (-1, -2, False),
    ],
)
def test_arguments_are_the_same_only_if_they_are_the_same_value(first: Any, second: Any, equal: bool) -> None:
    one, two = (read_attempt(write_attempt([("a", {"x": value})])) for value in (first, second))
    assert (one == two) is equal
    both = [("a", {"x": first}), ("a", {"x": second})]
    assert read_attempt(write_attempt(both)) == read_attempt(write_attempt(both[::-1]))


def test_null_arguments_are_none() -> None:
    attempt = read_attempt('<think>t</think><tool_call>{"name": "list", "parameters": null}</tool_call>')
    assert attempt == read_attempt(write_attempt([("list", {})]))
    assert attempt.well_formed
    assert score(call_task(("list", {})), write_attempt([("list", {})]).replace("{}", "null")) == ONES
    # A null among the arguments is a value.
    assert score(call_task(("list", {"of": None})), write_attempt([("list", {"of": None})])) == ONES
    assert score(call_task(("list", {"of": None})), write_attempt([("list", {})])) == [1, 1, 0, 0]


# --- comparing values ---


@pytest.mark.parametrize(
    ("gold", "given_value", "expected"),
    [
        (5, 5, 1), (5, 5.0, 1), (5, -5, 0), (3.5, 35, 0), (0.1 + 0.2, 0.3, 1),
        (10**400, 1.5, 0), (10**20, 10**20 + 1, 0),
        (5, "5", 1), ("5", 5, 1), ("5.0", "5", 1), ("-5", "5", 0), ("3.5", "35", 0), ("007", "7", 0), (7, "007", 0),
        ("3.10", "3.1", 0), ("3.1", "3.10", 0), ("1.0.0", "1.0", 0), ("2.50", "2.5", 0), ("5.00", "5", 0),
        ("2023.0", "2023", 1), ("2023.0", 2023, 1), (3.1, "3.10", 1), ("v3.10", "v3.1", 0), ("-0.5", "0.5", 0),
        (1700000000.25, 1700000000.75, 0), ("1700000000.25", "1700000000.75", 0), (1700000000.25, "1700000000.75", 0),
        (1700000000.123456, 1700000000.123457, 0), (2**53, 2**53 + 1, 0), (float(2**53), 2**53 + 1, 0),
        (1e-12, 2e-12, 0), (16777216.0, 16777217.0, 0), (0.1 + 0.7, 0.8, 1), ("5", "5.0", 1),
        (5, "five", 0), ("1e3", 1000, 0), (5, "5 ", 0), ("²", 2, 0), ("٣", 3, 0),
        (True, True, 1), (True, False, 0), (False, "false", 0), ("false", False, 0), (True, 1, 0), (0, False, 0),
        (None, None, 1), (None, 0, 0), (None, "", 0), (None, False, 0),
        ("New York", "new york", 1), ("New York", "York", 2 / 3), ("New York", "Paris", 0), ("a b", "b a b", 0.8),
        ("2027-03-05", "2027-05-03", 0), ("GR-1234", "1234-GR", 0), ("GR-1234", "gr-1234", 1), ("10:30", "30:10", 0),
        ("on 2027-03-05", "on 2027-05-03", 0), ("ann@b.org", "b@ann.org", 0), ("05/03/2027", "03/05/2027", 0),
        ("", "", 1), ("", "x", 0), ("?!", "?!", 1), ("?!", "!?", 0), ("at -5 degrees", "at 5 degrees", 0),
        ("v 3.5", "v 35", 0), ("x + 1", "x 1", 0), (".5 kg", "5 kg", 0), ("-.5 kg", "-.5 KG", 1),
        ("03 05 2027", "05 03 2027", 0), ("GR#1234", "1234#GR", 0), ("GR|1234", "1234|GR", 0), ("1,234", "234,1", 0),
        ("-5 to 5", "5 to -5", 0), ("5 March", "March", 0), ("March", "March 5", 0), ("5 March", "5 march!", 1),
        ("café", "cafe\u0301", 1), ("STRASSE", "straße", 1),
        ([1, 2], [1, 2], 1), ([1, 2], [2, 1], 0), ([1, 2], [1], 0.5), ([1], [1, 2], 0.5), ([], [], 1),
        ([], [1], 0), ([1], "1", 0),
        ({"a": 1}, {"a": 1}, 1), ({"a": 1, "b": 2}, {"a": 1}, 0.5), ({"a": 1}, {"a": 1, "b": 2}, 0.5),
        ({}, {}, 1), ({"a": 1}, {"a": 2}, 0),
        ({"a": {"b": [1, "x y"]}}, {"a": {"b": [1, "x"]}}, (1 + 2 / 3) / 2),
        ([], {}, 0), ({"a": True}, {"a": "true"}, 0),
    ],
)  # fmt: skip
def test_values_agree_by_type(gold: Any, given_value: Any, expected: float) -> None:
    assert value_match(gold, given_value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gold", "given_value", "expected"),
    [
        ("cold store", "store cold", 0), ("cold store", "cold cellar", 0), ("cold store", "cold store", 1),
        ("GR-1234", "1234-GR", 0), ("2027-03-05", "2027-05-03", 0), (2.5, "2.50", 1), ("5", 5, 1),
        (["rye bread", "salt"], ["rye bread", "rye salt"], 0.5), ({"a": "x y", "b": 1}, {"a": "y x", "b": 1}, 0.5),
    ],
)  # fmt: skip
def test_texts_of_generated_tasks_must_be_equal(gold: Any, given_value: Any, expected: float) -> None:
    assert value_match(gold, given_value, exact=True) == expected
    task = call_task(("a", {"x": gold})).model_copy(update={"exact": True})
    assert score(task, write_attempt([("a", {"x": given_value})])) == [1.0, 1.0, 1.0, expected]
    assert all(task.exact or task.reply for task in (ToolsEnv(preset="paper").task(i) for i in range(20)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(JSON, JSON)
def test_every_value_agrees_with_itself_and_agreement_has_no_side(first: Any, second: Any) -> None:
    assert value_match(first, first) == 1.0
    assert 0.0 <= value_match(first, second) <= 1.0
    assert value_match(first, second) == pytest.approx(value_match(second, first))


@given(st.decimals(-(10**6), 10**6, places=3), st.decimals(-(10**6), 10**6, places=3), st.integers(0, 2))
def test_numbers_agree_where_they_are_equal(first: Decimal, second: Decimal, shift: int) -> None:
    for number in (second, first + shift * Decimal("0.001")):
        assert value_match(float(first), float(number)) == float(first == number)
        assert value_match(float(first), f"{number:f}") == float(first == number)
        texts = f"{first:f}", f"{number:f}"
        assert value_match(*texts) == float(texts[0] == texts[1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_agreement_of_words_is_the_harmonic_mean_of_precision_and_recall(gold: list[str], answer: list[str]) -> None:
    common = sum(min(gold.count(token), answer.count(token)) for token in set(gold))
    precision, recall = common / len(answer), common / len(gold)
    expected = 2 * precision * recall / (precision + recall) if common else 0.0
    assert text_match(" ".join(gold), " ".join(answer)) == pytest.approx(expected)


# --- comparing calls ---


@pytest.mark.parametrize(
    ("attempt", "vector"),
    [
        ([BOOK, SEND], ONES),
        ([SEND, BOOK], ONES),
        ([BOOK], [1, 2 / 3, 1 / 2, 1 / 2]),
        ([BOOK, SEND, SEND], [1, 4 / 5, 2 / 3, 2 / 3]),
        ([BOOK, ("post", SEND[1])], [1, 1 / 2, 1 / 2, 1 / 2]),
        ([("reserve", BOOK[1]), ("post", SEND[1])], [1, 0, 0, 0]),
        ([BOOK, ("send", {"to": "Ann", "kilos": 2.5})], [1, 1, 3 / 4, 3 / 4]),
        ([BOOK, ("send", {"to": "Bob", "kg": 2.5})], [1, 1, 1, 3 / 4]),
        ([BOOK, ("send", {"to": "Ann", "kg": 2.5, "fast": True})], [1, 1, (1 + 4 / 5) / 2, 1]),
        ([("book", {**BOOK[1], "outside": "false"}), SEND], [1, 1, 1, (2 / 3 + 1) / 2]),
    ],
)
def test_the_vector_of_an_attempt(attempt: list[tuple[str, dict[str, Any]]], vector: list[float]) -> None:
    assert score(call_task(BOOK, SEND), write_attempt(attempt)) == pytest.approx(vector)


def test_calls_to_one_tool_are_paired_in_any_order() -> None:
    calls = [("add", {"a": n, "b": n + 1}) for n in range(5)]
    task = call_task(*calls)
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        assert score(task, write_attempt([calls[i] for i in order])) == ONES
    changed = [("add", {"a": 9, "b": 5}), *calls[:4][::-1]]
    assert score(task, write_attempt(changed)) == pytest.approx([1, 1, 1, 0.9])


def test_a_tool_without_parameters_is_called_without_arguments() -> None:
    task = call_task(("now", {}))
    assert score(task, write_attempt([("now", {})])) == ONES
    assert score(task, write_attempt([("now", {"zone": "UTC"})])) == [1.0, 1.0, 0.0, 0.0]


ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"), st.integers(0, 2) | st.booleans() | st.sampled_from(["x", "x y"]), max_size=3
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ARGUMENTS, min_size=1, max_size=5), st.lists(ARGUMENTS, min_size=1, max_size=5))
def test_the_pairing_is_the_best_of_all(gold: list[dict[str, Any]], answer: list[dict[str, Any]]) -> None:
    few, many = sorted([gold, answer], key=len)
    swapped = few is not gold

    def total(way: tuple[int, ...]) -> float:
        pairs = [(many[j], few[i]) if swapped else (few[i], many[j]) for i, j in enumerate(way)]
        return sum(key_f1(a, b) + argument_match(a, b) for a, b in pairs)

    best = max(total(way) for way in permutations(range(len(many)), len(few)))
    assert sum(match_calls(gold, answer)) == pytest.approx(best)


# --- no call wanted ---


@pytest.mark.parametrize(
    ("attempt", "earned"),
    [
        ("<think>a</think><response>It cost 40 crowns.</response>", 1),
        ("<think>a</think><response>You paid forty for it, as the note says.</response>", 1),
        ("<think>a</think>", 0),
        ("<think>a</think><response></response>", 0),
        ("<think>a</think><response>...</response>", 0),
        ("<think>a</think><response>yes yes yes yes</response>", 0),
        ("<response>It cost 40 crowns.</response>", 0),
        ('<think></think><tool_call>{"name": "a", "parameters": {}}</tool_call><response>It was 40.</response>', 0),
        ("<think>a</think><response>It cost <tool_call> 40 crowns.</response>", 0),
        ("<think>a</think><response>oak table cost in the little shop on the corner of Mill Road</response>", 0),
    ],
)
def test_where_no_call_is_wanted_only_a_real_reply_earns(attempt: str, earned: float) -> None:
    assert score(reply_task(), attempt) == [earned] * 4


def test_a_reply_says_what_is_asked_and_not_everything() -> None:
    task = reply_task(mention=("40",), avoid=("7300", "81"))
    for reply, earned in (("That was 40 crowns.", 1), ("That was 41 crowns.", 0), ("Either 40 or 81 crowns.", 0)):
        assert score(task, write_attempt([], reply)) == [earned] * 4


@pytest.mark.parametrize(
    "evasion",
    [
        "It was not {0}.",
        "It wasn't {0}.",
        "It wasn’t {0}.",
        "It was never {0}.",
        "It is false that the {1} was {0}.",
        "The {1} was anything but {0}.",
        "I doubt that it was {0}.",
        "I cannot say whether it was {0}.",
        "{0} is wrong.",
        "Was it {0}?",
        "Sure. Was the {1} {0}? Please tell me.",
        "It: {0}\n\nNo, I lied, it was something else?",
        "It was {0}. Or the {2}? Or 7420? Or 5299?",
        "It was {0}. Or was it?",
        "It was {0}. Was it?",
        "The {1} was {0} or 1234.",
        "The {1} was {0} plus one.",
        "The {1} was 1{0}.",
        "The {1} was without {0}.",
        "It was one less than {0}.",
        "It is above {0}.",
        "It was exactly {0} more.",
        "I'm free of {0} as of now.",
        "It is further from {0}, one of more.",
        "Was it {0}.",
        "Had it been {0}, I can tell.",
        "Please tell me more on {0}.",
        "I can tell you it is out of {0}.",
        "The {1} was {0} above.",
        "The {1} was over {0}.",
        "The {1} was -{0}.",
        "The {1} was ~{0}.",
        "The {1} was #{0}, as it was false.",
        "Es war nicht {0}.",
        "The {2} was {0}.",
        "The {1} and the {2} were {0}.",
        "{0} was not the {1}.",
        "{0} wasn't the {1}.",
        "{0} was never the {1}.",
        "Not {0} was the {1}.",
        "{0} or 7420 was the {1}.",
        "7420 or {0} was the {1}.",
        "{0} and 7420 were the {1}.",
        "{0} was the {2}.",
        "{0} was the {1} plus one.",
        "{0} was the {1}? Perhaps.",
        "Was {0} the {1}?",
        "-{0} was the {1}.",
        "Perhaps {0} was the {1}.",
        "If {0} was the {1}, let me know.",
        "The {1} was **not** {0}.",
        "It was *not* `{0}`.",
        "The {1} was **{0} or 7420**.",
        "The {1} was {0} * {0}.",
        "The {1} was {0}*{0}*.",
        "The {1} was 1*{0}*.",
        "The {1} was 1_{0}.",
        "The {1} was -**{0}**.",
        "The {1} was **-{0}**.",
        "The {1} was ~~{0}~~.",
        "The {1} was **{0}",
        "According to the observation, the {1} was not {0}.",
        "According to no observation, the {1} was {0}.",
        "According to the observation, {0} was not the {1}.",
    ],
)
def test_a_reply_that_denies_hedges_or_mixes_up_the_fact_earns_nothing(evasion: str) -> None:
    env = ToolsEnv(difficulty={"no_call": 1.0}, preset="paper")
    for task in (env.task(i) for i in range(10)):
        asked = re.search(r"What was the (.+)\?", task.dialogue)[1]  # type: ignore[index]
        other = next(text for text in task.avoid if not text.isdigit())
        assert score(task, write_attempt([], evasion.format(task.mention[0], asked, other))) == ZEROS


@pytest.mark.parametrize(
    "reply",
    [
        "The {1} was {0}.",
        "Your {1} is {0}. Is there anything else that I could do?",
        "It was {0}, as the result above shows.",
        "What was the {1}? It was {0}. Can I help you with something else?",
        "It was {0}. Is there anything else you need?",
        "You asked for the {1}: {0}.",
        "Sure! That’s {0}.",
        "According to the conversation, the requested {1} is {0}. Happy to help!",
        "Here is the {1} you asked for: {0}. Let me know if you need anything else.",
        "The {1} returned by the tool was {0}.",
        "According to the observation, the {1} was {0}.",
        "The {1} shown in the observation above was {0}.",
        "{0} was the {1}.",
        "{0} is your {1}. Anything else?",
        "According to the tool, {0} was the {1}.",
        "{0} was the {1} you asked for.",
        "The {1} was **{0}**.",
        "The {1} was `{0}`.",
        "It was _{0}_.",
        "**The {1} was {0}.**",
        "The **{1}** was ***{0}***.",
        "The *{1}* was **`{0}`**.",
        "*{0}* was the {1}, as the observation states. Is there anything else?",
    ],
)
def test_a_plain_statement_of_the_fact_earns_everything(reply: str) -> None:
    env = ToolsEnv(difficulty={"no_call": 1.0}, preset="paper")
    for task in (env.task(i) for i in range(10)):
        asked = re.search(r"What was the (.+)\?", task.dialogue)[1]  # type: ignore[index]
        assert score(task, write_attempt([], reply.format(task.mention[0], asked))) == ONES


@pytest.mark.parametrize(
    "hostile",
    [
        "{0} was the {1} from the tool above ",
        "{0} was the {1} you asked for ",
        "It was {0} ",
        "According to the observation, the {1} was {0}. ",
        "{0} ",
        "*{0}* ",
        "**`{0} ",
        "_*`",
        "{0} was the {1}, as in the tool, ",
    ],
)
def test_a_long_hostile_reply_is_read_in_a_moment(hostile: str) -> None:
    task = ToolsEnv(difficulty={"no_call": 1.0}, preset="paper").task(0)
    asked = re.search(r"What was the (.+)\?", task.dialogue)[1]  # type: ignore[index]
    text = hostile.format(task.mention[0], asked) * 5000 + f" {task.mention[0]} not"
    start = time.process_time()
    assert not is_real_reply(task, text)
    assert time.process_time() - start < 5


def test_a_reply_may_quote_what_the_good_reply_quotes() -> None:
    quoted = "Nothing else was left in the whole of the shop."
    task = ToolsTask(instructions="None.", dialogue=f"<obs> {quoted} </obs>", reply=quoted)
    assert score(task, write_attempt([], quoted)) == ONES


# --- generated tasks ---


def test_gold_attempts_score_all_ones_and_can_be_found_in_the_prompt() -> None:
    env = ToolsEnv(preset="paper")
    replies = 0
    for task in (env.task(i) for i in range(200)):
        assert [point.vector for point in env.front(task)] == [(1.0,) * 4]
        prompt = env.prompt(task, 1)
        for call in task.calls:
            assert f"Name: {call.name}\n" in prompt
            for key, value in call.parameters.items():
                assert f'"{key}": {{' in prompt
                parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
                assert all(isinstance(part, bool) or str(part) in task.dialogue for part in parts)
        replies += task.reply is not None
        assert all(text in task.dialogue for text in (*task.mention, *task.avoid))
    assert 15 <= replies <= 50


def test_knobs_do_what_they_say() -> None:
    knobs = {"requests": (4, 4), "no_call": 0.0, "distractors": (0, 0), "siblings": 0.0, "repeats": 1.0}
    env = ToolsEnv(preset="paper", difficulty=knobs)
    tasks = [env.task(i) for i in range(10)]
    assert all(len(task.calls) == 4 for task in tasks)
    assert all(
        len({call.name for call in task.calls}) == 3 == task.instructions.count("\nParameters: ") for task in tasks
    )
    assert all(task.reply for task in (ToolsEnv(difficulty={"no_call": 1.0}, preset="paper").task(i) for i in range(5)))


# --- conflict preset ---


def subsets_scored(env: ToolsEnv, task: ToolsTask) -> np.ndarray[Any, Any]:
    """The vectors of all subsets of right calls to all tools, through the reader and the scorer."""
    assert task.market is not None
    every = [(offer.tool, request.arguments) for request in task.market.requests for offer in request.offers]
    attempts = [f"<answer>{write_attempt(chosen)}</answer>" for n in range(1, 9) for chosen in combinations(every, n)]
    return env.score_batch([task] * len(attempts), attempts).rewards[:, 0]


def test_the_front_is_what_trying_all_sets_of_calls_finds() -> None:
    env = ToolsEnv(preset="conflict")
    for task in (env.task(i) for i in range(12)):
        scored = {tuple(row) for row in subsets_scored(env, task).tolist()}
        best = {a for a in scored if not any(b != a and all(x >= y for x, y in zip(b, a, strict=True)) for b in scored)}
        front = env.front(task)
        assert {tuple(np.float32(point.vector).tolist()) for point in front} == best
        assert len(front) == len(best)
        for point in front:
            assert score(task, point.answer, env) == pytest.approx(point.vector)


def test_an_attempt_over_budget_or_with_a_strange_tool_is_worth_nothing() -> None:
    env = ToolsEnv(preset="conflict")
    task = env.task(1)
    assert task.market is not None
    right = [(request.offers[0].tool, request.arguments) for request in task.market.requests]
    answer = env.front(task)[0].answer
    assert max(score(task, answer, env)) > 0
    assert score(task, write_attempt(right), env) == ZEROS
    assert score(task, write_attempt([*calls_of(answer), ("strange", {})]), env) == ZEROS
    assert score(task, answer.replace("<think>", ""), env) == ZEROS
    wrong = [(name, {**arguments, next(iter(arguments)): "wrong"}) for name, arguments in calls_of(answer)]
    assert score(task, write_attempt(wrong), env) == ZEROS


def test_conflict_mode_needs_exactly_right_arguments() -> None:
    env = ToolsEnv(preset="conflict")
    checked = 0
    for task in (env.task(i) for i in range(30)):
        for name, arguments in calls_of(env.front(task)[0].answer):
            for key, value in arguments.items():
                if isinstance(value, str) and re.search(r"\W", value):
                    parts = re.split(r"(\W)", value)
                    permuted = "".join(parts[::-1])
                    assert max(score(task, write_attempt([(name, arguments)]), env)) > 0
                    changed = score(task, write_attempt([(name, {**arguments, key: permuted})]), env)
                    assert permuted == value or changed == ZEROS
                    checked += 1
    assert checked >= 20


def test_an_attempt_needs_the_form_that_the_prompt_states() -> None:
    env = ToolsEnv(preset="conflict")
    form = (
        "Then make all your calls in one <tool_call>, one JSON object of the form above per line; one <response> may "
        "follow. An attempt in any other form scores nothing, such as one with a second <tool_call> or with text "
        "outside these tags."
    )
    wordings = set()
    for index in range(12):
        task = env.task(index)
        assert form in env.prompt(task, 1)
        assert form in env.prompt(task, 3)
        wordings.add(env.prompt(task, 1).rsplit("\n\n", 1)[1])
        calls = calls_of(env.front(task)[0].answer)
        right = write_attempt(calls)
        earned = score(task, right, env)
        assert max(earned) > 0
        assert score(task, write_attempt(calls, "Done."), env) == earned
        for other in (
            f"{right}\nDone.",
            f"Sure. {right}",
            right.replace("<tool_call>", "<tool_call>\nHere:"),
            right + write_attempt(calls[:1]).partition("</think>")[2],
            write_attempt(calls[:1]) + write_attempt(calls[1:] or calls).partition("</think>")[2],
        ):
            assert score(task, other, env) == ZEROS
    assert len(wordings) == 3


def test_lists_need_the_order_that_the_prompt_asks_for() -> None:
    env = ToolsEnv(preset="conflict")
    checked = 0
    for task in (env.task(index) for index in range(20)):
        assert task.market is not None
        assert "(lists in the order in which the user states them)" in env.prompt(task, 1)
        for request in task.market.requests:
            for key, value in request.arguments.items():
                if isinstance(value, list):
                    # The gold order is that of the request.
                    assert sorted(value, key=task.dialogue.index) == value
                    call = (request.offers[1].tool, request.arguments)
                    turned = (call[0], {**request.arguments, key: value[::-1]})
                    assert max(score(task, write_attempt([call]), env)) > 0
                    assert score(task, write_attempt([turned]), env) == ZEROS
                    checked += 1
    assert checked >= 5


def test_a_market_without_money_has_a_front_of_nothing() -> None:
    env = ToolsEnv(preset="conflict")
    raw = env.task(0).model_dump(mode="json")
    raw["market"]["budget"] = 1
    for request in raw["market"]["requests"]:
        for offer in request["offers"]:
            offer["price"] = 2
    assert [point.vector for point in env.front(ToolsTask.model_validate(raw))] == [(0.0,) * 4]


def test_demonstrations_are_attempts_of_the_front() -> None:
    for preset in ("paper", "conflict"):
        env = ToolsEnv(preset=preset, num_answers=3)
        task = env.task(2)
        answers = env.demonstrations(task, np.random.default_rng(0), 3)
        front = {point.answer for point in env.front(task)}
        if preset == "conflict":
            assert set(answers) <= front
        else:
            assert answers[0] in front
            assert not {*answers[1:]} & front
        assert len(set(answers)) == 3


# --- no reward for tricks ---


def test_echoes_stuffing_and_lists_earn_nothing_or_what_the_definition_says() -> None:
    """An honest empty attempt (thinking and an empty response) earns 0, and so does every trick but these:

    a well-formed call to no listed tool earns its format, where calls are wanted (0.25 of the scalar); a call to
    every listed tool earns besides the F1 of the names, 2·wanted/(wanted + listed), and no more.
    """
    env = ToolsEnv(preset="paper", difficulty={"distractors": (3, 3), "siblings": 1.0})
    for task in (env.task(i) for i in range(60)):
        prompt = env.prompt(task, 1)
        names = [line.split(": ", 1)[1] for line in task.instructions.split("\n") if ". Name: " in line]
        worthless = [
            "<think></think><response></response>",
            prompt,
            f"<think>{prompt}</think>",
            f"<think></think><response>{prompt}</response>",
            f"<think></think><response>{task.dialogue}</response>",
            "<think></think>" * 50 + "<tool_call></tool_call>" * 50 + "<response></response>" * 50,
            "<think></think><tool_call>" * 20 + "</tool_call><response>" * 20,
        ]
        for trick in worthless:
            assert score(task, trick) == ZEROS, trick[:60]
        assert env.score_batch([task], [prompt]).rewards.max() == 0
        everything = write_attempt([(name, {}) for name in names])
        anything = write_attempt([("anything", {})])
        if task.reply is not None:
            assert score(task, everything) == score(task, anything) == ZEROS
            assert score(task, write_attempt([], " ".join(dict.fromkeys(task.dialogue.split())))) == ZEROS
            assert score(task, write_attempt([], "I looked it up: " + ", ".join([*task.mention, *task.avoid]))) == ZEROS
        else:
            tools = len({call.name for call in task.calls})
            f1 = 2 * tools / (len(task.calls) + len(names))
            assert score(task, everything) == pytest.approx([1.0, f1, 0.0, 0.0])
            assert score(task, anything) == [1.0, 0.0, 0.0, 0.0]


def test_tricks_earn_nothing_in_conflict_mode() -> None:
    env = ToolsEnv(preset="conflict")
    for task in (env.task(i) for i in range(10)):
        assert task.market is not None
        names = list(task.market.prices)
        prompt = env.prompt(task, 1)
        tricks = [prompt, f"<think></think><response>{prompt}</response>", write_attempt([], "I call nothing at all.")]
        tricks += [write_attempt([(name, {}) for name in names]), write_attempt([(names[0], {})])]
        for trick in tricks:
            assert score(task, trick, env) == ZEROS


# --- the environment ---


def test_own_objectives_have_no_inherited_front() -> None:
    class FrugalTools(ToolsEnv):
        objectives = (
            *ToolsEnv(preset="paper").objectives,
            Objective("few", "Few calls", lambda outcome: 1 / (1 + outcome.calls)),
        )

    env = FrugalTools(preset="paper")
    assert score(call_task(BOOK), write_attempt([BOOK]), env) == [*ONES, 0.5]
    with pytest.raises(UnknownFront, match="objective 'few' of FrugalTools"):
        env.front(env.task(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difficulty": {"request": 3}}, "difficulty request=3.*the knobs are requests, distractors"),
        ({"difficulty": {"requests": (3, 2)}}, r"requests=.*two ascending numbers from 1 to 8, got \(3, 2\)"),
        ({"difficulty": {"no_call": 2}}, "less than or equal to 1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ToolsEnv(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calls": []}, "exactly one of calls, reply and market"),
        ({"reply": "Well."}, "exactly one of calls, reply and market"),
        ({"calls": [], "reply": " "}, "reply is empty"),
        ({"calls": [{"name": "", "parameters": {}}]}, "at least 1 character"),
        ({"calls": [{"name": "a", "parameters": {"x": float("inf")}}]}, "not JSON compliant"),
        ({"dialogue": ""}, "at least 1 character"),
    ],
)
def test_bad_tasks_are_named(change: dict[str, Any], message: str) -> None:
    raw = {**call_task(BOOK).model_dump(mode="json"), **change}
    with pytest.raises(ValueError, match=message):
        ToolsEnv(preset="paper").reset(options={"task": raw})


def test_a_task_of_the_other_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="make the environment with preset='conflict'"):
        ToolsEnv(preset="paper").reset(options={"task": ToolsEnv(preset="conflict").task(0)})
    with pytest.raises(ValueError, match="make the environment with preset='paper'"):
        ToolsEnv(preset="conflict").score_batch([call_task(BOOK)], [f"<answer>{write_attempt([BOOK])}</answer>"])
