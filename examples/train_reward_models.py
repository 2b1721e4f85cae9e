"""Train a language model with Vector Policy Optimization on several reward models, and show what it learned.

On a GPU of 80 GB, with the reward models that you name, each of them an objective, and built-in prompts:

    python examples/train_reward_models.py --env-kwargs '{"models": {"kind": "org/kind-rm", "brief": "org/brief-rm"}}'

With your own prompts (see docs/reward_models.md):

    python examples/train_reward_models.py --env-kwargs '{"source": "prompts.jsonl", "models": {"kind": "org/kind-rm"}}'
"""

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS

if __name__ == "__main__":
    train_script(__doc__, TASKS["reward-models"])
