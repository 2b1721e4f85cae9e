"""A programming problem with its tests: the prompt, reading a program, the verdicts on it, and the best outcomes."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from envs_data.parsing import parse_json
from vpo_envs.core import Task, Unparsable
from vpo_envs.sandbox import Claim, Close, Kind, Limits, Program, RunResult, Tier, run_program, same_output
from vpo_envs.tasks.generation import worded
from vpo_envs.text import answer_tags

MAX_TESTS = 16
MAX_TEST_BYTES = 8192
"""Maximum bytes of the input or output of a test that is read from a data set."""

Difficulty = Literal["easy", "medium", "hard"]


class CodeTest(Task):
    """One input and the expected output."""

    input: str
    """``"stdin"``: the text of standard input; ``"call"``: the arguments as a JSON array; ``"expression"``: Python."""
    output: str
    """What passes. ``"stdin"``: standard output; ``"call"``: the value as JSON, or several right values in a line each;
    ``"expression"``: the value as a Python literal, or ``isclose(number, rel_tol=…, abs_tol=…)``."""


class CodeTask(Task):
    """A programming problem."""

    title: str
    statement: str = Field(min_length=1)
    kind: Kind
    tests: tuple[CodeTest, ...] = Field(min_length=1, max_length=MAX_TESTS)
    shown: int = Field(default=0, ge=0)
    """Number of tests, from the first, that the prompt shows as examples and that count nevertheless, as in MBPP."""
    entry: str = ""
    """The function, or the method of ``class Solution``, that tests call; empty for programs."""
    starter_code: str = ""
    setup: str = ""
    """Python that runs after the answer and before each test's call."""
    difficulty: str = ""
    solution: str = ""
    """A reference solution; empty if none is known."""
    mistakes: tuple[str, ...] = ()
    """Programs with a likely mistake."""
    readings: tuple[str, ...] = ()
    """A solution for each reading of a statement that has several. Tests with equal inputs then expect different
    outputs, so no program passes all of them."""

    @property
    def canonical(self) -> str:
        """The statement, and the tests whatever their order."""
        return f"{self.statement} {sorted((test.input, test.output) for test in self.tests)}"

    @model_validator(mode="after")
    def _check(self) -> CodeTask:
        if self.kind == "call" and not self.entry.isidentifier():
            raise ValueError(f"entry must be the name of a function, got {self.entry!r}")
        for number, test in enumerate(self.tests, start=1):
            try:
                if self.kind == "call" and not isinstance(_json(test.input), list):
                    raise ValueError("the input is not a JSON array of arguments")
                self.expected(test)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
                raise ValueError(f"test {number}: {error or type(error).__name__}") from None
        return self

    def expected(self, test: CodeTest) -> tuple[object, ...]:
        """Return the right values of ``test``, any of which passes it, as plain data or numbers with tolerances."""
        return right_values(self.kind, test.output)


def _json(text: str) -> Any:
    return parse_json(text, any_length=True)


def right_values(kind: Kind, output: str) -> tuple[object, ...]:
    """Return the values that the output of a test stands for."""
    if kind == "stdin":
        return (output,)
    if kind == "expression":
        match ast.parse(output, mode="eval").body:
            case ast.Call(func=ast.Name(id="isclose"), args=[number], keywords=tolerances):
                options = {option.arg: ast.literal_eval(option.value) for option in tolerances if option.arg}
                return (Close(ast.literal_eval(number), **options),)
        return (ast.literal_eval(output),)
    try:
        return (_json(output),)
    except ValueError:
        lines = output.splitlines()
        if len(lines) < 2:
            raise
        return tuple(map(_json, lines))


