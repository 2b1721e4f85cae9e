"""Train a language model with Vector Policy Optimization on the maze, and show what it learned.

With no options this trains the bundled tiny model on a CPU in minutes, with nothing downloaded:

    python examples/train_maze.py

With a real model, on a GPU of 80 GB, with the paper's mazes and batches:

    python examples/train_maze.py --preset paper --lora-rank 16 --learning-rate 2e-5
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import MAZE as PRESETS

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
