"""Data of a page's viewer: the volumes, coarse maps of the field, and the worst places."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._grid import mapped
from ..scoring import LandmarkErrors
from . import pack
from .inputs import Measures
from .maps import Maps
from .places import jumps
from .render import render
from .views import MOST_LABELS, Scene


def of(scene: Scene, measures: Measures, room: int) -> str:
    """Return all that the viewer shows as HTML of so many bytes at most, coarser if need be."""
    halved: list[str] = []
    while True:
        for bits in (8, 7):
            smallest = bits == 7 and max(scene.shape) < 64
            if smallest or _estimate(scene, bits) < room:
                data = _packed(scene, measures, bits, _what_was_done(scene, bits, halved))
                if smallest or len(data) <= room:
                    return data
        halved.append(("left-right", "front-back", "head-foot")[scene.halve()])


def _packed(scene: Scene, measures: Measures, bits: int, coarseness: str) -> str:
    maps = Maps(scene, measures.error)
    listed, texts = [], {}
    for name, volume in {**scene.volumes, **maps.volumes}.items():
        depth = bits if volume.image else 8
        size, halves = list(volume.array.shape[::-1]), volume.halves[::-1]
        sizes = {"size": size, "halves": halves, "bits": depth}
        listed.append({"id": name, **sizes, "linear": volume.image})
        texts[name] = pack.packed(volume.array, depth)
    meta = {
        "size": list(scene.shape[::-1]),
        "spacing": scene.spacing,
        "toMm": scene.to_mm[:3].tolist(),
        "toVoxel": scene.to_index[:3].tolist(),
        "initial": scene.result.transform.initial[:3].tolist(),
        "letters": scene.axes.letters(),
        "tilt": round(scene.axes.tilt(), 1),
        "ranges": scene.ranges,
        "windows": scene.windows,
        "same": bool(scene.result.metrics["align"]["same_modality"]),
        "labels": _label_list(scene, measures),
        "landmarks": _landmark_list(scene, measures.points),
        "field": maps.field,
        "maps": maps.scales,
        "said": coarseness,
        "jumps": jumps(scene, maps, measures),
        "volumes": listed,
    }
    return render("data.html.j2", meta=meta, volumes=texts)


def _estimate(scene: Scene, bits: int) -> float:
    """Return about how many bytes the volumes take, and the maps of the field."""
    sizes = (pack.estimate(v.array, bits if v.image else 8) for v in scene.volumes.values())
    voxels = scene.volumes["after"].array.size
    return 40_000 + sum(sizes) + 0.2 * voxels / (8 if scene.large else 1)


def _what_was_done(scene: Scene, bits: int, halved: list[str]) -> str:
    words = []
    if halved:
        words.append(f"images at half the resolution {' and '.join(halved)}")
    if bits == 7:
        words.append("128 shades of grey")
    if "before" in scene.volumes and 2 in scene.volumes["before"].halves:
        words.append("\u201cbefore\u201d at half the resolution")
    return "; ".join(words)


def _label_list(scene: Scene, measures: Measures) -> list[dict[str, Any]]:
    dice = {s.label: round(s.dice_after, 3) for s in measures.scores}
    labels: list[dict[str, Any]] = [
        {"number": number, "name": measures.name(value), "dice": dice.get(value)}
        for number, value in scene.values.items()
    ]
    return labels + [{"number": MOST_LABELS, "name": "other labels", "dice": None}] * scene.merged


def _landmark_list(scene: Scene, points: LandmarkErrors | None) -> list[dict[str, Any]]:
    if points is None:
        return []
    back = np.linalg.inv(scene.to_mm)
    lists = (points.fixed, points.moving, points.carried)
    placed = [np.round(mapped(back, each), 2).tolist() for each in lists]
    lengths = (points.before_mm, points.after_mm)
    millimetres = ([round(mm, 2) for mm in column.tolist()] for column in lengths)
    keys = ("name", "fixed", "before", "after", "mmBefore", "mmAfter")
    return [dict(zip(keys, row)) for row in zip(points.names, *placed, *millimetres)]
