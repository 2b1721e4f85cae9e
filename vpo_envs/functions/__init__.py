"""An environment of a user's own prompts and reward functions."""
