"""A napari plugin: ``pip install morphseek[napari]``, then Plugins > MorphSeek > Register.

napari finds it by ``napari.yaml``. :class:`RegisterWidget` is the window's panel.
"""

from __future__ import annotations

from .._lazy import lazy

__all__ = ["RegisterWidget"]

__getattr__ = lazy(__name__, {"RegisterWidget": ".widget"})
