"""Search at test time: best-of-n and evolution, driven by a policy, over the scalar reward of an environment.

The names below are loaded when they are first used: the part that runs inside OpenEvolve's processes needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs_data.lazy import lazy_names

if TYPE_CHECKING:
    from vpo_agent.search.endpoint import VariationEndpoint
    from vpo_agent.search.evolution import evolve
    from vpo_agent.search.figure import plot_solved
    from vpo_agent.search.openevolve_run import open_evolve
    from vpo_agent.search.records import InstanceSearch, SearchResult, hard_instances
    from vpo_agent.search.runner import SearchJob, run_search
    from vpo_agent.search.sampling import best_of_n, best_of_pool

_MODULES = {
    "InstanceSearch": "records",
    "SearchJob": "runner",
    "SearchResult": "records",
    "VariationEndpoint": "endpoint",
    "best_of_n": "sampling",
    "best_of_pool": "sampling",
    "evolve": "evolution",
    "hard_instances": "records",
    "open_evolve": "openevolve_run",
    "plot_solved": "figure",
    "run_search": "runner",
}

__all__ = [
    "InstanceSearch",
    "SearchJob",
    "SearchResult",
    "VariationEndpoint",
    "best_of_n",
    "best_of_pool",
    "evolve",
    "hard_instances",
    "open_evolve",
    "plot_solved",
    "run_search",
]

if not TYPE_CHECKING:  # a type checker that saw these would take any name for one of the package
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
