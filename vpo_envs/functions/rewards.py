"""Plain reward functions: how they are found and called, and the rows of prompts that they score answers to."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_envs.common.imports import asked_module, import_modules
from vpo_envs.common.wording import counted, did_you_mean, told
from vpo_envs.text import as_messages, as_text

Range = tuple[float, float]
"""The lowest and the highest reward."""
Function = Callable[..., Any]
Row = dict[str, Any]
Encode = Callable[[Sequence[str]], list[list[int]]]

LAMBDA = "<lambda>"
"""What Python calls a function without a name."""
WHY_ABSENT = {
    "completion_ids": "a model's tokenizer makes, and no model is loaded: it exists while a model is trained or "
    "evaluated",
    "trainer_state": "belongs to a training run, and there is none here",
    **dict.fromkeys(
        ("log_extra", "log_metric", "environments"), "TRL passes and an environment does not have: return the reward"
    ),
}
"""What TRL passes to a function beside texts and fields, and why it may not be there, as the rest of a sentence."""


class Trainer(NamedTuple):
    """What is around an environment whose answers a model writes."""

    encode: Encode | None
    """Returns the token ids of texts; ``None`` without a tokenizer."""
    state: Callable[[], Any] | None
    """Returns the ``transformers.TrainerState``; ``None`` without a training."""


class Absent:
    """Placeholder for an argument that TRL passes and that is not there; an error once a function looks into it."""

    def __init__(self, name: str, note_read: Callable[[str], None]) -> None:
        self._name, self._note_read = name, note_read

    def _refuse(self, *_: Any) -> Any:
        self._note_read(self._name)
        raise ValueError(f"it reads {self._name!r}, which {WHY_ABSENT[self._name]}")

    __getitem__ = __iter__ = __len__ = __bool__ = __call__ = _refuse

    def __getattr__(self, attribute: str) -> Any:
        """Raise ValueError; of special methods, which Python asks for itself, AttributeError."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self._refuse()


BATCHED = "completions"
"""A function with this parameter takes lists and returns a list, as in TRL."""


