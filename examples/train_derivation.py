"""Train a language model with Vector Policy Optimization on systems of linear equations, solved line by line.

On a GPU, with three unknowns:

    python examples/train_derivation.py

With two unknowns:

    python examples/train_derivation.py --preset easy

A smoke test on a CPU, with nothing downloaded; the tiny model knows only mazes, so it learns nothing here:

    python examples/train_derivation.py --preset smoke
"""

from vpo_agent.command.presets import DERIVATION as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
