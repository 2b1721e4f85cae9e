"""Train a language model with Vector Policy Optimization to write for several personas, and show what it learned.

On a GPU of 80 GB, with generated personas who contradict each other and nothing downloaded but the model:

    python examples/train_personas.py

Two steps on a CPU, to check that everything runs (the tiny model knows only mazes, so it learns nothing here):

    python examples/train_personas.py --model tiny-maze --steps 2 --max-new-tokens 8
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["personas"])
