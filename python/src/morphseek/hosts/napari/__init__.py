"""A napari plugin: ``pip install morphseek[napari]``, then Plugins > MorphSeek > Register.

napari finds it by ``napari.yaml``. :class:`RegisterWidget` is the window's panel.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