def spread(sizes: Sequence[int], count: int = MAX_TESTS) -> list[int]:
    """Choose at most ``count`` tests whose sizes are spread evenly from the smallest to the largest.

    Keeping the smallest tests would make a problem easier than it is.
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    if len(order) <= count:
        return sorted(order)
    return sorted(order[round(i * (len(order) - 1) / (count - 1))] for i in range(count))


MAX_SOURCE_CHARS = 65_536

FENCE = re.compile(r"((?:[ \t]*+(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t]))*+[ \t]*+)(`{3,}+(?=[^`]*+$)|~{3,}+)(.*+)")
"""A line that opens a fenced block, perhaps right after the mark of a list's item: what stands before the fence, the
fence, and the text after it. It never backtracks, so that a hostile line takes linear time."""
MARK = re.compile(r"[^ \t]")
LINE_END = re.compile(r"\r\n?")


class Wording(NamedTuple):
    """One way to put the form of answers into words."""

    program: str
    function: str
    """Sentence that names the function ``{entry}``."""
    definitions: str
    start: str
    one: str
    """Sentence that asks for one answer, in the tag ``{tag}``."""
    several: str
    """Sentence that asks for ``{count}`` attempts, in the tags ``{tags}``."""
    readings: str
    """Sentence that several readings of the statement are tested."""
    follow: str
    """Sentence that asks for a different reading in each answer."""
    scored: str
    constant: str
    """Sentence that a program earns nothing if all tests that it passes expect one result."""


WORDINGS = (
    Wording(
        "Write a complete Python program that reads standard input and writes standard output.",
        "Write Python code that defines `{entry}`; it is called with the arguments of each test.",
        "Write Python code that defines what the statement asks for.",
        "Start from this code:",
        "Put the whole code, and nothing else, inside {tag}.",
        "Make {count} different attempts, each complete by itself: {tags}. Put code and nothing else inside each tag. "
        "They are judged together: under each weighting of the tests only the best of them counts.",
        "The statement can be read in several ways, and each of them has tests.",
        "Let the attempts follow different readings.",
        "Each test that the code passes scores.",
        "Code earns nothing if all the tests that it passes expect the same result.",
    ),
    Wording(
        "The solution is a whole Python program: it gets its input on stdin and prints its output.",
        "The solution is Python code with a definition of `{entry}`, which the tests call.",
        "The solution is Python code with the definitions that the statement speaks of.",
        "This is the beginning of the code:",
        "Between the tags of {tag} stands the code, all of it and nothing but it.",
        "Give {count} different solutions, each of them whole and in tags of its own: {tags}. They are judged "
        "together: under each weighting of the tests only the best of them counts.",
        "More than one meaning of the statement is tested.",
        "Follow a different one in each solution.",
        "The score has a part for each test that is passed.",
        "It is nothing if all tests that are passed expect the same result.",
    ),
    Wording(
        "Answer with a complete program in Python that takes standard input to standard output.",
        "Answer with code in Python in which `{entry}` is defined; each test calls it.",
        "Answer with code in Python in which everything is defined that is asked for.",
        "Complete this code:",
        "The answer is code and nothing else, in {tag}.",
        "There are {count} answers, no two the same and each complete, in the tags {tags}, with nothing but code in "
        "them. Under each weighting of the tests only the best answer counts.",
        "What is asked for has several readings, which are all tested.",
        "Make each answer for another reading.",
        "Each test that is passed scores on its own.",
        "If every test that is passed expects one and the same result, none of them scores.",
    ),
)
NAMES = (
    "Only the standard library is available. Its usual names, such as `math`, `deque`, `Counter` and `List`, need no "
    "import."
)
"""What every prompt says of the sandbox."""


TOLD = "After each of them but the last you are told which of the examples above it passes."


def code_prompt(task: CodeTask, num_answers: int, *, constant_earns: bool, told: bool = False) -> str:
    """Return the statement, its examples, and the form of the answers.

    Args:
        task: The problem.
        num_answers: Programs that are asked for.
        constant_earns: Whether a program earns something that passes only tests with one result.
        told: Whether the results of an attempt are told before the next.
    """
    wording = worded(task, WORDINGS)
    parts = [f"# {task.title}" if task.title else "", task.statement.strip()]
    for number, test in enumerate(task.tests[: task.shown], start=1):
        parts.append(example(task.kind, task.entry, number, test))
    if task.kind == "stdin":
        parts.append(wording.program)
    elif task.entry:
        parts.append(wording.function.format(entry=task.entry))
    else:
        parts.append(wording.definitions)
    if task.starter_code.strip():
        parts.append(f"{wording.start}\n```python\n{task.starter_code.strip()}\n```")
    tags = [f"{opening}…{closing}" for opening, closing in answer_tags(num_answers)]
    readings = [wording.readings] * bool(task.readings)
    if num_answers == 1:
        wanted = [wording.one.format(tag=tags[0]), *readings]
    else:
        wanted = [
            wording.several.format(count=num_answers, tags=", ".join(tags)),
            *readings,
            *[wording.follow] * len(readings),
            *[TOLD] * told,
        ]
    scored = [wording.scored] if constant_earns else [wording.scored, wording.constant]
    parts.append(" ".join([*wanted, *scored, NAMES]))
    return "\n\n".join(part for part in parts if part)


def example(kind: Kind, entry: str, number: int, test: CodeTest) -> str:
    """Return a test as an example of the prompt."""
    given, wanted = test.input, test.output
    if kind == "stdin":
        return f"Example {number}, input:\n{given.rstrip()}\nOutput:\n{wanted.rstrip()}"
    if kind == "call":
        arguments = ", ".join(repr(value) for value in _json(given))
        return f"Example {number}: {entry}({arguments}) gives {right_values(kind, wanted)[0]!r}"
    right = right_values(kind, wanted)[0]
    return f"Example {number}: {given} gives {f'about {right.number}' if isinstance(right, Close) else wanted}"


def shown_tests(task: CodeTask) -> tuple[CodeTest, ...]:
    """Return the examples that the prompt shows as tests: those of :func:`example`, so none of another format."""
    if task.shown:
        return task.tests[: task.shown]
    if task.kind == "stdin":
        return tuple(CodeTest(input=given, output=wanted) for given, wanted in STDIN_EXAMPLE.findall(task.statement))
    found = re.findall(rf"^Example \d+: {re.escape(task.entry)}\((.*)\) gives (.*)$", task.statement, re.MULTILINE)
    try:
        return tuple(
            CodeTest(input=json.dumps(ast.literal_eval(f"[{given}]")), output=json.dumps(ast.literal_eval(wanted)))
            for given, wanted in found
        )
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ()


STDIN_EXAMPLE = re.compile(
    r"^Example \d+, input:\n(.*?)\nOutput:\n(.*?)(?=\n\nExample \d+, input:\n|\Z)", re.MULTILINE | re.DOTALL
)


def read_source(text: str) -> str:
    """Return the program inside an answer: the last fenced block that is not empty, else all without fences."""
    text = LINE_END.sub("\n", text)
    if "```" in text or "~~~" in text:
        blocks = [block for block in fenced_blocks(text) if block.strip()]
        text = blocks[-1] if blocks else "\n".join(line for line in text.split("\n") if not FENCE.fullmatch(line))
    source = text.strip("\n").rstrip()
    if not source.strip():
        raise Unparsable("the answer holds no code")
    if len(source) > MAX_SOURCE_CHARS:
        raise Unparsable(f"the code is longer than {MAX_SOURCE_CHARS} characters")
    return source


def fenced_blocks(text: str) -> list[str]:
    """Return the contents of the fenced blocks of a text in Markdown, without the indentation of the first fence.

    A block ends at a line with nothing but a fence of the same character that is at least as long and indented at most
    three columns more, or else at the end of the text.
    """
    blocks: list[str] = []
    lines: list[str] = []
    fence = indentation = ""
    for line in text.split("\n"):
        if not fence:
            opening = FENCE.fullmatch(line)
            if opening is not None:
                indentation, fence = MARK.sub(" ", opening[1]), opening[2]
            continue
        bare = line.strip(" \t")
        columns = len(line) - len(line.lstrip(" \t"))
        if bare.startswith(fence) and not bare.strip(fence[0]) and columns <= len(indentation) + 3:
            blocks.append("\n".join(lines))
            lines, fence = [], ""
        elif line.startswith(indentation):
            lines.append(line[len(indentation) :])
        else:
            lines.append(line[min(columns, len(indentation)) :])
    return [*blocks, "\n".join(lines)] if fence else blocks


Verdict = Literal["passed", "wrong", "error", "timed_out", "output_limit"]
FAILED: tuple[Verdict, ...] = ("error", "timed_out", "output_limit")
"""The verdicts on a run without a result."""


class CodeOutcome(NamedTuple):
    """The facts about one answer, which the objectives score."""

    verdicts: tuple[Verdict, ...]
    """Verdict on each test of the problem."""
    tier: str = ""
    """The sandbox's tier; empty if nothing was run."""
    constant: bool = False
    """Whether all tests that it passes expect one result while other tests do not, as with a constant program."""

    @property
    def passed(self) -> tuple[bool, ...]:
        """Whether the answer passed each test."""
        return tuple([verdict == "passed" for verdict in self.verdicts])


