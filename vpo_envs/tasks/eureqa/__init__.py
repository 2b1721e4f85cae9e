"""Chains of masked entities: generator, reader of the published rows, and the environment."""