class RewardFunctions:
    """Functions that score responses to rows, each by a number or by a mapping of names to numbers.

    A function with a parameter ``completions`` is called as TRL calls it: with lists of prompts, completions and the
    other fields of the rows, for a list of results. Where a prompt is a chat, it and the completion are messages. Any
    other function is called once for each response. It gets ``prompt`` (of a chat the text of the last message),
    ``response`` (or ``completion``) and fields of the row, as its parameters name them. A field that a function needs,
    and that only other rows have, is null.

    A function that is called as TRL calls it may also name ``completion_ids``, the token ids of the completions (of the
    answers alone, without a mark of their end), and ``trainer_state``, the ``transformers.TrainerState``. Where there
    is no tokenizer or no training, reading them is an error that says so.

    Args:
        functions: Functions by name.
        rows: The rows as the functions are given them, one or more. The good response of the first tells which of the
            functions return mappings.

    Raises:
        ValueError: A function needs something that no row has, or it fails for the good response.
    """

    def __init__(self, functions: Mapping[str, Function], rows: Sequence[Row]) -> None:
        fields = dict.fromkeys(field for row in rows for field in row)
        for name, function in functions.items():
            _check_parameters(name, function, fields)
        self.functions = functions
        self.trainer: Trainer | None = None
        """What the functions are given of a trainer; ``None`` until it is known what there is."""
        self.waiting: set[str] = set()
        """Functions that have read what a trainer may have, before it was known."""
        self._parts = {name: self._parts_of(name, function, rows[0]) for name, function in functions.items()}
        """The objectives of each function that returns a mapping; none for one that returns a number."""
        self.described = {
            part: (inspect.getdoc(functions[name]) or "").partition("\n")[0].rstrip(".")
            for name, parts in self._parts.items()
            for part in parts or (name,)
        }
        """Objectives by name: the first line of the function's docstring, empty without one."""
        self.names = tuple(self.described)

    def __call__(
        self, rows: Sequence[Row], responses: Sequence[str]
    ) -> tuple[NDArray[np.float64], list[tuple[int, str, str]]]:
        """Score responses.

        Returns:
            Numbers (n, d), NaN for what is not scored, and for each failure the number of the response, the name of the
            function, and what it gave or raised.
        """
        columns: list[list[float]] = []
        failures: list[tuple[int, str, str]] = []
        for name in self.functions:
            results, errors = self._results_of(name, rows, responses)
            failures += [(number, name, error) for number, error in errors.items()]
            parts = self._parts[name]
            keys: list[str | None] = [part.removeprefix(f"{name}.") for part in parts]
            for key in keys or [None]:
                rewards = [_reward(result, key) for result in results]
                columns.append([reward for reward, _ in rewards])
                failures += [(number, name, fault) for number, (_, fault) in enumerate(rewards) if fault]
        return np.array(columns, dtype=np.float64).T.reshape(len(responses), len(self.names)), failures

    def _results_of(self, name: str, rows: Sequence[Row], responses: Sequence[str]) -> tuple[list[Any], dict[int, str]]:
        """Return what a function gives, ``None`` where it fails, and the error by number of the response."""
        try:
            return self._call(name, rows, responses), {}
        except (Exception, SystemExit) as error:
            error_of_all = told(error)
        results: list[Any] = []
        errors: dict[int, str] = {}
        for number, (row, text) in enumerate(zip(rows, responses, strict=True)):
            try:
                results += self._call(name, [row], [text])
            except (Exception, SystemExit) as error:
                results.append(None)
                errors[number] = told(error)
        if errors:
            return results, errors
        # It fails only for several responses, such as by the length of its list.
        return [None] * len(rows), dict.fromkeys(range(len(rows)), error_of_all)

    def _call(self, name: str, rows: Sequence[Row], responses: Sequence[str]) -> list[Any]:
        """Return the results of a function for responses to rows."""
        function = self.functions[name]
        parameters, open_ended = _parameters(function)
        names = {parameter.name for parameter in parameters}
        needed = (parameter.name for parameter in parameters if parameter.default is parameter.empty)
        required = dict.fromkeys(name for name in needed if name not in WHY_ABSENT)
        rows = [{**required, **row} for row in rows]
        if BATCHED not in names:
            return _call_each(function, rows, responses, names, open_ended=open_ended)
        passed: dict[str, Any] = {
            absent: Absent(absent, partial(self._note_read, name)) for absent in WHY_ABSENT if absent in names
        }
        encode, state = self.trainer or Trainer(None, None)
        if encode is not None and (open_ended or "completion_ids" in names):
            passed["completion_ids"] = encode(responses)
        if state is not None and (open_ended or "trainer_state" in names):
            passed["trainer_state"] = state()
        return _call_batched(function, rows, responses, passed, names, open_ended=open_ended)

    def _note_read(self, function: str, absent: str) -> None:
        """Note that a function has read what is absent, if a trainer may have it."""
        if self.trainer is None and absent in ("completion_ids", "trainer_state"):
            self.waiting.add(function)

    def _parts_of(self, name: str, function: Function, row: Row) -> tuple[str, ...]:
        """Return the objectives of a function that returns a mapping; of one that waits for a trainer, none."""
        response = (*good_responses(row), as_text(row["prompt"]))[0]
        try:
            result, _ = self._call(name, [row] * 2, [response] * 2)
        except (Exception, SystemExit) as error:
            if name in self.waiting:
                return ()
            raise ValueError(f"{name} raises {told(error)}, for the good answer of row 1") from None
        if isinstance(result, Mapping):
            return tuple(f"{name}.{part}" for part in result)
        if result is not None and not np.isfinite(_number(result)):
            raise ValueError(f"{name} gives {_fault(result, None)}, for the good answer of row 1")
        return ()


def _reward(result: Any, key: str | None) -> tuple[float, str]:
    """Return the reward in a result, NaN for none, and what is wrong with it; empty if nothing is.

    Args:
        result: What a function gave for a response.
        key: The name of the reward in a result that is a mapping; ``None`` if it is a number.
    """
    lacks_key = key is not None and not (isinstance(result, Mapping) and key in result)
    value = result if key is None or lacks_key else result[key]
    reward = _number(value)
    if value is None or (np.isfinite(reward) and not lacks_key):
        return reward, ""
    return reward, _fault(value, key if lacks_key else None)


def objectives_sentence(described: Mapping[str, str]) -> str:
    """Return what a prompt for several answers says of objectives, from their descriptions by name."""
    return f"The objectives are {'; '.join(f'{name}: {text}' if text else name for name, text in described.items())}."


def load_functions(target: str) -> dict[str, Function]:
    """Import ``MODULE:NAME``, a function or a list or mapping of functions, and return them by name.

    Several names may follow the colon, separated by commas.

    Raises:
        ValueError: The module cannot be imported, or has no such functions.
    """
    import_modules([module_of(target)])
    return find_functions(target)


