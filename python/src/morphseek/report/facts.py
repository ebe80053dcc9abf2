"""What a page tells of one registration, and the figures at its head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .. import images
from ..result import Registration
from ..scoring import LabelScore, LandmarkErrors, mean_dice
from .views import Scene


@dataclasses.dataclass
class Facts:
    """What the page tells in words and numbers."""

    result: Registration
    fixed: images.Image | None
    moving: images.Image | None
    scene: Scene
    scores: Sequence[LabelScore] = ()
    names: dict[int, str] = dataclasses.field(default_factory=dict)
    points: LandmarkErrors | None = None
    command: str = ""
    title: str = ""
    truth: dict[str, Any] | None = None

    def name(self, label: int) -> str:
        return self.names.get(label, str(label))


def tiles(facts: Facts) -> list[tuple[str, str, str]]:
    """Return the figures at the head: what, value, remark."""
    m = facts.result.metrics
    found = [*_known_errors(facts), *_overlaps(facts)]
    found.append(
        (
            f"Similarity ({m['similarity']})",
            f"{m['similarity_after']:.3f}",
            f"before {m['similarity_before']:.3f}",
        )
    )
    folds = m["njd_percent"]
    found.append(("Folding (NJD)", f"{folds:.3f} %", "of all voxels" if folds else "none"))
    found.append(
        (
            "Volume change of a voxel",
            f"\u00d7{m['jacobian_min']:.2f} to \u00d7{m['jacobian_max']:.1f}",
            "",
        )
    )
    found.append(
        (
            "Mean displacement",
            f"{m['displacement_mean_mm']:.1f} mm",
            f"at most {m['displacement_max_mm']:.1f}",
        )
    )
    if spread := m.get("uncertainty"):
        remark = f"95 % below {spread['p95_mm']:.1f} mm"
        found.append(("Uncertainty", f"{spread['mean_mm']:.1f} mm", remark))
    cached = ", from the cache" if m["cached"] else ""
    remark = f"{m['device']}, {m['threads']} threads{cached}"
    found.append(("Time", f"{m['seconds']['total']:.1f} s", remark))
    return found


def _known_errors(facts: Facts) -> list[tuple[str, str, str]]:
    found = []
    if facts.truth:
        after, initial = facts.truth["after"], facts.truth["initial"]
        remark = (
            f"median {after['median_mm']:.1f}, 95 % below {after['p95_mm']:.1f}; by the initial"
            f" transform {initial['mean_mm']:.1f}"
        )
        found.append(("Mean error to the truth", f"{after['mean_mm']:.1f} mm", remark))
    if facts.points is not None:
        points = facts.points
        remark = f"before {points.before_mm.mean():.1f}, worst {points.after_mm.max():.1f} mm"
        part = " that steered" if any(points.steered) else ""
        name = f"Error at {len(points.names)} landmarks{part}"
        found.append((name, f"{points.after_mm.mean():.1f} mm", remark))
    return found


def _overlaps(facts: Facts) -> list[tuple[str, str, str]]:
    scores = facts.scores
    if not scores:
        return []
    found = [("Mean Dice", f"{mean_dice(scores):.3f}", f"before {mean_dice(scores, 'before'):.3f}")]
    if len(scores) > 1:
        worst = min(scores, key=lambda s: s.dice_after)
        found.append(("Worst label", f"{worst.dice_after:.3f}", facts.name(worst.label)))
    return found
