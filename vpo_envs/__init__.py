"""Text environments with vector rewards; importing this registers them with Gymnasium.

Public names are listed in ``__init__.pyi`` and loaded on first use, so a program pays only for the tasks it makes.
"""

import lazy_loader

from envs_data.version import __version__ as __version__
from vpo_envs.registration import register_envs

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register_envs()