def find_functions(target: str) -> dict[str, Function]:
    """Return the functions that a target names, like :func:`load_functions`, but import nothing.

    Raises:
        ValueError: Nobody asked for the module, or it has no such functions.
    """
    module = module_of(target)
    source = asked_module(module)
    if source is None:
        raise ValueError(
            f"the rewards are functions of {module}, which runs only if you ask for it: add --import "
            f"{shlex.quote(module)}, or the place that it has moved to"
        )
    functions: dict[str, Function] = {}
    for name in target.rpartition(":")[2].split(","):
        value: Any = getattr(source, name, None)
        several = isinstance(value, Mapping) or (isinstance(value, list | tuple) and value)
        if getattr(value, "__name__", "") == LAMBDA:
            value, several = {name: value}, True
        for function_name, function in by_name(value if several else [value]).items():
            if not callable(function):
                hint = did_you_mean(name, [known for known, value in vars(source).items() if callable(value)])
                raise ValueError(
                    f"{name!r} of {module!r} is neither a function nor a list or mapping of functions"
                    + (f": {hint.strip()}" if hint else "")
                )
            if function_name in functions:
                raise ValueError(
                    f"two reward functions have the name {function_name!r}: give a mapping of names to functions"
                )
            functions[function_name] = function
    return functions


def by_name(functions: Mapping[str, Function] | Sequence[Function]) -> dict[str, Function]:
    """Return functions by their names; a lambda, which has none, is called ``reward``.

    Raises:
        ValueError: Two functions have the same name.
    """
    if isinstance(functions, Mapping):
        return {str(name): function for name, function in functions.items()}
    named: dict[str, Function] = {}
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        name = "reward" if name == LAMBDA else name
        if name in named:
            raise ValueError(f"two reward functions have the name {name!r}: give a mapping of names to functions")
        named[name] = function
    return named


def module_of(target: str) -> str:
    """Return the module of ``MODULE:NAME``; ValueError if it has another form."""
    module, colon, names = target.rpartition(":")
    if not colon or not module or not names:
        raise ValueError(f"reward functions are named as MODULE:NAME or FILE.py:NAME, got {target!r}")
    return module


