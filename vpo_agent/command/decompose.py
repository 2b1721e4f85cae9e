"""``vpo decompose``: few objectives in place of many criteria, found among the answers of a pool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vpo_agent.command.parser import Commands, at_least
from vpo_envs.wording import counted

if TYPE_CHECKING:
    from vpo_agent.measure.decomposed import PoolReport
    from vpo_envs import Decomposition

WAYS = ("select", "cluster", "nmf", "pca")


def add_parser(commands: Commands) -> None:
    """Add ``vpo decompose``."""
    parser = commands.add_parser(
        "decompose",
        help="find few objectives that stand for many criteria",
        description="Find objectives among the criteria of a pool's environment, such as the tests of a program, and "
        "report what they keep. The file trains a policy as --env vpo/Decomposed-v0 --env-kwargs "
        '\'{"env": ID, "decomposition": FILE}\'.',
    )
    add = parser.add_argument
    add("pool", type=Path, metavar="POOL", help="answers of the base model, such as pool.npz of vpo eval")
    add("--objectives", type=at_least(1), default=4, metavar="D", help="number of objectives, default 4")
    add("--by", default="select", choices=WAYS, help="select criteria (default), or cluster, nmf, pca")
    add("--out", type=Path, metavar="FILE", help="default: beside the pool, such as pool_select_4.json")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> None:
    """Decompose, save and report."""
    from vpo_agent.measure.decomposed import decompose_pool, measure_decomposition
    from vpo_agent.measure.pool import Pool

    pool = Pool.load(chosen.pool)
    found = decompose_pool(pool, chosen.objectives, chosen.by)
    report = f"{described(found)}\n\n{measured(measure_decomposition(pool, found), found)}"
    out = chosen.out or chosen.pool.with_name(f"{chosen.pool.stem}_{chosen.by}_{chosen.objectives}.json")
    try:
        found.save(out)
        out.with_suffix(".md").write_text(f"{report}\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {str(out)!r}: {error.strerror or error}") from None
    print(f"{report}\n\n{out} holds the decomposition, {out.with_suffix('.md')} this report")


def described(found: Decomposition) -> str:
    """Return which criteria went where, as a table in Markdown."""
    from vpo_agent.report.page import markdown_table

    rows = []
    for objective in found.objectives:
        # The heaviest first, which names a component with many small weights.
        ordered = sorted(objective.weights.items(), key=lambda item: -abs(item[1]))
        rows.append([objective.name, ", ".join(f"{weight:.2f} {name}" for name, weight in ordered)])
    text = f"{counted(len(found.objectives), 'objective')} by {found.by} from {len(found.criteria)} criteria"
    table = markdown_table(["objective", "criteria with their weights"], rows, "ll")
    left = [name for name in found.criteria if not any(name in one.weights for one in found.objectives)]
    return f"{text} of {found.env or 'the pool'}\n\n{table}\n\nIn no objective: {', '.join(left) or 'none'}."


def measured(report: PoolReport, found: Decomposition) -> str:
    """Return what is kept, as a table in Markdown."""
    from vpo_agent.report.page import markdown_table
    from vpo_agent.report.tables import number

    kept = report.kept
    rows = [
        ["variance between answers to a prompt", "1.000", number(report.variance)],
        ["distinct reward vectors told apart", "1.000", number(kept.vectors)],
        [
            "utility, on the criteria, of the three chosen by them",
            number(report.criteria.three),
            number(kept.choice),
        ],
        ["utility, on the criteria, of the three chosen by their mean", number(kept.scalar), ""],
    ]
    sets = [("among the answers", report.criteria, report.objectives)]
    if report.fronts is not None:
        sets.append(("on the exact fronts", *report.fronts))
    for where, before, after in sets:
        rows.append([f"worth of a set {where}", number(before.set_worth), number(after.set_worth)])
        rows.append([f"worth of the vector {where}", number(before.vector_worth), number(after.vector_worth)])
    heads = ["", f"{len(found.criteria)} criteria", counted(len(found.objectives), "objective")]
    return markdown_table(heads, rows, "lrr")
