"""What the panel and scripts choose from: presets, options set by hand, and outputs.

Types, ranges, defaults and help texts of the options are the engine's own:
``process.describe()["options"]``.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named choice of engine options."""

    name: str
    description: str
    """For whom it is, and what will run: shown below the menu."""
    options: dict[str, Any]
    """The engine options that it sets; all others keep the engine's defaults."""


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "Automatic",
            "For any two volumes of the same part of the body. Aligns them, searches for organs"
            " that lie far apart, and refines. Detects whether both are of one kind.",
            {},
        ),
        Preset(
            "Brain MR",
            "For brain MR of one kind (T1 with T1, say), of one person or two. Aligns, and refines"
            " by comparing intensities. No search: brains lie close after the alignment.",
            {"search": "off", "similarity": "ncc"},
        ),
        Preset(
            "Abdomen CT",
            "For CT with CT, or MR with MR of one kind. Aligns, searches for organs that lie"
            " centimetres apart, and refines by comparing intensities.",
            {"search": "on", "similarity": "ncc"},
        ),
        Preset(
            "MR with CT",
            "For MR with CT, or any two kinds of images. Aligns, searches for organs that lie far"
            " apart, and refines by comparing structures instead of intensities.",
            {"search": "on", "similarity": "mind"},
        ),
        Preset("Fast", "For a first look: as Automatic, on a coarser grid.", {"preset": "fast"}),
        Preset(
            "Best",
            "For the final result: as Automatic, with more work on a finer grid. Takes several"
            " times as long.",
            {"preset": "best"},
        ),
    )
}
"""The presets by name, in the order of the menu."""

OVERRIDES = (
    "initial",
    "steps",
    "trajectories",
    "refine",
    "search",
    "smoothness",
    "model",
    "device",
    "threads",
)
"""Fields of a request that override the engine option of the same name when they are not None."""

OUTPUTS = (
    "transformed_volume",
    "transform",
    "inverse_transform",
    "displacement_magnitude",
    "jacobian",
    "uncertainty",
)
"""Fields of a request whose type is ``request.Output``, and the worker's names of these outputs."""

SMOOTHNESS = ("auto", "low", "high")
"""The words that smoothness may be; otherwise it is a number of mm."""


def further(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the engine's options that have no field of their own in a request."""
    elsewhere = {*OVERRIDES, "preset", "uncertainty"}
    return [option for option in table if option["name"] not in elsewhere]
