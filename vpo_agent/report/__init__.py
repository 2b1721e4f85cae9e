"""Reports: one pool measured (``vpo eval``), and several runs compared (``vpo compare``)."""

from __future__ import annotations

from vpo_agent.report.compare import compare_runs
from vpo_agent.report.evaluation import evaluate_pool

__all__ = ["compare_runs", "evaluate_pool"]
