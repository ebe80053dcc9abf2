"""Moved to phantoms. The old names still work and warn."""

from __future__ import annotations

from ._moved import moved

__getattr__ = moved(
    __name__,
    {
        "LABELS": "phantoms.LABELS",
        "PhantomPair": "phantoms.PhantomPair",
        "make_pair": "phantoms.make_pair",
    },
)
