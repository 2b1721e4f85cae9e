"""Train a language model with Vector Policy Optimization on multi-hop questions, answered with citations.

In the paper's setting, on a GPU, with generated questions:

    python examples/train_musique.py

On MuSiQue-Ans itself, with {split} standing for train, validation and test:

    python examples/train_musique.py --env-kwargs '{"source": "musique_{split}.jsonl"}'

A smoke test on a CPU, with nothing downloaded; the tiny model knows only mazes, so it learns nothing here:

    python examples/train_musique.py --preset smoke
"""

from vpo_agent.command.presets import MUSIQUE as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
