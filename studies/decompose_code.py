"""Which decomposition of a program's tests keeps what a set of programs is worth? No training; see docs/decompose.md.

    python studies/decompose_code.py --out runs/decompose_code

Every bundled problem gets a pool of programs: its solutions, its known wrong ones, mutants of both with one change
each, and hybrids that follow one reading of the statement for some inputs and another for the rest. A decomposition
into four objectives is fitted on half of a pool. Then someone who sees its objectives alone chooses three programs of
the other half, and the table says what these are worth under weights uniform on the tests, as a share of the best
three. Problems with one meaning count as unsolved: programs that pass every test are left out of their pools, since one
of them is all that anybody needs.
"""

from __future__ import annotations

import argparse
import ast
import copy
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs_data.code_problems import CodeProblem, load_problems
from vpo_agent.decompose import utility_of_choice
from vpo_agent.measure.intervals import over_prompts
from vpo_agent.pages.page import markdown_table
from vpo_envs import decompose
from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.decomposition.finding import FINDERS
from vpo_envs.pareto import best_sets
from vpo_envs.tasks.code import CodeEnv
from vpo_envs.tasks.code.generate import problem_task

Floats = NDArray[np.float64]

OBJECTIVES = 4
READINGS = 3
HALVES = 6
"""Random divisions of a pool, over which a problem's numbers are averaged."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
"""Operators and what a mutant has in their place."""


class Split(NamedTuple):
    """Outcomes of the programs of one problem, divided into those to fit on and those to choose from."""

    fit: Floats
    choose: Floats


def mutants(source: str) -> Iterator[str]:
    """Yield the program with one operator swapped, one number raised, or one statement left out; loops may not hang."""
    tree = ast.parse(source)
    hanging = {node for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    for place, node in enumerate(ast.walk(tree)):
        if node in hanging:
            continue
        changed = copy.deepcopy(tree)
        twin = list(ast.walk(changed))[place]
        if isinstance(twin, ast.Compare) and type(twin.ops[0]) in SWAPS:
            twin.ops[0] = SWAPS[type(twin.ops[0])]()  # type: ignore[call-overload]
        elif isinstance(twin, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(twin.op) in SWAPS:
            twin.op = SWAPS[type(twin.op)]()  # type: ignore[assignment]
        elif isinstance(twin, ast.Constant) and type(twin.value) is int:
            twin.value += 1
        elif isinstance(twin, ast.If):
            twin.test = ast.UnaryOp(ast.Not(), twin.test)
        elif isinstance(twin, ast.For | ast.FunctionDef | ast.If) and len(twin.body) > 1:
            del twin.body[0]
        else:
            continue
        yield ast.unparse(ast.fix_missing_locations(changed))


def hybrids(problem: CodeProblem) -> Iterator[str]:
    """Yield programs that follow one reading where the length of the arguments divides by a number, else another."""
    for (first, second), divisor in product(permutations(problem.readings, 2), (2, 3)):
        renamed = [f"{source}\n\n{name} = {problem.entry}" for name, source in (("_one", first), ("_two", second))]
        choice = f"return (_one if len(repr(args)) % {divisor} == 0 else _two)(*args)"
        yield "\n\n".join([*renamed, f"def {problem.entry}(*args):\n    {choice}"])


def outcomes(problem: CodeProblem, count: int, env: CodeEnv) -> Floats:
    """Return which tests the solutions, the wrong programs and some mutants pass, (n, tests)."""
    known = [source for source in (problem.reference, *problem.readings, *problem.wrong) if source]
    made = list(dict.fromkeys(mutant for source in known for mutant in mutants(source)))
    known += hybrids(problem)
    chosen = np.random.default_rng(0).permutation(len(made))[: max(0, count - len(known))]
    task = problem_task(problem)
    programs = [*known, *(made[i] for i in sorted(chosen))]
    found = []
    for outcome in env.evaluate_many([(task, program) for program in programs]):
        if isinstance(outcome, ScorerFailure):
            raise outcome
        passed = [False] * len(task.tests) if isinstance(outcome, AnswerTimeout) else outcome.passed
        found.append(passed)
    return np.array(found, dtype=np.float64)


def collect(path: Path, count: int) -> dict[str, dict[str, Floats]]:
    """Return the outcomes of all problems by collection and title, from the file if it is there."""
    collections = {"conflict": load_problems("conflict"), "unsolved": load_problems("paper")}
    if not path.is_file():
        # A generous limit: a program must not fail because the machine is busy.
        env = CodeEnv(time_limit=10.0)
        tables = {
            f"{name}/{problem.title}": outcomes(problem, count, env)
            for name, problems in collections.items()
            for problem in problems
        }
        np.savez_compressed(path, **tables)  # type: ignore[arg-type]
    with np.load(path) as stored:
        return {
            name: {problem.title: stored[f"{name}/{problem.title}"] for problem in problems}
            for name, problems in collections.items()
        }


def halves(table: Floats) -> list[Split]:
    """Divide the programs of a problem into random halves."""
    orders = [np.random.default_rng(seed).permutation(len(table)) for seed in range(HALVES)]
    return [Split(table[order[::2]], table[order[1::2]]) for order in orders]


def shares(table: Floats, others: Floats, prompts: NDArray[np.int_]) -> dict[str, float] | None:
    """Return each way's share of the best three programs' utility; ``None`` if the tests are too much alike."""
    found: dict[str, list[float]] = {}
    tests = table.shape[1]
    for number, (fit, choose) in enumerate(halves(table)):
        best = best_sets(choose)
        objectives = {"mean of the tests (scalar)": choose.mean(axis=1, keepdims=True), "all tests": choose}
        try:
            for by in FINDERS:
                objectives[f"{by}"] = decompose(fit, OBJECTIVES, by).apply(choose)
                if len(others):
                    frozen = decompose(others, OBJECTIVES, by, prompts=prompts)
                    objectives[f"{by}, fitted on the other problems"] = frozen.apply(choose)
        except ValueError:
            continue
        drawn = np.random.default_rng(number).permutation(tests)[:OBJECTIVES]
        objectives["tests at random"] = choose[:, drawn]
        if len(others):
            objectives["one objective per reading (by hand)"] = np.stack(
                [choose[:, reading::READINGS].mean(axis=1) for reading in range(READINGS)], axis=1
            )
        found.setdefault("best single program", []).append(best.one / best.three)
        for name, seen in objectives.items():
            found.setdefault(name, []).append(utility_of_choice(choose, seen) / best.three)
    return {name: float(np.mean(values)) for name, values in found.items()} if found else None


def report(tables: dict[str, dict[str, Floats]]) -> str:
    """Return the table in Markdown: mean shares over problems, with 95 % intervals."""
    columns: dict[str, dict[str, Floats]] = {}
    counts = []
    for name, problems in tables.items():
        found = []
        for title, table in problems.items():
            rest = [other for key, other in problems.items() if key != title] if name == "conflict" else []
            others = np.concatenate(rest) if rest else np.empty((0, table.shape[1]))
            prompts = np.repeat(np.arange(len(rest)), [len(other) for other in rest])
            kept = table if name == "conflict" else table[~table.all(axis=1)]
            if (one := shares(kept, others, prompts)) is not None:
                found.append(one)
        columns[name] = {way: np.array([one[way] for one in found]) for way in found[0]}
        programs = np.mean([len(table) for table in problems.values()])
        counts.append(f"{len(found)} of {len(problems)} {name} problems, {programs:.0f} programs each on average")
    rows = []
    for way in columns["conflict"]:
        cells = []
        for column in columns.values():
            if way in column:
                band = over_prompts(column[way])
                cells.append(f"{column[way].mean():.3f} [{float(band.low):.3f}, {float(band.high):.3f}]")
            else:
                cells.append("")
        rows.append([way, *cells])
    return f"{'; '.join(counts)}\n\n{markdown_table(['three programs chosen by', *columns], rows, 'lrr')}\n"


def main() -> None:
    """Collect the outcomes, or read them, and print the table."""
    parser = argparse.ArgumentParser(description="What decompositions of a program's tests keep.")
    parser.add_argument("--out", type=Path, default=Path("runs/decompose_code"), help="folder for outcomes and table")
    parser.add_argument("--programs", type=int, default=20, help="programs of each problem, at most")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = report(collect(chosen.out / "outcomes.npz", chosen.programs))
    (chosen.out / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
