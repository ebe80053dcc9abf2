"""Made-up images with a known answer."""

from .torso import LABELS, PhantomPair, make_pair

__all__ = ["LABELS", "PhantomPair", "make_pair"]


def __dir__() -> list[str]:
    return __all__.copy()
