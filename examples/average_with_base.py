"""Average the weights of a trained run with those of the model that it started from, to keep what that model had.

    python examples/average_with_base.py runs/NAME --base-share 0.4 --out averaged
    vpo eval averaged --env vpo/Maze-v0 --env-kwargs '{"preset": "compact"}' --num-answers 3

Choose the share on the validation split (`vpo eval --split validation`). Adapters are merged. After Wortsman et al.,
Robust fine-tuning of zero-shot models (arXiv 2109.01903). docs/methods.md says what it gains.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from vpo_agent.command.parser import run_script
from vpo_agent.config import is_run, read_run_config
from vpo_agent.runs.targets import load_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--base-share", type=float, default=0.4, help="share of the base's weights (default: 0.4)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, new or empty")
    chosen = parser.parse_args()
    if not 0 <= chosen.base_share <= 1:
        raise ValueError(f"--base-share must be from 0 to 1; got {chosen.base_share}")
    if not is_run(chosen.run):
        raise ValueError(f"{str(chosen.run)!r} is not the folder of a run: give one such as runs/NAME")
    if chosen.out.exists() and (not chosen.out.is_dir() or any(chosen.out.iterdir())):
        raise ValueError(f"--out {str(chosen.out)!r} is not an empty folder: name a new one")
    trained = load_policy(str(chosen.run), device="cpu", dtype="float32")
    base = load_policy(read_run_config(chosen.run).model, device="cpu", dtype="float32")
    with torch.no_grad():
        for one, start in zip(trained.model.parameters(), base.model.parameters(), strict=True):
            one.lerp_(start, chosen.base_share)
    trained.save(chosen.out)
    print(f"wrote {chosen.out}: {chosen.base_share:.0%} of the base, the rest of {chosen.run}")


if __name__ == "__main__":
    run_script(main)
