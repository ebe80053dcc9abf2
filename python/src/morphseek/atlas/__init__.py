"""Templates: the mean image of a population, in the middle of all its shapes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
