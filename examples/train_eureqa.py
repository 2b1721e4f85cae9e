"""Train a language model with Vector Policy Optimization on chains of masked entities.

In the paper's setting, on a GPU, with generated narratives:

    python examples/train_eureqa.py

On EUREQA itself (CC BY-NC 4.0, available from its authors), with {split} standing for train, validation and test:

    python examples/train_eureqa.py --env-kwargs '{"source": "eureqa_{split}.jsonl"}'

A smoke test on a CPU, with nothing downloaded; the tiny model knows only mazes, so it learns nothing here:

    python examples/train_eureqa.py --preset smoke
"""

from vpo_agent.command.presets import EUREQA as PRESETS
from vpo_agent.command.train import train_script

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
