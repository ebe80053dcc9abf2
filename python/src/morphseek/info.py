"""What is installed here: devices, models, a self-check, and the schemas of what is written."""

from . import schema
from ._engine.core import devices, models
from .diagnosis import doctor

__all__ = ["devices", "doctor", "models", "schema"]
