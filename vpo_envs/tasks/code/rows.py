"""Read rows of published programming data sets: LiveCodeBench, DeepCoder and MBPP.

The schema is recognised by its fields. A row is only data: a pickle is read without an unpickler, and
assertions are read as syntax, never run.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from pickletools import genops
from typing import Any

from envs_data.parsing import parse_json
from envs_data.readers import BadRow
from vpo_envs.sandbox import Kind
from vpo_envs.tasks.code.assertions import read_assertion, signature
from vpo_envs.tasks.code.task import MAX_TEST_BYTES, MAX_TESTS, CodeTask, CodeTest, spread

MAX_UNPACKED = 1 << 29
"""Maximum size in bytes of an unpacked field."""


def read_code_row(raw: Mapping[str, Any]) -> CodeTask:
    """Return the problem that a row holds."""
    for field, read in (("question_content", _livecodebench), ("test_list", _mbpp), ("problem", _deepcoder)):
        if field in raw:
            return read(raw)
    if "statement" in raw:
        return CodeTask.model_validate(dict(raw))
    raise BadRow(
        "",
        "unknown schema: a row of LiveCodeBench has 'question_content', of DeepCoder 'problem', of MBPP 'test_list', "
        f"of this project 'statement'; got {', '.join(map(repr, list(raw)[:8])) or 'no field'}",
    )


def _text(raw: Mapping[str, Any], field: str, default: str | None = None) -> str:
    value = raw.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise BadRow(field, f"must be text, got {type(value).__name__}")
    return value


def _json(text: str, field: str) -> Any:
    try:
        return parse_json(text, any_length=True)
    except ValueError as error:
        raise BadRow(field, f"not JSON ({error})") from None


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRow(field, f"must be a list of tests, got {type(value).__name__}")
    return value


def unpack_text(field: str, packed: str) -> str:
    """Return the text that a field holds as base64 of zlib of a pickle."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise BadRow(field, f"neither JSON nor base64 of zlib ({error})") from None
    if unpacker.unconsumed_tail:
        raise BadRow(field, f"it unpacks to more than {MAX_UNPACKED} bytes")
    if not unpacker.eof:
        raise BadRow(field, "the compressed data is cut short")
    try:
        return _pickled_text(data)
    except Exception as error:  # a damaged pickle raises errors of many kinds
        reason = str(error) or type(error).__name__
        raise BadRow(field, f"the pickle in it is not one of plain text ({reason})") from None


_WITHOUT_MEANING = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
"""What a pickle of a text holds beside it."""
_TEXTS = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})


def _pickled_text(data: bytes) -> str:
    """Return the text that a pickle holds.

    The pickle is read as data, since an unpickler makes room for as many objects as a few bytes tell it to.
    """
    texts = []
    for operation, argument, _ in genops(data):
        if operation.name in _TEXTS:
            texts.append(argument)
        elif operation.name not in _WITHOUT_MEANING:
            raise ValueError(f"it holds {operation.name}, and only plain text is allowed")
    if len(texts) != 1:
        raise ValueError(f"it holds {len(texts)} texts; only one is allowed")
    return str(texts[0])


def _livecodebench(raw: Mapping[str, Any]) -> CodeTask:
    public = _json(_text(raw, "public_test_cases"), "public_test_cases")
    private_text = _text(raw, "private_test_cases", "[]")
    if not private_text.lstrip().startswith("["):
        private_text = unpack_text("private_test_cases", private_text.strip())
    private = _json(private_text, "private_test_cases")
    tests = [*_list(public, "public_test_cases"), *_list(private, "private_test_cases")]
    return _problem(raw, _text(raw, "question_content"), tests, "private_test_cases")


def _deepcoder(raw: Mapping[str, Any]) -> CodeTask:
    tests = raw.get("tests")
    if isinstance(tests, str):
        tests = _json(tests, "tests")
    entry = None
    if isinstance(tests, dict):
        entry = tests.get("fn_name")
        inputs, outputs = _list(tests.get("inputs"), "tests"), _list(tests.get("outputs"), "tests")
        if len(inputs) != len(outputs):
            raise BadRow("tests", f"{len(inputs)} inputs but {len(outputs)} outputs")
        tests = [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]
    return _problem(raw, _text(raw, "problem"), _list(tests, "tests"), "tests", entry)


