"""Whether another choice than the plan's would have been better: every candidate of CANDIDATES on
pairs whose truth is known, and how near a learned choice comes to the best of them.

python choices.py --out FOLDER --data DIR appends a JSON line a pair and candidate to
FOLDER/rows.jsonl, prints the tables and draws FOLDER/choices.png. What is in the file is not run
again, so that a run that was killed, or ended by --minutes, goes on. --table-only runs nothing.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scoring
import SimpleITK as sitk
import truth
import typer
import zoo
from numpy.typing import NDArray
from scipy import ndimage

import morphseek
from morphseek.errors import MorphSeekError

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What a user could have asked for instead of the defaults.

    Attributes
    ----------
    initial, similarity, search : str
        As the options of these names.
    width : float, optional
        Over which distance tissue moves together, in voxels; None leaves it to the plan.
    deforms : bool
        False stops after the initial alignment.
    """

    initial: str = "affine"
    similarity: str = "auto"
    search: str = "auto"
    width: float | None = None
    deforms: bool = True

    def options(self, voxel_mm: float) -> Row:
        """Return the keywords of :func:`morphseek.register`."""
        asked: Row = {"initial": self.initial, "similarity": self.similarity}
        if not self.deforms:
            return asked | {"search": "off", "refine": 0}
        width = "auto" if self.width is None else float(np.clip(self.width * voxel_mm, 0.1, 100))
        return asked | {"search": self.search, "smoothness": width}


PLAN, HEADER = "plan", "header"

CANDIDATES = {
    PLAN: Candidate(),
    HEADER: Candidate("none", deforms=False),
    "affine alone": Candidate(deforms=False),
    "rigid alone": Candidate("rigid", deforms=False),
    "rigid": Candidate("rigid"),
    "from the header": Candidate("none"),
    "mse": Candidate(similarity="mse"),
    "2.5 voxels": Candidate(width=2.5),
    "6 voxels": Candidate(width=6),
    **{f"rigid, {s}": Candidate("rigid", s) for s in ("ncc", "mind")},
    **{
        f"{s}, search {search}" + ("" if width is None else f", {width:g} voxels"): Candidate(
            similarity=s, search=search, width=width
        )
        for s in ("ncc", "mind")
        for search in ("off", "on")
        for width in (None, 1.5, 4, 9)
    },
}
"""Name to candidate: a star around the plan, and similarity x search x width as a full product."""

KINDS = (
    "hippocampus",
    "torso MR <- CT",
    "made-up head",
    "head template, two contrasts",
    "torso CT, cropped",
    "hippocampus, two contrasts",
    "made-up limb, two contrasts",
    "torso CT, resection",
    "torso MR, speckle",
    "head template, resection",
    "made-up medley",
    "hippocampus, noise",
    "torso MR <- CT, cropped",
    "torso CT, noise",
    "made-up head, two contrasts",
    "torso CT, sliding",
    "head template, noise",
    "torso CT, two contrasts",
    "made-up medley, two contrasts",
    "torso MR, bias",
    "torso CT, slices of 12 mm",
    "made-up limb",
    "torso MR <- CT, sliding",
    "torso CT, partial view",
    "head template",
    "torso MR <- CT, noise",
    "torso CT",
    "head template, slices of 5 mm",
    "torso MR <- CT, partial view",
    "torso MR",
)
"""What is run unless --kinds says otherwise, bodies by turns: a run that ends early has of each."""


# -------------------------------------------------------------------------------------- Collecting


def voxel_of(image: sitk.Image) -> float:
    """Return the edge of a cube of a voxel's volume, mm."""
    return float(np.prod(image.GetSpacing()) ** (1 / 3))


def noise_of(image: sitk.Image) -> float:
    """Return the noise of an image as a share of its range: the median absolute difference of
    neighbours along every axis, where there is tissue.
    """
    array = truth.array_of(truth.scaled(image))
    steps = np.stack(
        [array - (np.roll(array, 1, k) + np.roll(array, -1, k)) / 2 for k in range(3)]
    )
    tissue = (array > truth.FOREGROUND) & (array < 1)
    if not tissue.any():
        return 0.0
    return float(1.4826 * np.median(np.abs(steps[:, tissue])) / np.sqrt(1.5))