def read_prompt_row(raw: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> Row:
    """Return a row of a file under the names that reward functions know; of messages, ``role`` and ``content`` stay.

    Values that JSON does not know become ones that it knows; see :func:`envs_data.readers.as_json`.

    Args:
        raw: The row.
        columns: The names of fields that are called differently in the file, such as ``{"prompt": "question"}``.

    Raises:
        BadRow: The row lacks a prompt or one of the columns.
    """
    from envs_data.readers import BadRow, as_json  # loads pydantic, which the registration of environments should not

    renamed = dict(columns or {})
    row = {name: value for name, value in raw.items() if name not in renamed.values()}
    for name, column in renamed.items():
        if column not in raw:
            raise BadRow(column, f"there is no such field: {did_you_mean(column, raw)}it has {', '.join(raw)}")
        row[name] = raw[column]
    if "prompt" not in row:
        raise BadRow(
            "",
            f"a row needs a field 'prompt', and this one has {', '.join(raw) or 'nothing'}: name the field with "
            "--columns prompt=NAME, in Python columns={'prompt': 'NAME'}",
        )
    prompt = row["prompt"]
    if isinstance(prompt, list) and prompt and all(isinstance(message, Mapping) for message in prompt):
        row["prompt"] = [_read_message(number, message) for number, message in enumerate(prompt, 1)]
        if row["prompt"][-1]["role"] == "assistant":
            raise BadRow("prompt", "its last message is the assistant's, so nothing is left to answer")
    elif not isinstance(prompt, str) or not prompt.strip():
        raise BadRow("prompt", "it is neither a text nor a chat, or empty")
    return {name: as_json(value) for name, value in row.items()}


def _read_message(number: int, message: Mapping[str, Any]) -> dict[str, str]:
    """Return a message of a chat, whose content is a text or parts that are texts."""
    from envs_data.readers import BadRow

    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        content = "".join(str(part["text"]) for part in content)
    if not isinstance(content, str) or not content.strip():
        raise BadRow("prompt", f"message {number} of the chat has no text, which is all that a model gets here")
    return {"role": str(message.get("role", "user")), "content": content}


def read_ranges(names: Sequence[str], given: Any) -> tuple[Range, ...]:
    """Return the range of each reward with one of these names, from one range for all of them or ranges by name.

    A reward whose name is left out has the range from 0 to 1.

    Raises:
        ValueError: A range of an unknown name, or one that is not two finite numbers, the lower one first.
    """
    by_name = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    if unknown := [name for name in by_name if name not in names]:
        raise ValueError(f"ranges name {unknown[0]!r}, which is no objective: they are {', '.join(names)}")
    return tuple(_read_range(by_name.get(name, (0.0, 1.0)), name) for name in names)


def _read_range(given: Any, name: str) -> Range:
    fits = isinstance(given, list | tuple) and len(given) == 2 and all(type(end) in (int, float) for end in given)
    if not fits or not -np.inf < given[0] < given[1] < np.inf:
        raise ValueError(
            f"the range of {name} must be two finite numbers, the lower one first, such as 0,1; got {given!r}"
        )
    return float(given[0]), float(given[1])


def good_responses(row: Row) -> tuple[str, ...]:
    """Return the responses of a row that should score well: ``responses``, or else ``response`` or ``answer``.

    Null and blank texts count as absent. If ``response`` or ``answer`` is a list of texts, which are names of the same
    thing, the first is returned.
    """
    several = row.get("responses")
    if isinstance(several, list) and (texts := [str(value) for value in several if not _is_absent(value)]):
        return tuple(texts)
    for name in ("response", "answer"):
        value = row.get(name)
        if isinstance(value, list) and (len(value) == 1 or any(isinstance(alias, str) for alias in value)):
            value = next((alias for alias in value if not _is_absent(alias)), None)
        if not _is_absent(value):
            return (str(value),)
    return ()


def _is_absent(value: Any) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _call_each(
    function: Function, rows: Sequence[Row], responses: Sequence[str], names: Container[str], *, open_ended: bool
) -> list[Any]:
    """Call a function once for each response, with the fields in ``names``; with all if it is ``open_ended``."""
    results = []
    for row, text in zip(rows, responses, strict=True):
        # Functions that take texts are given that of the last message.
        values = {**row, "prompt": as_messages(row["prompt"])[-1]["content"], "response": text, "completion": text}
        results.append(function(**{name: value for name, value in values.items() if open_ended or name in names}))
    return results


def _call_batched(
    function: Function,
    rows: Sequence[Row],
    responses: Sequence[str],
    passed: Mapping[str, Any],
    names: Container[str],
    *,
    open_ended: bool,
) -> list[Any]:
    """Call a function as TRL does, with the fields in ``names``; with all if it is ``open_ended``.

    ``passed`` is what comes from a trainer.
    """
    fields = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    columns = {name: [row.get(name) for row in rows] for name in fields}
    completions: list[Any] = list(responses)
    for number, row in enumerate(rows):
        if not isinstance(row["prompt"], str):
            completions[number] = [{"role": "assistant", "content": responses[number]}]
    values = {**passed, **columns, "prompts": [row["prompt"] for row in rows], BATCHED: completions}
    returned = function(**{name: value for name, value in values.items() if open_ended or name in names})
    results = list(returned) if isinstance(returned, Iterable) else None
    if results is None or len(results) != len(responses):
        given = f"{returned!r:.80}" if results is None else counted(len(results), "reward")
        name = getattr(function, "__name__", "a reward function")
        raise ValueError(
            f"{name} must return a list with one reward for each of {len(responses)} completions, not {given}"
        )
    return results


def _parameters(function: Function) -> tuple[list[inspect.Parameter], bool]:
    """Return the named parameters of a function, and whether it takes any others by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [], True
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)], open_ended


def _check_parameters(name: str, function: Function, fields: Iterable[str]) -> None:
    parameters, _ = _parameters(function)
    batched = any(parameter.name == BATCHED for parameter in parameters)
    known = {*fields, "prompts", BATCHED} if batched else {*fields, "response", "completion"}
    if inspect.iscoroutinefunction(function):
        raise ValueError(f"{name} is async, so it returns no number when it is called: make it an ordinary function")
    for parameter in parameters:
        if parameter.name not in known and parameter.default is parameter.empty:
            if batched and parameter.name in WHY_ABSENT:
                continue
            usual = f"prompts, {BATCHED}" if batched else "prompt, response"
            known_fields = ", ".join(fields)
            raise ValueError(
                f"{name} needs {parameter.name!r}, which is neither {usual} nor a field of the rows ({known_fields}): "
                f"name the field with --columns {parameter.name}=FIELD, or give the parameter a default"
            )


def _fault(value: Any, key: str | None) -> str:
    """Return what is wrong with a result that is no finite number, or that lacks the name ``key``."""
    if key is not None:
        return f"a result without {key!r}, which it has for row 1: {value!r:.80}; give None where it does not count"
    return f"a result that is not a finite number: the {type(value).__name__} {value!r:.80}"


def _number(value: Any) -> float:
    try:
        return np.nan if value is None or isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return np.nan