def _problem(raw: Mapping[str, Any], statement: str, tests: list[Any], field: str, entry: object = None) -> CodeTask:
    """Return the problem of a row of LiveCodeBench or DeepCoder from its tests ``{input, output, testtype}``.

    ``entry`` is the function that the tests call; if ``None``, the metadata of the row or of a test names it. Errors in
    a test name ``field``.
    """
    metadata = raw.get("metadata")
    if isinstance(metadata, str) and metadata.strip():
        metadata = _json(metadata, "metadata")
    if isinstance(metadata, Mapping):
        entry = entry or metadata.get("func_name")
    read: list[CodeTest] = []
    kinds: set[Kind] = set()
    for number, test in enumerate(tests, start=1):
        where = f"{field}.{number}"
        if not isinstance(test, Mapping):
            raise BadRow(where, f"a test is an object, got {type(test).__name__}")
        of_test = test.get("metadata")
        entry = entry or test.get("fn_name") or (of_test.get("func_name") if isinstance(of_test, Mapping) else None)
        style = test.get("testtype") or test.get("type") or ("functional" if entry else "stdin")
        if style not in ("stdin", "stdin_stdout", "functional", "function_call"):
            raise BadRow(where, f"unknown kind of test {style!r}: stdin or functional")
        kind: Kind = "stdin" if style.startswith("stdin") else "call"
        kinds.add(kind)
        read.append((_program_test if kind == "stdin" else _call_test)(test.get("input"), test.get("output"), where))
    if not read:
        raise BadRow(field, "the problem has no tests")
    if len(kinds) > 1:
        raise BadRow(field, "the problem mixes programs and functions")
    if "call" in kinds and not (isinstance(entry, str) and entry.isidentifier()):
        raise BadRow("metadata", f"functional tests need the name of a function, got {entry!r}")
    small = [test for test in read if max(len(test.input.encode()), len(test.output.encode())) <= MAX_TEST_BYTES]
    if not small:
        raise BadRow(field, f"every test is larger than {MAX_TEST_BYTES} bytes")
    kept = spread([len(test.input.encode()) for test in small], MAX_TESTS)
    kind = kinds.pop()
    return CodeTask(
        title=_text(raw, "question_title", ""),
        statement=statement,
        kind=kind,
        tests=tuple(small[i] for i in kept),
        entry=str(entry) if kind == "call" else "",
        starter_code=_text(raw, "starter_code", ""),
        difficulty=_text(raw, "difficulty", ""),
    )


def _program_test(given: object, wanted: object, where: str) -> CodeTest:
    texts = ["\n".join(map(str, part)) if isinstance(part, list) else part for part in (given, wanted)]
    if not (isinstance(texts[0], str) and isinstance(texts[1], str)):
        raise BadRow(where, "input and output of a program must be text")
    return CodeTest(input=texts[0], output=texts[1])


def _call_test(given: object, wanted: object, where: str) -> CodeTest:
    """Return a test of a function, given as JSON text with one argument per line, or as the values themselves."""
    if isinstance(given, str):
        arguments = [_json(line, where) for line in given.split("\n") if line.strip()]
    elif isinstance(given, list):
        arguments = given
    else:
        raise BadRow(where, f"the input of a function must be text or a list, got {type(given).__name__}")
    right = [_json(wanted, where) if isinstance(wanted, str) and isinstance(given, str) else wanted]
    if isinstance(wanted, list) and len(wanted) == 1:
        # APPS mostly, but not always, wraps a value in a list. Its judge takes both.
        right = [wanted[0], wanted]
    return CodeTest(input=json.dumps(arguments), output="\n".join(map(json.dumps, right)))


def _mbpp(raw: Mapping[str, Any]) -> CodeTask:
    statement = _text(raw, "text" if "text" in raw else "prompt")
    code = _text(raw, "code")
    tests: list[CodeTest] = []
    for field in ("test_list", "challenge_test_list"):
        for number, line in enumerate(_list(raw.get(field) or [], field), start=1):
            if not isinstance(line, str):
                raise BadRow(f"{field}.{number}", f"must be text, got {type(line).__name__}")
            try:
                call, expected = read_assertion(line)
            except ValueError as error:
                raise BadRow(f"{field}.{number}", str(error)) from None
            tests.append(CodeTest(input=call, output=expected))
    if not tests:
        raise BadRow("test_list", "the problem has no tests")
    imports = raw.get("test_imports") or []
    setup = "\n".join([*map(str, _list(imports, "test_imports")), _text(raw, "test_setup_code", "")]).strip()
    return CodeTask(
        title=f"MBPP {raw['task_id']}" if "task_id" in raw else "",
        statement=statement,
        kind="expression",
        tests=tuple(tests[:MAX_TESTS]),
        shown=1,
        starter_code=signature(code, tests[0].input),
        setup=setup.replace("\r\n", "\n"),
        solution=code.replace("\r\n", "\n"),
    )
