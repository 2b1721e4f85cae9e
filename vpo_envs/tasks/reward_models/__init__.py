"""Reward models and judges as objectives: scorers, calibration, prompts, and the environment."""
