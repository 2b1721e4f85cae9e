"""An environment of a user's own prompts and reward functions."""

from vpo_envs.functions.rewards import good_responses

__all__ = ["good_responses"]
