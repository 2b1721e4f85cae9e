"""A policy behind an OpenAI-compatible endpoint: ``vpo serve``, and :func:`serve_in_background` for scripts."""

from __future__ import annotations

from vpo_agent.serve.server import Limits, RunningServer, serve, serve_in_background

__all__ = ["Limits", "RunningServer", "serve", "serve_in_background"]
