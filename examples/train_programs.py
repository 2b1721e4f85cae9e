"""Train a language model with Vector Policy Optimization on programs from examples, which are judged on hidden ones.

With no options this trains a bundled small model on programs over lists, on a CPU in minutes:

    python examples/train_programs.py

On a GPU of 80 GB, with Python functions that run in the sandbox:

    python examples/train_programs.py --preset paper
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["programs"])