def run_tests(task: CodeTask, source: str, tier: Tier, limits: Limits) -> CodeOutcome:
    """Run a program on every test of a problem.

    The sandbox receives inputs only. An input that several tests share runs once, so a program cannot answer it in
    several ways.
    """
    inputs = tuple(dict.fromkeys(test.input for test in task.tests))
    program = Program(source, task.kind, inputs, task.entry, task.setup)
    runs = dict(zip(inputs, run_program(program, tier, limits), strict=True))
    return outcome_of(task, [judge(task, test, runs[test.input]) for test in task.tests], tier.value)


def outcome_of(task: CodeTask, verdicts: Sequence[Verdict], tier: str = "") -> CodeOutcome:
    """Return the outcome of these verdicts on the tests of a problem."""
    right = {test.output for test, verdict in zip(task.tests, verdicts, strict=True) if verdict == "passed"}
    several = all(len({getattr(test, side) for test in task.tests}) > 1 for side in ("input", "output"))
    return CodeOutcome(tuple(verdicts), tier, several and len(right) == 1)


def judge(task: CodeTask, test: CodeTest, run: RunResult) -> Verdict:
    """Compare the output of a run with what a test expects.

    A run passes only if it also exited by itself with code 0; an exit code alone is never a pass.
    """
    if run.ending == "timed_out" or run.ending == "output_limit":
        return run.ending
    if run.ending != "exited" or run.code != 0:
        return "error"
    if task.kind == "stdin":
        return "passed" if same_output(run.stdout, test.output) else "wrong"
    if not run.result:
        return "error"
    try:
        claim = Claim(run.result)
    except ValueError:
        return "error"
    right = any(claim.equals(value, as_json=task.kind == "call") for value in task.expected(test))
    return "passed" if right else "wrong"


def best_outcomes(task: CodeTask) -> list[tuple[CodeOutcome, str]]:
    """Return every best outcome of a problem with readings, each with a program that attains it.

    A program's result depends on its input alone, so for each distinct input it passes the tests that expect one and
    the same output. The choices for different inputs are independent, and none beats another, so the number of outcomes
    is the product of the numbers of distinct outputs of each input.
    """
    outputs: dict[str, list[str]] = {}
    for test in task.tests:
        known = outputs.setdefault(test.input, [])
        if test.output not in known:
            known.append(test.output)
    best = []
    for choice in itertools.product(*outputs.values()):
        chosen = dict(zip(outputs, choice, strict=True))
        verdicts: list[Verdict] = ["passed" if chosen[test.input] == test.output else "wrong" for test in task.tests]
        best.append((outcome_of(task, verdicts), _lookup(task.entry, chosen)))
    return best


def _lookup(entry: str, chosen: dict[str, str]) -> str:
    """Return the source of a function that looks up the chosen output of each input."""
    table = {json.dumps(_json(given)): _json(wanted) for given, wanted in chosen.items()}
    return f"import json\n\nTABLE = {table!r}\n\n\ndef {entry}(*args):\n    return TABLE[json.dumps(list(args))]"
