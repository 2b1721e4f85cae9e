"""Train a language model with Vector Policy Optimization on systems of linear equations, solved line by line.

With no options this trains a bundled small model on one left side and small solutions, on a CPU in minutes:

    python examples/train_derivation.py

On a GPU of 24 GB, with three unknowns:

    python examples/train_derivation.py --preset conflict

With two unknowns:

    python examples/train_derivation.py --preset easy
"""

from vpo_agent.command.presets import DERIVATION as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
