"""Samples from a model behind an OpenAI-compatible endpoint."""
