"""Read the assertions of MBPP as syntax: the call that a test makes, and the value that it expects."""

from __future__ import annotations

import ast
import math
import operator
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

MAX_CHARS = 200_000


def read_assertion(line: str) -> tuple[str, str]:
    """Split an assertion into the source of an expression and what it must equal, as :class:`CodeTest` states it.

    The forms are ``assert call == value`` (either way round; ``is`` for a constant), ``assert call``, ``assert not
    call``, ``assert isclose(call, value)`` with any tolerances, and ``assert abs(call - value) < tolerance``. A value
    is a literal, or what :func:`constant` can compute. Only the expression, which may be anything, goes into the
    sandbox.
    """
    if len(line) > MAX_CHARS:
        raise ValueError(f"longer than {MAX_CHARS} characters")
    try:
        body = _parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not Python ({error})") from None
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError("not a single assert statement")
    match body[0].test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() as operator], comparators=[right]):
            sides = _call_and_value(left, right)
            if sides is not None and (isinstance(operator, ast.Eq) or isinstance(right, ast.Constant)):
                return sides
            raise ValueError("not a comparison == of an expression with a constant")
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
            ops=[ast.Lt() | ast.LtE() as operator],
            comparators=[limit],
        ):
            sides, tolerance = _call_and_value(left, right), _literal(limit)
            if sides is not None and tolerance is not None:
                most = float(tolerance) if isinstance(operator, ast.LtE) else math.nextafter(float(tolerance), 0.0)
                return sides[0], f"isclose({sides[1]}, rel_tol=0.0, abs_tol={most!r})"
            raise ValueError("not abs(call - number) below a number")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})", "False"
        case ast.Call(func=function, args=[left, right], keywords=options) if ast.unparse(function) in ISCLOSE:
            sides, tolerances = _call_and_value(left, right), [_literal(option.value) for option in options]
            names = {option.arg for option in options}
            if sides is None or None in tolerances or not names <= {"rel_tol", "abs_tol"}:
                raise ValueError("isclose needs a call and a number, and numbers as tolerances")
            if not options:
                return sides
            stated = [f"{option.arg}={text}" for option, text in zip(options, tolerances, strict=True)]
            return sides[0], f"isclose({', '.join([sides[1], *stated])})"
        case ast.Call() as call:
            return f"bool({ast.unparse(call)})", "True"
        case other:
            raise ValueError(f"an assertion of the form {type(other).__name__} is not supported")


ISCLOSE = ("math.isclose", "isclose")
BUILDERS: dict[str, Callable[..., object]] = {
    **{kind.__name__: kind for kind in (set, frozenset, list, tuple, dict, float, int, complex)},
    **{name: kind for kind in (Counter, OrderedDict) for name in (kind.__name__, f"collections.{kind.__name__}")},
    **{
        f"math.{name}": getattr(math, name)
        for name in ("sqrt", "radians", "degrees", "log", "exp", "sin", "cos", "tan")
    },
    "sys.getsizeof": sys.getsizeof,
}
"""What an expected value may call: constructors, and functions of constants."""
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
MAX_POWER = 1000
"""Largest base and exponent of a power in a constant."""


def constant(node: ast.expr) -> Any:
    """Return the value of an expression that calls nothing but :data:`BUILDERS`; it is never run as code.

    Literals may stand in it, constants of ``math``, and ``+ - * / **`` between numbers.

    Raises:
        ValueError: It is no such expression, or has no value.
    """
    try:
        return _constant(node)
    except (TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a constant ({error or type(error).__name__})") from None


def _constant(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in OPERATORS:
            sides = _constant(left), _constant(right)
            if not all(isinstance(side, int | float | complex) for side in sides):
                raise ValueError("operators join numbers in a constant")
            if isinstance(operation, ast.Pow) and max(map(abs, sides)) > MAX_POWER:
                raise ValueError(f"base and exponent of a power in a constant must be at most {MAX_POWER}")
            return OPERATORS[type(operation)](*sides)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_constant(operand)
        case ast.Attribute(value=ast.Name(id="math"), attr="pi" | "e" | "tau" | "inf" as name):
            return getattr(math, name)
        case ast.Call(func=function, args=arguments, keywords=[]) if ast.unparse(function) in BUILDERS:
            return BUILDERS[ast.unparse(function)](*map(_constant, arguments))
        case ast.List(elts=items):
            return [_constant(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple([_constant(item) for item in items])
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_constant(key): _constant(value) for key, value in zip(keys, values, strict=True) if key}
        case ast.Set(elts=items):
            return {_constant(item) for item in items}
        case _:
            return ast.literal_eval(node)


def written(value: object) -> str:
    """Return a value as a Python literal, the same in every process.

    Raises:
        ValueError: It has no literal.
    """
    if isinstance(value, set | frozenset):
        # The order of a set of texts varies between processes.
        return f"{{{', '.join(sorted(map(written, value)))}}}" if value else "set()"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{written(key)}: {written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise ValueError("nan equals nothing")
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def _call_and_value(left: ast.expr, right: ast.expr) -> tuple[str, str] | None:
    """Return the source of the side that is an expression, and the literal of the other; ``None`` if there is none."""
    texts = _literal(left), _literal(right)
    if texts[1] is not None and texts[0] is None:
        return ast.unparse(left), texts[1]
    if texts[0] is not None and texts[1] is None:
        return ast.unparse(right), texts[0]
    return None


def _parse(source: str) -> ast.Module:
    """Return the syntax tree, without Python's warnings about the style of the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _literal(node: ast.expr) -> str | None:
    """Return the source of a literal, or of the value of another constant; ``None`` for anything else."""
    try:
        source = ast.unparse(node)
        ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        try:
            return written(constant(node))
        except ValueError:
            return None
    return source


def signature(code: str, call: str) -> str:
    """Return the first line of the function in ``code`` that ``call`` calls; empty if there is none."""
    try:
        calls = [node.func for node in ast.walk(_parse(call)) if isinstance(node, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        for node in _parse(code).body:
            if isinstance(node, ast.FunctionDef) and node.name in called:
                return f"def {node.name}({ast.unparse(node.args)}):"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return ""
