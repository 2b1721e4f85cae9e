"""A policy behind an OpenAI-compatible endpoint: ``vpo serve``, and :func:`serve_in_background` for scripts."""

from __future__ import annotations

try:
    from vpo_agent.serve.app import Limits
    from vpo_agent.serve.server import RunningServer, listening, serve, serve_in_background
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "uvicorn"):
        raise
    raise ModuleNotFoundError(
        f"serving a policy needs the package {error.name}: pip install 'vpo-gym[serve]'", name=error.name
    ) from None

__all__ = ["Limits", "RunningServer", "listening", "serve", "serve_in_background"]
