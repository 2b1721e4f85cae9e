"""Train a language model with Vector Policy Optimization on tool calls, and show what it learned.

With no options this trains a bundled small model on a compact version of the task, on a CPU in minutes:

    python examples/train_tools.py

On a GPU of 80 GB, with generated requests and nothing downloaded but the model:

    python examples/train_tools.py --preset conflict

On ToolRL's rlla rows:

    python examples/train_tools.py --preset paper --env-kwargs '{"source": "rlla_4k/{split}.parquet"}'
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["tools"])
