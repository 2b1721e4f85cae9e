"""Train a language model with Vector Policy Optimization on countdowns: one expression, three targets.

With no options this trains a bundled small model on small numbers, on a CPU in minutes:

    python examples/train_countdown.py

On a GPU of 24 GB, with four numbers, and targets so close that a value between two of them is a compromise:

    python examples/train_countdown.py --preset conflict

With five numbers and large targets far apart:

    python examples/train_countdown.py --preset paper
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["countdown"])
