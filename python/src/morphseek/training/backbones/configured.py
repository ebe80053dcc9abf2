"""The network that a configuration describes."""

from __future__ import annotations

from ..config.schema import Model
from .base import PolicyBackbone, build


def build_backbone(model: Model) -> PolicyBackbone:
    """Return the network that a configuration describes, with fresh weights."""
    try:
        return build(
            model.backbone,
            **model.options,
            scale=model.scale,
            log_sigma_range=tuple(model.log_sigma_range),
            log_sigma_init=model.log_sigma_init,
            parametrisation=model.parametrisation,
            squarings=model.squarings,
            heads=model.heads,
            offsets=model.offsets,
            mirrored=model.mirrored,
        )
    except TypeError as error:
        raise ValueError(f"model.options: {error}") from error
