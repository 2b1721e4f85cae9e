"""Does the default job learn? Run it over several seeds and print one table.

    python benchmarks/learning.py --seeds 0 1 2

Each seed is a whole run of ``examples/train_maze.py`` with its defaults, in ``runs/learning-<method>-seed<seed>``;
finished runs are read, unfinished ones resumed. Options after ``--`` go to every run. The interval is that of the
difference, after minus before training on the same held-out mazes: a paired 95 % bootstrap over mazes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "examples" / "train_maze.py"


def finished_run(method: str, seed: int, options: list[str]) -> Path:
    """Run the job for one seed unless it is finished, and return the run's folder."""
    name = f"learning-{method}-seed{seed}"
    folder = Path("runs") / name
    if not (folder / "results.json").exists():
        again = ["--resume"] if (folder / "config.json").exists() else []
        settings = ["--method", method, "--seed", str(seed), "--name", name]
        subprocess.run([sys.executable, str(SCRIPT), *settings, *again, *options], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds (default: 0 1 2)")
    parser.add_argument("--method", default="vpo", help="estimator (default: vpo)")
    parser.add_argument("options", nargs="*", help="options of train_maze.py, after --")
    arguments = parser.parse_args()
    rows: dict[str, list[str]] = {}
    for seed in arguments.seeds:
        folder = finished_run(arguments.method, seed, arguments.options)
        for row in json.loads((folder / "results.json").read_text())["measures"]:
            if row.get("headline", True):
                cell = f"{row['before']:.3f} → {row['after']:.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
                rows.setdefault(row["measure"], []).append(cell)
    print("\n| measure | " + " | ".join(f"seed {seed}" for seed in arguments.seeds) + " |")
    print("|---|" + "---|" * len(arguments.seeds))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
