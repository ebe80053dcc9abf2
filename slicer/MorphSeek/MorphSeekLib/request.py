"""Describes a registration: the interface between the panel, or a script, and the library.

The panel and scripts use it in this way:

>>> request = RegistrationRequest(fixed=fixedNode, moving=movingNode, preset="MR <- CT")
>>> reason = request.validate()            # "" when it can run, otherwise why it cannot
>>> registration = Registration(request)   # MorphSeekLib.registration
>>> registration.start()                   # writes the inputs, starts the worker, returns
>>> while registration.running:            # by a QTimer in the panel; .wait() in a script
...     for event in registration.poll():  # events since the last call; the last makes the nodes
...         show(event)
>>> registration.state                     # "finished", "failed" or "cancelled"
>>> registration.result                    # metrics (dict) when finished
>>> registration.nodes                     # output name -> node; "transferred" -> list of nodes
>>> registration.error                     # when failed: RegistrationError with name and code
>>> registration.cancel()                  # ends the worker before it returns; makes no node
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple, Union

from . import geometry

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
    "align": "Initial alignment",
    "look": "Look at the pair",
    "search": "Search for large displacements",
    "network": "Network",
    "refine": "Refinement",
    "landmarks": "Landmarks",
    "reverse": "Registration the other way",
    "uncertainty": "Uncertainty",
    "finish": "Measuring",
    "outputs": "Making the outputs",
}
"""The name of each stage on the progress bar."""


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named choice of engine options."""

    name: str
    description: str
    """What it is for: a sentence for the tool tip."""
    options: dict[str, Any]
    """The engine options that it sets; all others keep the engine's defaults."""


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "Automatic",
            "Any two volumes of the same part of the body; whether they are of one modality is"
            " found from the images.",
            {},
        ),
        Preset(
            "Brain MR",
            "Brain MR of one kind (T1 with T1, say), one person or two: no search, because an"
            " affine alignment leaves small displacements only.",
            {"search": "off", "similarity": "ncc"},
        ),
        Preset(
            "Abdomen CT",
            "CT with CT, or MR with MR of one kind: searches for organs that lie centimetres apart,"
            " then compares intensities.",
            {"search": "on", "similarity": "ncc"},
        ),
        Preset(
            "MR <- CT",
            "MR with CT, or any two modalities: searches for large displacements, and compares"
            " structure instead of intensity.",
            {"search": "on", "similarity": "mind"},
        ),
        Preset(
            "Fast",
            "A first look: as Automatic, with the refinement on a coarser grid.",
            {"preset": "fast"},
        ),
        Preset(
            "Best",
            "As Automatic, with more iterations on a finer grid: several times slower.",
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
"""Fields of :class:`RegistrationRequest` that override the engine option of the same name when they
are not None. Their types, ranges, defaults and help texts are the engine's own:
``process.describe()["options"]``.
"""


def further(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the engine's options that have no field of their own in a request."""
    elsewhere = {*OVERRIDES, "preset", "uncertainty"}
    return [option for option in table if option["name"] not in elsewhere]


SMOOTHNESS = ("auto", "low", "high")
"""The words that smoothness may be; otherwise it is a number of mm."""

OUTPUTS = (
    "transformed_volume",
    "transform",
    "inverse_transform",
    "displacement_magnitude",
    "jacobian",
    "uncertainty",
)
"""Fields of :class:`RegistrationRequest` whose type is :data:`Output`."""


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
    """Key of :data:`PRESETS`."""
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
    """Engine options without a field of their own, by name: those that :func:`further` lists."""
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
    """Volume on the fixed grid, mm: standard deviation of the displacement. Needs the search or a
    network, and takes as long again.
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

    def stages(self) -> list[str]:
        """Return what will run, one line a stage, in plain words for the Advanced section."""
        option = {
            "initial": "affine",
            "search": "auto",
            "similarity": "auto",
            "refine": -1,
            "model": "default",
            "preset": "default",
            "smoothness": "auto",
            **self.options(),
        }
        named = option["model"] not in ("default", "none")
        compare = {
            "auto": "local correlation for one modality, structure (MIND) for two",
            "ncc": "local correlation",
            "mse": "mean squared difference",
            "mind": "structure (MIND)",
        }[option["similarity"]]
        effort = {"fast": "coarse", "default": "standard", "best": "fine"}[
            option["preset"]
        ] + " resolution"
        initial = {
            "none": "none",
            "com": "centres of mass",
            "rigid": "rigid, by global search",
            "affine": "affine, by global search",
        }
        node = self.initial_transform
        bent = node is not None and not node.IsTransformToWorldLinear()
        start = "that of the initial transform" if bent else initial[option["initial"]]
        lines = [f"Initial alignment: {start}"]
        if option["search"] == "on" or option["search"] == "auto" and not named and not bent:
            lines.append(
                "Search for large displacements"
                + ("" if option["search"] == "on" else ", unless the volumes match well already")
            )
        if drive := [*self._channel_names(), *["the labels"] * self.labels_drive]:
            lines.append(f"Driven by {', '.join(drive)}, too")
        if named:
            lines.append(f"Network: {Path(option['model']).name}")
        if option["refine"] > 0 or option["refine"] < 0 and not named:
            count = f", {option['refine']} iterations" if option["refine"] > 0 else ""
            lines.append(f"Refinement: {compare}, {effort}{count}")
        smoothness, deforms = (
            option["smoothness"],
            any(line.startswith(("Search", "Refinement")) for line in lines),
        )
        if smoothness != "auto" and deforms:
            lines.append(
                f"Smoothness: {smoothness if smoothness in SMOOTHNESS else f'{smoothness} mm'}"
            )
        if self.uncertainty:
            lines.append(
                f"Uncertainty: {'samples of the network' if named else 'a search about the result'}"
            )
        return lines

    def validate(self) -> str:
        """Return why the request cannot run, in words for the user; an empty string when it can."""
        if self.fixed is None and self.moving is None:
            return "Select the fixed and the moving volume"
        for name in ("fixed", "moving"):
            node = getattr(self, name)
            if node is None:
                return f"Select the {name} volume"
            if reason := _volume_problem(node):
                return f"The {name} volume {reason}"
        if self.fixed is self.moving:
            return "The fixed and the moving volume are the same: select two"
        if self.preset not in PRESETS:
            return f"There is no preset {self.preset!r}; choose one of {', '.join(PRESETS)}"
        for name in (
            "fixed_mask", "moving_mask", "rigid_regions", "fixed_labels", "moving_labels"
        ):  # fmt: skip
            if reason := _labels_problem(getattr(self, name)):
                said = "map of rigid regions" if name == "rigid_regions" else name
                return f"The {said.replace('_', ' ')} {reason}"
        for node in (
            self.fixed_mask,
            self.moving_mask,
            self.rigid_regions,
            self.fixed_labels,
            self.moving_labels,
            *self.transfer,
        ):
            if node is not None and (reason := geometry.labels_problem(node)):
                return reason
        for problem in (self._landmarks_problem, self._channels_problem, self._dice_problem):
            if reason := problem():
                return reason
        if reason := self._initial_problem():
            return f"The initial transform {reason}"
        for node in self.transfer:
            if not (_is_labels(node) or _is_points(node)):
                return (
                    f"{node.GetName()} cannot be transferred: it is no segmentation, label map, or"
                    " markups of points"
                )
            if _is_labels(node) and (reason := _labels_problem(node)):
                return f"{node.GetName()} {reason}"
        if (
            self.smoothness is not None
            and self.smoothness not in SMOOTHNESS
            and not _is_number(self.smoothness)
        ):
            return f"The smoothness must be {', '.join(SMOOTHNESS)} or a number of mm"
        if self.field_spacing < 0:
            return "The field spacing must be 0 (the fixed grid) or more"
        if self.model and self.model.endswith(".onnx") and not Path(self.model).is_file():
            return f"There is no model file {self.model}"
        return self._outputs_problem()

    def _landmarks_problem(self) -> str:
        nodes = {name: getattr(self, f"{name}_landmarks") for name in ("fixed", "moving")}
        if all(node is None for node in nodes.values()):
            return ""
        for name, node in nodes.items():
            if node is None:
                return f"Select the {name} landmarks, too: both volumes need theirs"
            if not _is_points(node):
                return f"The {name} landmarks ({node.GetName()}) are no markups of points"
            if not node.GetNumberOfDefinedControlPoints():
                return f"The {name} landmarks ({node.GetName()}) have no point: mark some"
        if not self.options().get("landmark_error"):
            return "Set the landmark error: how exactly the landmarks were marked, in mm (1 to 2)"
        return ""

    def _channel_names(self) -> list[str]:
        """Return the channels' names in messages, from their fixed volumes; incomplete channels are
        left out.
        """
        return [fixed.GetName() for fixed, moving in self.channels if fixed and moving]

    def _channels_problem(self) -> str:
        for pair in self.channels:
            for name, node in zip(("fixed", "moving"), pair):
                if node is None:
                    return f"Select the second {name} volume, too: both sides need theirs"
                if reason := _volume_problem(node):
                    return f"The second {name} volume ({node.GetName()}) {reason}"
            if pair[0] is self.fixed and pair[1] is self.moving:
                return "The second volumes are the same as the first ones: select others"
        if self.labels_drive and (self.fixed_labels is None or self.moving_labels is None):
            return "To let labels drive the registration, select the labels of both sides"
        return ""

    def _initial_problem(self) -> str:
        node = self.initial_transform
        if node is None:
            return ""
        if not node.IsA("vtkMRMLTransformNode"):
            return "is no transform: select a transform node"
        if is_under(self.moving, node):
            return (
                "is on the moving volume already: remove it from the volume, or leave the initial"
                " transform empty"
            )
        return ""

    def _dice_problem(self) -> str:
        fixed, moving = self.fixed_labels, self.moving_labels
        if (fixed is None) != (moving is None):
            return "To measure Dice, select the labels of both sides; else select none"
        if fixed is None:
            return ""
        if fixed.GetClassName() != moving.GetClassName():
            return "To measure Dice, select two segmentations or two label maps"
        if fixed.IsA("vtkMRMLSegmentationNode"):
            ours, theirs = _segment_names(fixed), _segment_names(moving)
            if not {*ours} & {*theirs}:
                return (
                    "To measure Dice, give the segments of both sides the same names: now they have"
                    " none in common"
                )
            if twice := next(
                (name for names in (ours, theirs) for name in names if names.count(name) > 1), None
            ):
                return f"To measure Dice, give each segment a name of its own: {twice} occurs twice"
        return ""

    def _outputs_problem(self) -> str:
        chosen = [getattr(self, name) for name in OUTPUTS]
        if not any(chosen) and not self.transfer and self.fixed_labels is None:
            return "Select at least one output"
        for name, node in zip(OUTPUTS, chosen):
            if node and node is not True and not _can_be(node, name):
                return (
                    f"{node.GetName()} cannot be the {name.replace('_', ' ')}: select another node"
                )
        nodes = [node for node in chosen if node and node is not True]
        inputs = [
            self.fixed,
            self.moving,
            self.fixed_mask,
            self.moving_mask,
            self.rigid_regions,
            self.fixed_landmarks,
            self.moving_landmarks,
            self.initial_transform,
            self.fixed_labels,
            self.moving_labels,
            *(node for pair in self.channels for node in pair),
            *self.transfer,
        ]
        for i, node in enumerate(nodes):
            if any(node is other for other in inputs):
                return f"{node.GetName()} is an input: select another node for the output"
            if any(node is other for other in nodes[:i]):
                return f"{node.GetName()} is selected for two outputs"
            if under := next(
                (other for other in inputs if other is not None and is_under(other, node)), None
            ):
                return (
                    f"{under.GetName()} lies under {node.GetName()}, which would be overwritten:"
                    " remove it from that transform, or select another output"
                )
        return ""


def is_under(node: Any, transform: Any) -> bool:
    """Whether a transform is one of the transforms above a node."""
    parent = node.GetParentTransformNode() if node.IsA("vtkMRMLTransformableNode") else None
    return parent is not None and (parent is transform or parent.IsTransformNodeMyParent(transform))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_labels(node: Any) -> bool:
    return node.IsA("vtkMRMLSegmentationNode") or node.IsA("vtkMRMLLabelMapVolumeNode")


def _is_points(node: Any) -> bool:
    return (
        node.IsA("vtkMRMLMarkupsNode")
        and not node.IsA("vtkMRMLMarkupsROINode")
        and not node.IsA("vtkMRMLMarkupsPlaneNode")
    )


def _segment_names(node: Any) -> list[str]:
    segmentation = node.GetSegmentation()
    return [
        segmentation.GetNthSegment(i).GetName() for i in range(segmentation.GetNumberOfSegments())
    ]


def _can_be(node: Any, output: str) -> bool:
    if output in ("transform", "inverse_transform"):
        return node.GetClassName() in ("vtkMRMLTransformNode", "vtkMRMLGridTransformNode")
    return node.GetClassName() == "vtkMRMLScalarVolumeNode"


def _volume_problem(node: Any) -> str:
    if not node.IsA("vtkMRMLScalarVolumeNode"):
        return "is no scalar volume"
    image = node.GetImageData()
    if image is None or not image.GetPointData().GetScalars():
        return "holds no image"
    if image.GetNumberOfScalarComponents() != 1:
        return (
            f"has {image.GetNumberOfScalarComponents()} components a voxel; select a scalar volume"
        )
    if min(image.GetDimensions()) < 2:
        return "is a single slice; registration needs a 3-D volume"
    return ""


def _labels_problem(node: Any) -> str:
    if node is None:
        return ""
    if not _is_labels(node):
        return "is neither a segmentation nor a label map"
    if node.IsA("vtkMRMLSegmentationNode"):
        return "" if node.GetSegmentation().GetNumberOfSegments() else "has no segments"
    return "" if node.GetImageData() is not None else "holds no image"
