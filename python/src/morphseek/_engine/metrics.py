"""The metrics as types. Written by go generate from engine/metrics.go; do not edit."""

from __future__ import annotations

from typing import TypedDict


class Metrics(TypedDict):
    """Metrics is what a registration knows about itself."""

    # whether the result can be trusted
    verdict: Verdict
    # what the verdict goes by
    referee: RefereeMetrics
    # what was chosen for the pair, and why
    plan: PlanMetrics
    # plain words, for the user; what is among the verdict's reasons need not be shown twice
    warnings: list[str]
    # which measure the three values are of
    similarity: str
    # under the identity in physical space
    similarity_before: float
    # after the initial transform
    similarity_align: float
    # of the result
    similarity_after: float
    # share of the voxels where the transform folds (det(I + grad u) < 0), %
    njd_percent: float
    # standard deviation of the Jacobian determinant's logarithm
    sdlogj: float
    # least Jacobian determinant
    jacobian_min: float
    # greatest Jacobian determinant
    jacobian_max: float
    # mean length of the displacements
    displacement_mean_mm: float
    # greatest length of the displacements
    displacement_max_mm: float
    # the initial transform
    align: AlignMetrics
    # of the network; empty where none ran
    steps: list[StepMetrics]
    # how the refinement went
    refine: RefineMetrics
    # null unless the option asked for it
    uncertainty: UncertaintyMetrics | None
    # null unless the option asked for it
    symmetric: SymmetricMetrics | None
    # beside the first; null where there are none
    channels: list[ChannelMetrics]
    # how the result keeps to the landmarks that it was given; null without
    landmark_fit: LandmarkMetrics | None
    # of the library
    version: str
    # the network's name; "none" where no network ran
    model: str
    # that the networks really ran on
    device: str
    # of the random draws
    seed: int
    # that were used
    threads: int
    # "total" and by stage
    seconds: dict[str, float]
    # by how much the process's memory grew at most
    peak_bytes: int
    # taken from the folder of the option cache
    cached: bool


class Verdict(TypedDict):
    """Verdict says whether a registration can be trusted, as far as its images tell."""

    # "good" (nothing that was measured speaks against it), "check" (look before use) or "failed"
    # (do not use); "" where an older library saved the result
    grade: str
    # plain words; empty where it is good
    reasons: list[str]
    # estimated mean distance of points from where they belong
    error_mm: float


class RefereeMetrics(TypedDict):
    """RefereeMetrics is what the referee, whose measure no stage optimises, saw of the result."""

    # how much closer the deformation brought the images than the initial transform; 0 where there
    # is none
    gain: float
    # mean squared local correlation of the images, 0..1
    correlation: float
    # by what share they differ more when the initial transform is nudged: how sharply they fit
    start: float
    # the same of the result; 0 where start is large enough
    end: float
    # how far it was moved
    reach_mm: float
    # share of what the smaller of both images shows that the other one shows, too
    common: float
    # how much closer the images would be with one of them mirrored; 0 where they match too well to
    # ask
    mirrored: float
    # along which it was mirrored: "left and right", "front and back" or "head and foot"
    axis: str


class PlanMetrics(TypedDict):
    """PlanMetrics says what was chosen from the images, and why: empty where nothing was left to
    choose.
    """

    # the alignment from which the deformable stages start: as align's method, or "header" or
    # "given" where that was no better, "landmarks" where what fits these is taken, or "deformation"
    # where one was given
    start: str
    # as the option of this name
    similarity: str
    # the kind of pair by which the refinement was regularised; "" where it did not run
    regime: str
    # share of the search's displacement that counts, 0..1; 0 where it did not run
    search: float
    # squared local correlation at half the resolution after a smooth fit, 0..1: below 0.8 as two
    # people's, above 0.9 as one body's; 0 where intensities were not compared
    agreement: float
    # over which distance tissue moves together
    smoothness_mm: float
    # plain words, for the user
    reasons: list[str]
    # the numbers that the choices follow from, by name; those that are 0 are left out
    facts: dict[str, float]


