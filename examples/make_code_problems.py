"""Recompute the expected outputs of the bundled programming problems by running their reference solutions.

    python examples/make_code_problems.py            # compares with what is bundled
    python examples/make_code_problems.py --write    # writes envs_data/code_problems/expected.json

Every solution runs in the sandbox. The results of the wrong solutions are recorded as well, and checked by the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import envs_data.code_problems as bundled
from vpo_envs.sandbox import Claim, Limits, Program, RunResult, choose_tier, run_program, same_output

TARGET = Path(bundled.__file__).with_name("expected.json")


def plain(tree: Any) -> Any:
    """Convert a value in the sandbox's encoding to JSON."""
    if not isinstance(tree, list):
        return tree
    letter, *items = tree
    if letter in "lt":
        return [plain(item) for item in items]
    if letter == "f":
        return float.fromhex(items[0])
    if letter == "d":
        return {str(plain(key)): plain(value) for key, value in items}
    raise ValueError(f"a reference solution returned what JSON cannot hold: {tree}")


def outputs(problem: dict[str, Any], runs: list[RunResult]) -> list[str]:
    """Return the output of a solution for each input."""
    given = []
    for number, test in enumerate(runs, start=1):
        if test.ending != "exited" or test.code != 0:
            raise SystemExit(f"{problem['title']}, input {number}: {test.ending} {test.code}\n{test.stderr.decode()}")
        if problem["kind"] == "stdin":
            given.append(test.stdout.decode())
        else:
            given.append(json.dumps(plain(json.loads(test.result))))
    return given


def passes(problem: dict[str, Any], runs: list[RunResult], expected: list[str]) -> str:
    """Return a ``1`` for each test that a solution passes and a ``0`` for each that it fails."""
    marks = []
    for test, wanted in zip(runs, expected, strict=True):
        if test.ending != "exited" or test.code != 0:
            marks.append(False)
        elif problem["kind"] == "stdin":
            marks.append(same_output(test.stdout, wanted))
        else:
            marks.append(Claim(test.result).equals(json.loads(wanted), as_json=True))
    return "".join(map(str, map(int, marks)))


def solve(problem: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a problem's references, and which tests its wrong solutions pass."""

    def run(source: str) -> list[RunResult]:
        program = Program(source, problem["kind"], tuple(problem["inputs"]), problem.get("entry", ""))
        return run_program(program, choose_tier(), Limits(seconds=2.0))

    sources = problem.get("readings") or [problem["reference"]]
    columns = [outputs(problem, run(source)) for source in sources]
    solved: dict[str, Any] = {"outputs": [list(row) for row in zip(*columns, strict=True)]}
    if "wrong" in problem:
        solved["wrong_passes"] = [passes(problem, run(source), columns[0]) for source in problem["wrong"]]
    return solved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the file, instead of comparing")
    write = parser.parse_args().write
    names = [name for collection in bundled.FILES.values() for name in collection]
    problems = [problem for name in names for problem in bundled.read_problem_file(name)]
    solved = {problem["title"]: solve(problem) for problem in problems}
    if len(solved) != len(problems):
        raise SystemExit("two problems have the same title")
    text = "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in solved.items()) + "\n}\n"
    if write:
        TARGET.write_text(text, encoding="utf-8")
        print(f"wrote {TARGET.name}: {len(problems)} problems")
    elif text != TARGET.read_text(encoding="utf-8"):
        sys.exit("expected.json differs from the results of the reference solutions: run with --write")
    else:
        print(f"{len(problems)} problems match expected.json")


if __name__ == "__main__":
    main()
