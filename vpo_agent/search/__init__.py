"""Search at test time, driven by a policy: best-of-n and evolution."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