class AlignMetrics(TypedDict):
    """AlignMetrics says how sure the initial transform is."""

    # none: the caller's transform stays, or the identity
    method: str
    # overlap-normalised feature similarity, 0..1
    score: float
    # 0..1: how well the images fit at the best place, times how far the next best is behind
    confidence: float
    # how far the next best place lies from it, mm, on average over the corners of the fixed image;
    # 0 where there is none
    rival_mm: float
    # fraction of the smaller field of view that overlaps
    overlap: float
    # whether the images' intensities correspond
    same_modality: bool
    # by which angle it turns the image further than the headers or the caller's transform do
    turn_degrees: float
    # row-major, fixed -> moving, LPS mm
    matrix: list[float]
    # fixed -> moving, LPS mm
    translation: list[float]


class StepMetrics(TypedDict):
    """StepMetrics is one network step."""

    # label-free, of the trajectory kept
    reward: float
    # which was kept; 0 is the mean
    trajectory: int
    # of the trajectory kept over its group, in standard deviations; 0 for one trajectory
    advantage: float
    # of the trajectory kept under the policy, with LDVN; 0 for one trajectory
    log_likelihood: float
    # voxels where the network's cumulative field folds, %
    njd_percent: float
    # an equal share each of steps that a GPU took in one run
    seconds: float


class RefineMetrics(TypedDict):
    """RefineMetrics is the refinement on the pair; empty where it did not run."""

    # as the option of this name
    similarity: str
    # coarse to fine
    levels: list[LevelMetrics]


class LevelMetrics(TypedDict):
    """LevelMetrics is how the refinement went at one resolution."""

    # of the grid
    spacing_mm: float
    # before each iteration
    similarity: list[float]


class LandmarkMetrics(TypedDict):
    """LandmarkMetrics says how a registration keeps to landmarks. Distances are root mean squares
    over the pairs that were not left out, mm.
    """

    # pairs that were given
    count: int
    # how exactly they were said to be marked
    error_mm: float
    # apart by the headers, or by the initial transform that was given
    before_mm: float
    # after the initial alignment
    initial_mm: float
    # after what the images ask for
    images_mm: float
    # by the result
    after_mm: float
    # each from where the pull of the others alone puts it; 0 where nothing was pulled
    cross_mm: float
    # over which each pulled at the rest; 0 where nothing was pulled: their error explains how far
    # apart the images left them, or they do not foretell each other
    reach_mm: float
    # pairs that contradict the rest
    left_out: list[str]


class UncertaintyMetrics(TypedDict):
    """UncertaintyMetrics says what the standard deviation of the displacement is, over the fixed
    mask or, without one, where the fixed image is brighter than its mean.
    """

    # "policy": trajectories of a network; "search": the costs of displacements about the result
    source: str
    # trajectories; 0 for the search
    samples: int
    # mean over the voxels
    mean_mm: float
    # 95 % of the voxels have less
    p95_mm: float


class SymmetricMetrics(TypedDict):
    """SymmetricMetrics says how far the two ways ended apart before their middle was taken: where a
    point lies, mm, that was carried there and back, over the fixed mask or, without one, where the
    fixed image is brighter than its mean.
    """

    # mean over the voxels
    mean_mm: float
    # 95 % of the voxels have less
    p95_mm: float


class ChannelMetrics(TypedDict):
    """ChannelMetrics says how one more image of both sides, or label map, came to match."""

    # as it was given, or its number
    name: str
    # beside the 1 of the first
    weight: float
    # of images, as the option of this name; "labels"
    similarity: str
    # that both maps have; 0 of images
    labels: int
    # after the initial transform: mean squared local correlation of images, mean Jaccard index of
    # labels
    before: float
    # the same of the result
    after: float
