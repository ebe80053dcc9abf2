"""The installation: models, a self-check, and the schemas of what is written."""

from . import schema
from ._engine.core import models
from .diagnosis import doctor

__all__ = ["doctor", "models", "schema"]
