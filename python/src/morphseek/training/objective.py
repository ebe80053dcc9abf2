"""Old names of :mod:`.step`, :mod:`.policy` and :mod:`.backbones`; they still work but warn."""

from __future__ import annotations

from .._moved import moved

__getattr__ = moved(
    __name__,
    {
        "StepObjective": "training.step.StepObjective",
        "StepResult": "training.policy.StepResult",
        "build_backbone": "training.backbones.build_backbone",
    },
)
