"""Studies: many registrations as one table. Which images, in which pairs; registering each into a
folder; comparing two studies; labels by several atlases; volumes over a population; the template of
a population; the motion of a time series.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
