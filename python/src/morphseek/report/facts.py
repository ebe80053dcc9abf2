"""The facts of one registration, as plain data for the templates."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from ..scoring import LandmarkErrors
from ..verdict import UNKNOWN, Verdict, explanation, notes
from .cards import described
from .inputs import Measures
from .views import Scene


def facts(scene: Scene, measures: Measures) -> dict[str, Any]:
    """Return what the templates of a registration read."""
    result, points = scene.result, measures.points
    metrics = result.metrics
    verdict = Verdict.of({**metrics, "fixed_grid": result.transform.grid.numbers})
    worst_first = sorted(measures.scores, key=lambda score: score.dice_after)
    labels = [{**vars(score), "name": measures.name(score.label)} for score in worst_first]
    pair = {"Fixed image": scene.fixed, "Moving image": scene.moving}
    plain: dict[str, Any] = {
        "metrics": metrics,
        "options": result.options,
        "verdict": verdict,
        "grade": verdict.grade if verdict else UNKNOWN,
        "notes": notes(metrics),
        "why": explanation(metrics),
        "images": [
            {"name": name, **described(image.array, image.grid)}
            for name, image in pair.items()
            if image is not None
        ],
        "has_before": scene.moving is not None,
        "has_outlines": scene.is_outlined,
        "tilt": scene.axes.tilt(),
        "labels": labels,
        "points": None if points is None else _points(points),
        "truth": measures.truth,
        "now": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
    if labels:
        for when in ("dice_before", "dice_after"):
            plain[when] = float(np.mean([label[when] for label in labels]))
    return plain


def _points(points: LandmarkErrors) -> dict[str, Any]:
    told = points.to_dict()["landmarks"]
    after, alone = told["after"], {"before_mm": None, "after_mm": None, "steered": False}
    rows = [{**row, "image": ""} for row in told["points"]]
    rows.sort(key=lambda row: -row["after_mm"])
    return {
        "rows": [*rows, *({**row, **alone} for row in told["one_image_only"])],
        "count": len(rows),
        "is_steering": told["steered"],
        "before_mm": told["before"]["mean_mm"],
        "after_mm": after["mean_mm"],
        "worst_mm": after["max_mm"],
    }
