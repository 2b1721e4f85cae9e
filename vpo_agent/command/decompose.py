"""``vpo decompose``: few objectives in place of many criteria, found among the answers of a pool."""

from __future__ import annotations

import argparse
from pathlib import Path

from vpo_agent.command.parser import Commands, at_least

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
    from vpo_agent.decompose import decompose_pool, described, measure_decomposition, measured
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
