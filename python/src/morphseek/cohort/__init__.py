"""Many pairs: which images, in which pairs; registering each into a folder; labels by several
atlases; and scores by label maps.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
