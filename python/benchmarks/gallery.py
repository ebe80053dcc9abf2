"""Makes the gallery: a picture a kind of image, each a made-up pair of the zoo with its verdict and
its error at points, the failed one too: benchmarks/everything.py --part gallery.
"""

from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
import truth
import zoo
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

import morphseek
from morphseek.report.axes import ACROSS_DOWN
from morphseek.report.views import Scene

BACKGROUND, TEXT = "#14181b", "#c9d1d6"

#: File's name: kind of the zoo, seed; the kind in words; what to see.
SHOWN = {
    "ct": ("torso CT", 1, "CT, two breaths", ""),
    "mr-ct": ("torso MR <- CT", 1, "MR <- CT", ""),
    "noise": ("torso CT, noise", 1, "CT with strong noise", ""),
    "speckle": ("torso MR, speckle", 1, "MR with strong speckle", ""),
    "thick-slices": ("torso MR <- CT, slices of 12 mm", 1, "MR <- CT, slices of 12 mm", ""),
    "partial-view": ("torso CT, partial view", 1, "CT, only a part is in view", ""),
    "head": ("made-up head, two contrasts", 1, "a head in two contrasts", ""),
    "limb": ("made-up limb, two contrasts", 1, "a limb in two contrasts", ""),
    "resection": (
        "torso CT, resection", 1, "a piece is missing in one image",
        "nothing belongs in the hole; around it the field is a guess",
    ),
    "sliding": (
        "torso CT, sliding", 1, "organs slide along the wall",
        "the field is smooth, and tissue is not",
    ),
    "wrong": (
        "made-up head, two contrasts", 13, "a head in two contrasts",
        "the skull of one image may lie on the scalp of the other",
    ),
    "another-body": (  # its moving image is OTHER's
        "torso CT", 1, "a torso, and a limb as the moving image",
        "the picture shows that it is nonsense",
    ),
}  # fmt: skip
OTHER = ("made-up limb", 1)


def pair_of(kind: str, seed: int) -> truth.Pair:
    return next(zoo.kinds(zoo.Settings(n=1))[kind].make(seed))


def draw(name: str, folder: Path) -> dict[str, Any]:
    """Writes the picture; returns the row of the page's table."""
    kind, seed, words, see = SHOWN[name]
    pair = pair_of(kind, seed)
    moving_from = pair_of(*OTHER) if name == "another-body" else pair
    fixed, moving = (
        sitk.Cast(image, sitk.sitkFloat32) for image in (pair.fixed, moving_from.moving)
    )
    result = morphseek.register(fixed, moving, threads=1)
    scene = Scene(result, morphseek.images.read(fixed), morphseek.images.read(moving))
    at, sizes, windows = scene.middle(), scene.sizes_mm(), scene.windows
    dark, bright = windows["fixed"]
    level = dark + 0.35 * (bright - dark)
    figure = Figure(figsize=(7.2, 2.5), facecolor=BACKGROUND, dpi=90)
    plane = max(range(3), key=lambda p: sizes[p][0] * sizes[p][1] * (0.9 if p == 0 else 1))
    for column, (title, image) in enumerate(
        (("fixed", "fixed"), ("moving", "before"), ("warped", "after"))
    ):
        axes = figure.add_axes((column / 3 + 0.004, 0.01, 1 / 3 - 0.008, 0.88))
        low, high = windows["fixed" if image == "fixed" else "moving"]
        shown = scene.slices(image, at)[plane]
        extent = (0, sizes[plane][1], sizes[plane][0], 0)
        axes.imshow(shown, cmap="gray", vmin=low, vmax=high, extent=extent)
        axes.set_axis_off()
        axes.set_title(title, color=TEXT, fontsize=9, pad=3)
        if image != "before":  # the same outlines over fixed and warped: they must fit both
            spacing = [scene.spacing[axis] for axis in ACROSS_DOWN[plane]]
            outlined = scene.slices("fixed", at)[plane]
            across, down = ((np.arange(n) + 0.5) * s for n, s in zip(outlined.shape[::-1], spacing))
            outlined = gaussian_filter(outlined.astype(float), 1.2)  # noise has no outline
            axes.contour(across, down, outlined, [level], colors="#4fb3d9", linewidths=0.6)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.jpg", facecolor=BACKGROUND, pil_kwargs={"quality": 80})
    verdict = result.verdict
    row: dict[str, Any] = {"name": name, "kind": words, "affine": None, "error": None}
    if moving_from is pair:
        row["affine"] = pair.error(result.transform.stage("initial"))
        row["error"] = pair.error(result)
    return {**row, "estimated": verdict.error_mm, "verdict": verdict.grade, "see": see}
