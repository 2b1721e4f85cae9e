"""Train a language model with Vector Policy Optimization on chains of masked entities.

With no options this trains a bundled small model on a compact version of the task, on a CPU in minutes:

    python examples/train_eureqa.py

With the paper's batches, on a GPU of 80 GB, with generated narratives:

    python examples/train_eureqa.py --preset paper --lora-rank 16 --learning-rate 2e-5

On EUREQA itself (CC BY-NC 4.0, available from its authors), with {split} standing for train, validation and test:

    python examples/train_eureqa.py --preset paper --lora-rank 16 --learning-rate 2e-5 \\
        --env-kwargs '{"source": "eureqa_{split}.jsonl"}'
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["eureqa"])
