"""Vector Policy Optimization of language models: policy, rollouts, estimators, trainer, evaluation.

Public names are listed in ``__init__.pyi`` and loaded on first use, so ``import vpo_agent`` is cheap.
"""

import lazy_loader

from envs_data.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
