"""A policy behind an OpenAI-compatible endpoint, with the sampling loop of training: ``vpo serve``."""
