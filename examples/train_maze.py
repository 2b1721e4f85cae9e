"""Train a language model with Vector Policy Optimization on the maze, and show what it learned.

With no options this trains the bundled tiny model on a CPU in minutes, with nothing downloaded:

    python examples/train_maze.py

With a real model, on a GPU, in the paper's setting:

    python examples/train_maze.py --preset paper --model Qwen/Qwen3-4B
"""

from vpo_agent.command.presets import MAZE as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
