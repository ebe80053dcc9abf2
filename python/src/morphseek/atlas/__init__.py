"""Templates: the mean image of a population, in the middle of all its shapes."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .result import Iteration, Subject, Template, load, outputs
    from .run import template

__getattr__ = lazy(
    __name__,
    {
        "Iteration": ".result",
        "Subject": ".result",
        "Template": ".result",
        "load": ".result",
        "outputs": ".result",
        "template": ".run",
    },
)

__all__ = ["Iteration", "Subject", "Template", "load", "outputs", "template"]
