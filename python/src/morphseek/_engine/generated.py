"""The options as types. Written by go generate from engine/internal/option; do not edit."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):
    from typing import Unpack
else:  # stands for it where types are looked at while a program runs
    from typing import Optional as Unpack

__all__ = ["Options", "Unpack"]


class Options(TypedDict, total=False):
    """The options of :func:`morphseek.register`; None leaves one at its default.

    Examples
    --------
    >>> quick: Options = {"preset": "fast", "threads": 2}
    >>> sorted(quick)
    ['preset', 'threads']
    """

    preset: Literal["fast", "default", "best"] | str | os.PathLike[str] | None
    """How much work to spend: fast, default or best. Options set explicitly override it."""
    model: str | os.PathLike[str] | None
    """Model bundle: a built-in name, a path to a .onnx bundle, 'default' (chosen by the library) or
    'none' (no network).
    """
    initial: Literal["none", "com", "rigid", "affine"] | None
    """Initial alignment found before the deformable stages; an initial transform that is given is
    where rigid and affine start, and stays as it is with none and com.
    """
    search: Literal["auto"] | bool | None
    """Discrete search for large displacements after the initial alignment; auto searches where no
    network runs and a smooth fit does not find the match.
    """
    steps: int | None
    """Network steps T; by default as many as the model was trained with."""
    trajectories: int | None
    """Latent trajectories J per step; the best by the label-free reward is kept, the mean always
    among them.
    """
    tau: float | None
    """Temperature of the latent samples when trajectories > 1."""
    refine: int | None
    """Gradient iterations on the pair at hand at the finest resolution, twice as many at each
    coarser one; by default as many as the preset says, and none after a network. 0 switches them
    off.
    """
    similarity: Literal["auto", "ncc", "mse", "mind"] | None
    """Similarity for the refinement; auto takes ncc for one modality and mind for two, by the joint
    histogram and by how the contrast between the images varies from place to place. Where a curve
    maps one contrast to the other, auto ends with ncc of the mapped image. With mind the search
    compares no intensities.
    """
    device: str | None
    """Where networks run; auto takes cuda where it is to be had, else the CPU, and says so.
    plugin:PATH runs them on an ONNX Runtime plugin provider's library.
    """
    threads: int | None
    """CPU threads; by default one for every core."""
    seed: int | None
    """Seed of every random draw."""
    cache: str | os.PathLike[str] | None
    """Folder that keeps finished results, readable by its owner alone: the same inputs and options
    are not computed twice; by default nothing is kept.
    """
    uncertainty: bool | None
    """Also give the standard deviation of the displacement at every voxel, mm: over trajectories of
    the network's policy (16, or as many as the option says) or, where no network runs, from the
    search's costs of other displacements, whether or not it ran. Takes about as long as that stage,
    the network's once a trajectory.
    """
    smoothness: Literal["auto", "low", "high"] | float | None
    """Over which distance tissue moves together, in the search and the refinement: low follows fine
    detail, as between two people; high keeps tissue together, as within one; auto chooses from the
    images; or a number of mm.
    """
    along: Literal["all", "i", "j", "k", "ij", "ik", "jk"] | None
    """Axes of the fixed image's voxel grid along which the search and the refinement may move
    tissue: i is the first axis of the file, j the second, k the third, as in BIDS. One axis suits a
    distortion along the phase encoding, two a motion within slices. The initial alignment is not
    held to them.
    """
    symmetric: bool | None
    """Register both ways and take the map in the middle: whichever image is called fixed, one map
    is the other's inverse, to some hundredths of a voxel. For follow-up studies, which measure
    change. Takes about twice the time.
    """
    landmark_error: float | None
    """How exactly the landmarks were marked, mm, so that they steer: the root mean square distance
    between two who mark the same point, 1 to 2 for clear ones; by default they do not steer. They
    correct an alignment or a deformation that the images led away from them by more than that.
    """
