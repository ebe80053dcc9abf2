"""Describes a registration: the interface between the panel, or a script, and the library.

>>> request = RegistrationRequest(fixed=fixedNode, moving=movingNode, preset="MR with CT")
>>> registration = Registration(request)   # MorphSeekLib.registration says what it tells
>>> registration.start()                   # writes the inputs, starts the worker, returns
>>> while registration.running:            # by a QTimer in the panel; .wait() in a script
...     for event in registration.poll():  # events since the last call; the last makes the nodes
...         show(event)
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Union

from . import validation
from .options import OVERRIDES, PRESETS

Output = Union[None, bool, Any]
"""None or False: no output. True: a new node. A node: this one is overwritten."""


class Event(NamedTuple):
    """One report of a running registration."""

    stage: str
    """One of :data:`STAGES`, which has their names for the user."""
    fraction: float
    """Fraction of the whole registration, 0 to 1, never decreasing."""
    eta: float | None
    """Seconds left; None while that is unknown."""
    message: str
    """A line for the log; may be empty."""


STAGES = {
    "prepare": "Preparing",
    "align": "Aligning",
    "look": "Looking at the volumes",
    "search": "Searching for large shifts",
    "network": "Network",
    "refine": "Refining",
    "landmarks": "Landmarks",
    "reverse": "Registering the other way",
    "uncertainty": "Estimating the uncertainty",
    "finish": "Measuring",
    "outputs": "Making the outputs",
}
"""The name of each stage on the progress bar."""


@dataclasses.dataclass
class RegistrationRequest:
    """One registration. Nodes are MRML nodes. They count in world coordinates, that is, with their
    parent transforms.
    """

    fixed: Any = None
    """Scalar volume whose grid the results lie on."""
    moving: Any = None
    """Scalar volume that is brought onto the fixed one."""
    preset: str = "Automatic"
    """Key of ``options.PRESETS``."""
    fixed_mask: Any = None
    """Label map or segmentation: only voxels of the fixed volume inside it (in any segment) are
    compared.
    """
    moving_mask: Any = None
    rigid_regions: Any = None
    """Label map or segmentation of the fixed volume: each label moves as one rigid body."""
    fixed_landmarks: Any = None
    """Markups of points that mark the same places in both volumes and steer the registration. They
    are paired by the labels that both have, otherwise in their order. The option ``landmark_error``
    must be set.
    """
    moving_landmarks: Any = None
    channels: list = dataclasses.field(default_factory=list)
    """Pairs (fixed, moving) of further scalar volumes, such as FLAIR beside T1, that also drive the
    registration. Each may have a grid of its own.
    """
    labels_drive: bool = False
    """Whether fixed_labels and moving_labels drive the registration, too: structures of the same
    name (in label maps, of the same number) are brought onto each other.
    """
    initial_transform: Any = None
    """Transform node that, set on the moving volume, brings it near the fixed one. The alignment
    starts from a linear one; from any other the refinement starts.
    """

    initial: str | None = None
    """The initial alignment: none, com, rigid or affine. Here and in the next fields, None leaves
    the choice to the preset.
    """
    steps: int | None = None
    """Network steps; 0 takes the model's own number."""
    trajectories: int | None = None
    """Latent trajectories per step."""
    refine: int | None = None
    """Refinement iterations; 0 switches them off."""
    search: str | None = None
    """auto, on or off."""
    smoothness: str | None = None
    """The distance over which tissue moves together: auto, low, high, or a number of mm as text."""
    model: str | None = None
    """Built-in name, path of a .onnx bundle, "default" or "none"."""
    device: str | None = None
    """auto, cpu, cuda, tensorrt or plugin:PATH."""
    threads: int | None = None
    """CPU threads; 0 uses every core."""
    further_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Engine options without a field of their own, by name: those of ``options.further``."""
    field_spacing: float = 0.0
    """mm between the vectors of the output transforms; 0 takes the fixed volume's grid. It does not
    change the transformed volume. Points, and labels under a transform that is not linear, are
    moved by these vectors.
    """

    transformed_volume: Output = True
    """Moving volume resampled once onto the fixed grid."""
    transform: Output = True
    """Grid transform node with the affine after it. It brings moving nodes that are put under it
    onto the fixed volume.
    """
    inverse_transform: Output = None
    """Grid transform node of the same kind that brings fixed nodes onto the moving volume."""
    displacement_magnitude: Output = None
    """Volume on the fixed grid: length of the displacement in mm, initial alignment included."""
    jacobian: Output = None
    """Volume on the fixed grid: Jacobian determinant of the map from fixed to moving; below 0 where
    it folds.
    """
    uncertainty: Output = None
    """Volume on the fixed grid, mm: standard deviation of the displacement. Takes up to as long
    as the registration.
    """

    transfer: list = dataclasses.field(default_factory=list)
    """Segmentations, label maps and markups of the moving side: for each, a new node on the fixed
    side is made.
    """
    fixed_labels: Any = None
    """Segmentation or label map of each side: their Dice is measured before and after. With
    ``labels_drive`` it only says how well the registration follows the labels.
    """
    moving_labels: Any = None

    def options(self) -> dict[str, Any]:
        """Return the engine options: the preset's, overridden by those that are set."""
        own = {name: getattr(self, name) for name in OVERRIDES if getattr(self, name) is not None}
        return {**PRESETS[self.preset].options, **self.further_options, **own}

    def validate(self) -> str:
        """Return why the request cannot run, in words for the user; an empty string when it can."""
        return validation.problem(self)
