"""Train a language model with Vector Policy Optimization on countdowns: one expression, three targets.

On a GPU, with four numbers, and targets so close that a value between two of them is a compromise:

    python examples/train_countdown.py

With five numbers and large targets far apart:

    python examples/train_countdown.py --preset classic

A smoke test on a CPU, with nothing downloaded; the tiny model knows only mazes, so it learns nothing here:

    python examples/train_countdown.py --preset smoke
"""

from vpo_agent.command.presets import COUNTDOWN as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
