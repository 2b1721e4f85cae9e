"""Strict JSON and TOML: one sentence for whatever is wrong, and no value that later code would fail on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory import run_within

from envs_data import parsing
from envs_data.parsing import MOST_LEVELS, parse_json, parse_toml, read_json, read_object, read_toml

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(JSON)
def test_strict_json_reads_what_json_writes(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[NaN]", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("1e400", "the number 1e400 is too large"),
        ("-1" + 400 * "0", "of 402 characters, is too large"),
        (5000 * "1", "of 5000 characters, is too large"),
        (100_000 * "[", "nested too deeply"),
        (100_000 * '{"a":', "nested too deeply"),
        ((MOST_LEVELS + 1) * "[" + (MOST_LEVELS + 1) * "]", "nested more than 100 levels deep"),
        ((MOST_LEVELS + 1) * '{"a":' + "1" + (MOST_LEVELS + 1) * "}", "nested more than 100 levels deep"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given twice"),
        ("", "Expecting value"),
        (b"\xff", "not UTF-8 text"),
    ],
)
def test_what_is_wrong_with_json_is_one_sentence(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_json(text, unique=True)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = nan", "too large or not finite"),
        ("a = -inf", "too large or not finite"),
        ("a = 1e400", "too large or not finite"),
        ("a = 1" + 400 * "0", "is too large"),
        ("a = 0x1" + 4000 * "0", "is too large"),
        ("a = " + 5000 * "[", "nested too deeply"),
        ("a = " + 5000 * "{a = ", "nested too deeply"),
        ("a" + 200 * ".a" + " = 1", "nested more than 100 levels deep"),
        ("[" + 200 * "a." + "a]", "nested more than 100 levels deep"),
        ("a = 1979-05-27", "is a date: write it as text"),
        ("a = [07:32:00]", "is a time: write it as text"),
    ],
)
def test_what_is_wrong_with_toml_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_toml(text)
    assert len(str(caught.value)) < 150


def test_the_deepest_nesting_is_read() -> None:
    deepest = MOST_LEVELS * "[" + MOST_LEVELS * "]"
    assert json.dumps(parse_json(deepest)) == deepest
    assert parse_toml("a = " + deepest[1:-1])
    inner: Any = parse_toml("a" + (MOST_LEVELS - 1) * ".a" + " = 1")
    for _ in range(MOST_LEVELS):
        inner = inner["a"]
    assert inner == 1


def test_numbers_of_any_length_are_read_where_they_are_asked_for() -> None:
    assert parse_json("1" + 400 * "0", any_length=True) == 10**400
    assert parse_json("1" + 300 * "0") == 10**300
    assert parse_json("[0.0, Infinity, 1e400]", any_float=True) == [0, float("inf"), float("inf")]


def test_values_are_counted_outside_of_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_SHORT", 0)
    assert parse_json('["[[[,,,{{{:::", "\\",,,", "é,,,"]', most_values=10)
    for text in ("[[],[],[],[]]", '{"a":1,"b":2,"c":3}', "[" + 9 * '"a",' + "1]"):
        with pytest.raises(ValueError, match="more than 5 values"):
            parse_json(text, most_values=5)
    assert parse_json("[[],[],[],[]]", most_values=None)


def test_values_are_counted_before_there_is_room_for_them() -> None:
    code = """for text in ("[" + (1 << 22) * "[]," + "[]]", (3 << 20) * '{"a":'):
        try:
            parse_json(text)
        except ValueError as error:
            print(error)"""
    printed, grown = run_within(64, "from envs_data.parsing import parse_json", code)
    assert printed.splitlines() == 2 * ["it holds more than 4,194,304 values"]
    assert grown < 40


def test_files_are_named_that_cannot_be_read(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.json", tmp_path / "folder.json"
    folder.mkdir()
    file.write_bytes(b'{"a": "\xff"}')
    for path, reason in ((file, "not UTF-8"), (folder, "Is a directory"), (tmp_path / "none.json", "No such file")):
        for read in (read_json, read_toml, read_object):
            with pytest.raises(ValueError, match=rf"cannot read '.*{path.name}': {reason}"):
                read(path)
    file.write_text("[1]")
    with pytest.raises(ValueError, match=r"a\.json' must hold a JSON object, not a list"):
        read_object(file)
    file.write_text("[1")
    with pytest.raises(ValueError, match=r"a\.json' is not valid json: Expecting"):
        read_json(file)
