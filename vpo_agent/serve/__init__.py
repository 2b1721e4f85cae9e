"""A policy behind an OpenAI-compatible endpoint: ``vpo serve``, and :func:`serve_in_background` for scripts."""

from __future__ import annotations

from vpo_envs.libraries import check_package

check_package("starlette", "serve", "serving a policy")
check_package("uvicorn", "serve", "serving a policy")

from vpo_agent.serve.app import Limits  # noqa: E402
from vpo_agent.serve.server import RunningServer, listening, serve, serve_in_background  # noqa: E402

__all__ = ["Limits", "RunningServer", "listening", "serve", "serve_in_background"]
