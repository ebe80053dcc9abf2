"""Several images of one patient at once: what drives a registration beside the first pair."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import errors, images
from ._percentiles import distinct


@dataclasses.dataclass(frozen=True)
class Channel:
    """One more image of both sides, or one more label map, that drives the registration.

    Parameters
    ----------
    fixed, moving : ImageLike
        Images of the two patients or times, each on a grid of its own in the space of the first
        image of its side (FLAIR beside T1). A numpy array lies on that image's grid.
    weight : float, optional
        What it counts beside the 1 of the first pair.
    labels : bool, optional
        Both are label maps: whole numbers, 0 is background. Structures of the same number are
        brought onto each other; what one map alone has drives nothing.
    name : str, optional
        For messages and the report; else the fixed image's file name, or its number.

    Examples
    --------
    >>> import morphseek
    >>> pair = morphseek.phantom.make_pair(size=48)
    >>> r = morphseek.register(
    ...     pair.fixed, pair.moving,
    ...     channels=[morphseek.Channel(pair.fixed_labels, pair.moving_labels, labels=True)],
    ... )
    >>> r.metrics["channels"][0]["similarity"]
    'labels'
    """

    fixed: images.ImageLike
    moving: images.ImageLike
    weight: float = 1.0
    labels: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        errors._check_number("the weight of a channel", self.weight, 0)
        if self.weight <= 0:
            raise errors.InvalidArgumentError("the weight of a channel is 0; give one above it")


ChannelLike = Channel | Sequence[Any]


def first_and_others(
    fixed: Any, moving: Any, channels: Iterable[ChannelLike] | None
) -> tuple[Any, Any, list[Channel], list[str]]:
    """Return the first pair of images, the channels beside it, and warnings of images that one
    side alone has. ``fixed`` and ``moving`` may be lists of as many images.
    """
    others: list[Channel] = []
    warnings = []
    if isinstance(fixed, (list, tuple)) or isinstance(moving, (list, tuple)):
        sides = [list(s) if isinstance(s, (list, tuple)) else [s] for s in (fixed, moving)]
        if len(sides[0]) != len(sides[1]) or not sides[0]:
            raise errors.InvalidArgumentError(
                f"{len(sides[0])} fixed and {len(sides[1])} moving images are given; give as many"
                " of both, in the same order, and None where a side lacks one"
            )
        both = []
        for number, (one, other) in enumerate(zip(*sides), 1):
            if one is not None and other is not None:
                both.append((one, other))
                continue
            lacking = "fixed" if one is None else "moving"
            warnings.append(f"The {lacking} side lacks image {number}: it was not used.")
        if not both:
            raise errors.InvalidArgumentError("no image is there on both sides")
        (fixed, moving), *rest = both
        others += [Channel(*pair) for pair in rest]
    for channel in channels or ():
        if not isinstance(channel, Channel):
            try:
                channel = Channel(*channel)
            except TypeError:
                raise errors.InvalidArgumentError(
                    f"a channel is {channel!r:.80}; give morphseek.Channel(fixed, moving, ...)"
                ) from None
        others.append(channel)
    return fixed, moving, others, warnings


def name_of(channel: Channel, number: int) -> str:
    """Return the name of a channel for messages."""
    if channel.name:
        return channel.name
    if isinstance(channel.fixed, (str, os.PathLike)):
        return os.path.basename(os.fspath(channel.fixed))
    return f"channel {number}"


def read(
    channels: Sequence[Channel], fixed: images.Image, moving: images.Image
) -> list[tuple[dict[str, Any], tuple[images.Image, images.Image]]]:
    """Read the images of channels; what the engine is told of each, and both images."""
    out = []
    for number, channel in enumerate(channels, 2):
        name = name_of(channel, number)
        both = (
            images.read_on(channel.fixed, fixed.grid, f"{name}, fixed"),
            images.read_on(channel.moving, moving.grid, f"{name}, moving"),
        )
        if channel.labels:
            for side, image in zip(("fixed", "moving"), both):
                labels = f"labels of {name}, {side}"
                images.arrays.check_labels(distinct(image.array), labels, bits=24)  # float32's
        facts = {"name": name, "weight": float(channel.weight), "labels": channel.labels}
        out.append((facts, both))
    return out
