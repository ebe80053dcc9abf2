"""Old names of :mod:`.run`; they still work, with a warning."""

from __future__ import annotations

from .._moved import moved

__getattr__ = moved(
    __name__,
    {
        "Trainer": "training.run.Trainer",
        "average": "training.run.average",
        "load_backbone": "training.run.load_backbone",
        "save_atomic": "training.run.save_atomic",
    },
)
