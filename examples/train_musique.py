"""Train a language model with Vector Policy Optimization on multi-hop questions, answered with citations.

With no options this trains a bundled small model on a compact version of the task, on a CPU in minutes:

    python examples/train_musique.py

In the paper's setting, on a GPU of 80 GB, with generated questions:

    python examples/train_musique.py --preset paper

On MuSiQue-Ans itself, with {split} standing for train, validation and test:

    python examples/train_musique.py --preset paper --env-kwargs '{"source": "musique_{split}.jsonl"}'
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["musique"])
