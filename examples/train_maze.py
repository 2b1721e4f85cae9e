"""Train a language model with Vector Policy Optimization on the maze, and show what it learned.

With no options this trains the bundled tiny model twice on a CPU, with VPO and with GRPO, and compares their answers
with those of the model before training. It takes minutes, and nothing is downloaded:

    python examples/train_maze.py

With options it trains once. With a real model, on a GPU of 80 GB, with the paper's mazes and batches:

    python examples/train_maze.py --preset paper --lora-rank 16 --learning-rate 2e-5
"""

import sys
from pathlib import Path

from vpo_agent.command import main
from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

BOTH = Path(__file__).with_name("maze.toml")
NEXT = """
Next: see the mazes, search with the policy, or train on your own prompts and rewards:
  vpo play vpo/Maze-v0
  vpo search runs/maze/vpo-seed0
  vpo train --help"""

if __name__ == "__main__":
    if sys.argv[1:]:
        train_script(__doc__, TASKS["maze"])
    elif not (failed := main(["study", str(BOTH), "--results", "runs/maze/results"])):
        print(NEXT)
    else:
        sys.exit(failed)
