"""Search at test time: best-of-n and evolution, driven by a policy, over the scalar reward of an environment."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
