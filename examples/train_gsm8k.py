"""Train a language model with Vector Policy Optimization on word problems in steps, and show what it learned.

On a GPU of 80 GB, with generated stories and nothing downloaded but the model:

    python examples/train_gsm8k.py

On rows of GSM8K (see docs/gsm8k.md):

    python examples/train_gsm8k.py --env-kwargs '{"source": "train.jsonl", "on_bad_row": "skip"}'

Two steps on a CPU, to check that everything runs (the tiny model knows only mazes, so it learns nothing here):

    python examples/train_gsm8k.py --model tiny-maze --steps 2 --max-new-tokens 8
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["gsm8k"])
