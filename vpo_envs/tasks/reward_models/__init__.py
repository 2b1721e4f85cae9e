"""Reward models as objectives: scorers, calibration, prompts, and the environment."""
