"""Plain reward functions as objectives: how they are found, called, and given prompts with good answers."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs.checking.subject import Case, Floats, Subject, told
from vpo_envs.registration import import_modules

Function = Callable[..., Any]
Row = dict[str, Any]
BATCHED = "completions"
"""A function with this parameter takes lists and returns a list, as in TRL."""


class FunctionRewards(Subject):
    """The rewards of plain functions, each of which returns a number or a mapping of names to numbers.

    A function with a parameter ``completions`` is called as TRL calls it: with lists of prompts, completions and the
    other fields of the rows, for a list of results. Any other is called for each response, with those of its parameters
    that are ``prompt``, ``response`` (or ``completion``) or a field of the row.

    Args:
        functions: Functions by name.
        rows: A ``prompt`` and an ``answer`` (or a whole good ``response``) each, and fields for the functions.
        bounds: The lowest and highest score that the functions declare.

    Raises:
        ValueError: A function needs something that the rows do not have, or it fails for a good answer.
    """

    def __init__(self, functions: Mapping[str, Function], rows: Sequence[Row], bounds: tuple[float, float]) -> None:
        super().__init__()
        self.bounds = bounds
        self._functions, self._rows = functions, rows
        for name, function in functions.items():
            _check_parameters(name, function, rows[0])
        self._parts = {name: self._objectives(name, function) for name, function in functions.items()}
        """The objectives of each function that returns a mapping; none for one that returns a number."""
        self.names = tuple(part for name, parts in self._parts.items() for part in parts or (name,))
        weights = np.full(len(self.names), 1 / len(self.names))
        self.cases = [Case(row["prompt"], (_good(row),), (_good(row),), weights, None) for row in rows]

    def respond(self, answer: str) -> str:
        """Return the answer itself."""
        return answer

    def _objectives(self, name: str, function: Function) -> tuple[str, ...]:
        row = self._rows[0]
        try:
            (found,) = _call(function, [row], [_good(row)])
        except Exception as error:
            raise ValueError(f"{name} raises {told(error)}, for the good answer of row 1") from None
        return tuple(f"{name}.{part}" for part in found) if isinstance(found, Mapping) else ()

    def _score(self, cases: Sequence[int], responses: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        rows = [self._rows[case] for case in cases]
        columns = []
        for name, function in self._functions.items():
            parts = self._parts[name]
            try:
                results = _call(function, rows, responses)
            except Exception:
                # One by one, to find those that fail.
                results = [self._try(name, function, row, text) for row, text in zip(rows, responses, strict=True)]
            for part in parts or (name,):
                key = part.removeprefix(f"{name}.")
                columns.append([self._number(name, one.get(key) if parts and one else one) for one in results])
        vectors = np.array(columns, dtype=np.float64).T.reshape(len(responses), len(self.names))
        return vectors, np.ones(len(responses), dtype=bool)

    def _try(self, name: str, function: Function, row: Row, response: str) -> Any:
        try:
            return _call(function, [row], [response])[0]
        except Exception as error:
            self.errors.setdefault(name, f"{told(error)}, for the response {response!r:.80}")
            return None

    def _number(self, name: str, value: Any) -> float:
        if value is None:
            return np.nan
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            self.errors.setdefault(name, f"a result that is not a finite number: {value!r:.80}")
            return np.nan
        return number


def load_functions(target: str) -> dict[str, Function]:
    """Import ``MODULE:NAME``, a function or a list or mapping of functions, and return them by name.

    Several names may follow the colon, separated by commas.

    Raises:
        ValueError: The module cannot be imported, or has no such functions.
    """
    module, colon, names = target.rpartition(":")
    if not colon or not module or not names:
        raise ValueError(f"reward functions are named as MODULE:NAME or FILE.py:NAME, got {target!r}")
    import_modules([module])
    path = str(Path(module).expanduser().resolve())
    files = [found for found in list(sys.modules.values()) if getattr(found, "__file__", None) == path]
    source = files[0] if module.endswith(".py") else importlib.import_module(module)
    functions: dict[str, Function] = {}
    for name in names.split(","):
        found = getattr(source, name, None)
        for given, function in found.items() if isinstance(found, Mapping) else [("", one) for one in _listed(found)]:
            if not callable(function):
                raise ValueError(f"{name!r} of {module!r} is neither a function nor a list or mapping of functions")
            own = str(given) or getattr(function, "__name__", type(function).__name__)
            if own in functions:
                raise ValueError(f"two reward functions have the name {own!r}: give a mapping of names to functions")
            functions[own] = function
    return functions


def read_rows(path: Path) -> list[Row]:
    """Read the JSON Lines of prompts and answers; a chat as prompt becomes the text of its last message.

    Raises:
        ValueError: The file cannot be read, a line is no such row, or there are fewer than two.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"line {number} of {str(path)!r}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"{where} is not JSON: {line!r:.60}") from None
        if not isinstance(row, dict) or not ({"answer", "response"} & set(row)) or "prompt" not in row:
            raise ValueError(f'{where} must be like {{"prompt": "2 + 2", "answer": "4"}}, got {line!r:.60}')
        if isinstance(row["prompt"], list) and row["prompt"] and isinstance(row["prompt"][-1], dict):
            row["prompt"] = row["prompt"][-1].get("content")
        if not isinstance(row["prompt"], str):
            raise ValueError(f"the prompt in {where} is neither a text nor a chat")
        rows.append(row)
    if len(rows) < 2:
        raise ValueError(f"{str(path)!r} needs two rows or more, since answers are compared across prompts")
    return rows


def _listed(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list | tuple) and found else [found]


def _good(row: Row) -> str:
    """Return the good response of a row."""
    return str(row.get("response", row.get("answer")))


def _parameters(function: Function) -> tuple[list[inspect.Parameter], bool]:
    """Return the named parameters of a function, and whether it takes any others by name."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [], True
    open_ended = any(one.kind is one.VAR_KEYWORD for one in found)
    return [one for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)], open_ended


def _available(row: Row, response: str) -> Row:
    return {**row, "prompt": row["prompt"], "response": response, "completion": response}


def _check_parameters(name: str, function: Function, row: Row) -> None:
    parameters, _ = _parameters(function)
    batched = any(one.name == BATCHED for one in parameters)
    known = {*row, "prompts", BATCHED} if batched else set(_available(row, ""))
    for one in parameters:
        if one.name not in known and one.default is one.empty:
            usual = f"prompts, {BATCHED}" if batched else "prompt, response"
            raise ValueError(
                f"{name} needs {one.name!r}, which is neither {usual} nor a field of the rows ({', '.join(row)})"
            )


def _call(function: Function, rows: Sequence[Row], responses: Sequence[str]) -> list[Any]:
    """Return the results of a function for responses to rows."""
    parameters, open_ended = _parameters(function)
    names = {one.name for one in parameters}
    if BATCHED in names:
        fields = {name: [row.get(name) for row in rows] for name in rows[0] if name != "prompt"} if rows else {}
        values = {**fields, "prompts": [row["prompt"] for row in rows], BATCHED: list(responses)}
        results = list(function(**{name: value for name, value in values.items() if open_ended or name in names}))
        if len(results) != len(responses):
            raise ValueError(f"{len(results)} results for {len(responses)} completions")
        return results
    calls = [_available(row, text) for row, text in zip(rows, responses, strict=True)]
    return [function(**{name: value for name, value in one.items() if open_ended or name in names}) for one in calls]
