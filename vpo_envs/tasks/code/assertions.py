"""Read assertions as tests: ``assert f(x) == y`` becomes a call for the sandbox and a value compared outside."""

from __future__ import annotations

import ast
import warnings

MAX_CHARS = 200_000


def read_assertion(line: str) -> tuple[str, str]:
    """Split an assertion into an expression and the value that it must have.

    The forms are ``assert call == literal`` (either way round; ``is`` for a constant), ``assert call``, ``assert not
    call`` and ``assert math.isclose(call, number)``. Only the expression, which may be anything, goes into the sandbox.

    Returns:
        The source of the expression, and that of the literal.

    Raises:
        ValueError: The line is not an assertion of these forms.
    """
    if len(line) > MAX_CHARS:
        raise ValueError(f"longer than {MAX_CHARS} characters")
    try:
        body = _parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not Python ({error})") from None
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError("not a single assert statement")
    test = body[0].test
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], ast.Eq) or (isinstance(test.ops[0], ast.Is) and isinstance(right, ast.Constant)):
            for call, value in ((left, right), (right, left)):
                literal = _literal(value)
                if literal is not None and _literal(call) is None:
                    return ast.unparse(call), literal
        raise ValueError("not a comparison == of an expression with a literal")
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"bool({ast.unparse(test.operand)})", "False"
    if isinstance(test, ast.Call):
        if ast.unparse(test.func) in ("math.isclose", "isclose"):
            literal = _literal(test.args[1]) if len(test.args) == 2 and not test.keywords else None
            if literal is None:
                raise ValueError("isclose needs a call and a number, and nothing else")
            return ast.unparse(test.args[0]), literal
        return f"bool({ast.unparse(test)})", "True"
    raise ValueError(f"an assertion of the form {type(test).__name__} is not supported")


def _parse(source: str) -> ast.Module:
    """Return the syntax tree, without Python's warnings about the style of the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _literal(node: ast.expr) -> str | None:
    """Return the source of a literal, or of ``set(…)`` of one; ``None`` for anything else."""
    try:
        match node:
            case ast.Call(func=ast.Name(id="set" | "frozenset"), args=[items], keywords=[]):
                return repr(set(ast.literal_eval(items)))
        source = ast.unparse(node)
        ast.literal_eval(source)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
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
