"""Train a language model with Vector Policy Optimization on programs, where each test of a problem is one objective.

With no options this trains a bundled small model on a compact version of the task, on a CPU in minutes:

    python examples/train_code.py

With the paper's batches, on a GPU of 80 GB, with rows of DeepCoder or of LiveCodeBench's code_generation_lite; {split}
stands for train, validation and test:

    python examples/train_code.py --preset paper --lora-rank 16 --learning-rate 2e-5 \\
        --env-kwargs '{"source": "deepcoder_{split}.jsonl"}'

On the project's own few problems, with nothing downloaded but the model:

    python examples/train_code.py --preset paper --lora-rank 16 --learning-rate 2e-5

Programs run in the sandbox that SECURITY.md describes.
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["code"])
