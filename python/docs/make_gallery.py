"""Makes docs/img/gallery/: a picture a kind of image, each a made-up pair of the zoo with its
verdict and its error at points, the failed one too (extras: morphseek[plot,training]).

    python docs/make_gallery.py [NAME ...]
"""

import sys
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import truth
import zoo

import morphseek
from morphseek.report.axes import ACROSS_DOWN
from morphseek.report.views import Scene

BACKGROUND, TEXT = "#14181b", "#c9d1d6"
FOLDER = Path(__file__).parent / "img" / "gallery"

#: File's name: kind, seed, number of the pair.
SHOWN = {
    "ct": ("torso CT", 1, 0),
    "mr-ct": ("torso MR <- CT", 1, 0),
    "noise": ("torso CT, noise", 1, 0),
    "speckle": ("torso MR, speckle", 1, 0),
    "thick-slices": ("torso MR <- CT, slices of 12 mm", 1, 0),
    "partial-view": ("torso CT, partial view", 1, 0),
    "resection": ("torso CT, resection", 1, 0),
    "sliding": ("torso CT, sliding", 1, 0),
    "head": ("made-up head, two contrasts", 1, 0),
    "limb": ("made-up limb, two contrasts", 1, 0),
    "wrong": ("made-up head, two contrasts", 13, 0),
    "another-body": ("torso CT", 1, 0),  # its moving image is OTHER's
}
OTHER = ("made-up limb", 1, 0)


def pair_of(kind: str, seed: int, number: int) -> truth.Pair:
    return list(zoo.kinds(zoo.Settings(n=number + 1))[kind].make(seed))[number]


def errors_mm(result: morphseek.Registration, pair: truth.Pair) -> tuple[float, float]:
    """Mean distances of the carried points from where they truly lie: by the affine that the result
    begins with, and by all of it.
    """
    assert pair.fixed_points is not None and pair.moving_points is not None
    affine = (
        pair.fixed_points @ result.transform.initial[:3, :3].T + result.transform.initial[:3, 3]
    )
    both = (affine, result.transform_points(pair.fixed_points))
    before, after = (
        float(np.linalg.norm(there - pair.moving_points, axis=1).mean()) for there in both
    )
    return before, after


def draw(name: str, kind: str, seed: int, number: int) -> str:
    """Writes the picture; returns the row of the page's table."""
    pair = pair_of(kind, seed, number)
    moving_from = pair_of(*OTHER) if name == "another-body" else pair
    fixed, moving = (
        sitk.Cast(image, sitk.sitkFloat32) for image in (pair.fixed, moving_from.moving)
    )
    result = morphseek.register(fixed, moving)
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
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.jpg"
    figure.savefig(path, facecolor=BACKGROUND, pil_kwargs={"quality": 80})
    verdict = result.verdict
    affine, final = errors_mm(result, pair)
    return (
        f"{name}: {kind}: affine {affine:.2f} mm, result {final:.2f} mm, verdict {verdict.grade}"
        f" (estimated {verdict.error_mm:.2f} mm) {'; '.join(verdict.reasons)}"
        f" [{path.stat().st_size / 1000:.0f} kB]"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or SHOWN:
        print(draw(name, *SHOWN[name]), flush=True)