def local_correlation(a: NDArray[Any], b: NDArray[Any], window: int = 7) -> tuple[float, float]:
    """Return the mean squared correlation of two arrays (z, y, x) within windows of so many
    voxels, weighted by their variance, and the share of it that is negative.
    """
    a, b = (x.astype(np.float64) for x in (a, b))

    def mean(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return ndimage.uniform_filter(x, window, mode="nearest")

    cross = mean(a * b) - mean(a) * mean(b)
    variances = [np.maximum(mean(x * x) - mean(x) ** 2, 0) for x in (a, b)]
    weight = np.sqrt(variances[0] * variances[1])
    seen = weight > 1e-3 * weight.max()
    squared = np.where(seen, cross**2 / np.maximum(variances[0] * variances[1], 1e-12), 0).clip(0, 1)
    total = float((weight * squared).sum())
    share = float((weight * squared)[cross < 0].sum()) / max(total, 1e-12)
    return total / max(float(weight[seen].sum()), 1e-12), share


def run_one(pair: truth.Pair, candidate: Candidate) -> Row:
    """Register a pair by a candidate, one thread, and return its error at the known points (mm)
    with what the registration measured. A failure has the error from before.
    """
    started = time.process_time()
    before = scoring.spread(np.linalg.norm(pair.fixed_points - pair.moving_points, axis=1))
    if candidate == CANDIDATES[HEADER]:
        return {"error": before["mean"], "cpu_seconds": 0.0, "status": "ok"}
    try:
        result = morphseek.register(
            pair.fixed, pair.moving, threads=1, **candidate.options(voxel_of(pair.fixed))
        )
    except MorphSeekError as error:
        return {
            "error": before["mean"],
            "cpu_seconds": time.process_time() - started,
            "status": f"failed: {error}",
        }
    seconds = time.process_time() - started
    found = result.transform_points(pair.fixed_points)
    m = result.metrics
    squared, negative = local_correlation(truth.array_of(pair.fixed), np.asarray(result.warped))
    return {
        "error": scoring.spread(np.linalg.norm(found - pair.moving_points, axis=1))["mean"],
        "cpu_seconds": seconds,
        "status": "ok",
        "facts": {
            **{f"align {k}": float(m["align"][k]) for k in ALIGN},
            **{f"plan {k}": float(m["plan"][k]) for k in ("agreement", "search", "smoothness_mm")},
            "plan start": m["plan"]["start"],
            "plan similarity": m["plan"]["similarity"],
            **{f"referee {k}": float(m["referee"][k]) for k in REFEREE},
            **{k: float(m[k]) for k in MEASURED},
            "error_mm": float(m["verdict"]["error_mm"] or 0),
            "local correlation": squared,
            "negative": negative,
        },
    }


ALIGN = ("score", "confidence", "overlap", "same_modality", "turn_degrees")
REFEREE = ("gain", "correlation", "start", "end", "reach_mm", "common", "mirrored")
MEASURED = ("similarity_before", "similarity_align", "similarity_after", "sdlogj", "njd_percent")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file, none where it is not there; a last line that a kill cut off is
    left out.
    """
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(json.loads(line))
    return rows


def collect(
    path: Path, chosen: list[zoo.Kind], seeds: list[int], names: list[str], until: float
) -> Iterator[Row]:
    """Run what the file lacks, append it line by line, and yield each new row; stop at `until`
    (:func:`time.monotonic`).
    """
    kept = read_rows(path)
    # without what a kill left of a line
    if path.exists():
        path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    done = {(row["kind"], row["seed"], row["pair"], row["candidate"]) for row in kept}
    with path.open("a", encoding="utf-8") as file:
        for kind in chosen:
            for seed in seeds:
                for pair in kind.make(seed):
                    if pair.fixed_points is None:
                        continue
                    head = {"kind": kind.name, "seed": seed, "pair": pair.name}
                    image: Row | None = None
                    for name in names:
                        if (kind.name, seed, pair.name, name) in done:
                            continue
                        if time.monotonic() > until:
                            return
                        image = image or {
                            "voxel_mm": voxel_of(pair.fixed),
                            "voxels": int(np.prod(pair.fixed.GetSize())),
                            "anisotropy": [
                                max(i.GetSpacing()) / min(i.GetSpacing())
                                for i in (pair.fixed, pair.moving)
                            ],
                            "noise": [noise_of(i) for i in (pair.fixed, pair.moving)],
                        }
                        row = {
                            **head,
                            "candidate": name,
                            **image,
                            **run_one(pair, CANDIDATES[name]),
                            "version": morphseek.__version__,
                        }
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        yield row
