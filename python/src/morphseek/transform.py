"""Moved to transforms. The old names still work and warn."""

from __future__ import annotations

from ._moved import moved

__getattr__ = moved(
    __name__,
    {
        "DenseTransform": "transforms.DenseTransform",
        "read_only": "transforms.read_only",
        "ranked": "transforms.ranked",
        "beyond": "transforms.beyond",
        "minimum": "transforms.minimum",
        "resample_identity": "transforms.resample_identity",
    },
)
