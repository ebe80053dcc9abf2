"""The places of a result to look at first: a page's buttons jump there, and 3D Slicer's."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import images
from .inputs import Measures, Registration
from .maps import Maps
from .views import MOST_LABELS, Scene

KINDS = ("fold", "error", "uncertainty", "shrunk", "bend", "grown")
"""What a place is the worst in; what speaks most against a result first."""


def worst_places(
    result: Registration,
    fixed: images.ImageLike | None = None,
    *,
    estimated_error: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Return the worst places of a result, in the order of :data:`KINDS`: where the map folds,
    where it shrinks, bends and grows most, and where it is least certain.

    Parameters
    ----------
    result : Registration
    fixed : ImageLike, optional
        What was registered: places count where it shows something. Without, the warped image.
    estimated_error : numpy.ndarray, optional
        The error expected at each voxel of the fixed image, mm: (z, y, x).

    Returns
    -------
    list of dict
        ``kind``, one of :data:`KINDS`; ``text``, for a button, and ``tip``; ``lps``, in mm.

    Examples
    --------
    >>> places = morphseek.report.worst_places(result, pair.fixed)
    >>> [len(place["lps"]) for place in places[:1]]
    [3]
    """
    scene = Scene(result, fixed, None)
    places = jumps(scene, Maps(scene, estimated_error), Measures())
    return [
        {
            **{name: place[name] for name in ("kind", "text", "tip")},
            "lps": (scene.to_mm @ [*place["at"], 1])[:3].tolist(),
        }
        for kind in KINDS
        for place in places
        if place["kind"] == kind
    ]


def jumps(scene: Scene, maps: Maps, measures: Measures) -> list[dict[str, Any]]:
    """Return the places to look at: what the button says, what its tip, where, and what to show."""
    places = [_place("middle", "middle", "the middle of what is shown", scene.middle())]
    body, points = scene.body(), measures.points
    places += [_worst_heat(maps, name) for name in ("error", "uncertainty") if name in maps.scales]
    places.append(_largest_bend(scene, maps, body))
    places += _volume_places(scene, maps, body)
    if "labels-fixed" in scene.volumes and measures.scores:
        places.append(_worst_label(scene, measures))
    if points is not None and len(points.names):
        worst = int(np.argmax(points.after_mm))
        at = np.linalg.inv(scene.to_mm) @ np.append(points.fixed[worst], 1)
        inside = [int(np.clip(round(v), 0, n - 1)) for v, n in zip(at[:3], scene.shape[::-1])]
        text = f"worst landmark {points.after_mm[worst]:.1f} mm"
        places.append(_place("landmark", text, points.names[worst], inside))
    return places


def _place(kind: str, text: str, tip: str, at: list[int], **shown: Any) -> dict[str, Any]:
    return {"kind": kind, "text": text, "tip": tip, "at": at, **shown}


def _worst_heat(maps: Maps, name: str) -> dict[str, Any]:
    coded = maps.volumes[name].array
    tip = "largest estimated error" if name == "error" else "least certain"
    at = maps.place(int(coded.argmax()), maps.nodes, coded.shape)
    return _place(name, f"{tip} {maps.scales[name]['most']:.1f} mm", tip, at, overlay=name)


def _largest_bend(scene: Scene, maps: Maps, body: np.ndarray) -> dict[str, Any]:
    length = np.sqrt((maps.bend**2).sum(axis=0))
    inside = _at(body, scene, maps.field_nodes)
    length = np.where(inside, length, 0) if inside.any() else length
    worst = int(length.argmax())
    at = maps.place(worst, maps.field_nodes, length.shape)
    tip = "where tissue moves most, the initial transform taken off"
    return _place("bend", f"largest bend {length.flat[worst]:.1f} mm", tip, at, overlay="grid")


def _volume_places(scene: Scene, maps: Maps, body: np.ndarray) -> list[dict[str, Any]]:
    """Return where the map folds, and where volumes change most."""
    volumes = scene.cropped(maps.jacobian)
    for axis, step in enumerate(scene.step):
        body = np.repeat(body, step, axis)
    inside = body[tuple(slice(n) for n in volumes.shape)] | ~body.any()
    least, most = (int(np.where(inside, s * volumes, np.inf).argmin()) for s in (1, -1))

    def place(kind: str, index: int, text: str, tip: str) -> dict[str, Any]:
        at = [int(p) // s for p, s in zip(np.unravel_index(index, volumes.shape), scene.step)]
        return _place(kind, text, tip, at[::-1], overlay="jacobian")

    places = []
    folded = least if volumes.flat[least] <= 0 else int(volumes.argmin())
    if volumes.flat[folded] <= 0:
        tip = "where the map turns inside out, which no tissue does"
        places.append(place("fold", folded, "fold", tip))
    if volumes.flat[least] > 0:
        tip = "where tissue has the least volume in the moving image"
        text = f"most shrunk \u00d7{volumes.flat[least]:.2f}"
        places.append(place("shrunk", least, text, tip))
    tip = "where tissue has the most volume in the moving image"
    return [*places, place("grown", most, f"most grown \u00d7{volumes.flat[most]:.1f}", tip)]


def _at(mask: np.ndarray, scene: Scene, nodes: list[np.ndarray]) -> np.ndarray:
    """Return a mask of the page's grid at nodes."""
    places = [
        np.clip((n - o) // s, 0, size - 1)
        for n, o, s, size in zip(nodes, scene.start, scene.step, scene.shape)
    ]
    return mask[np.ix_(*places)]


def _worst_label(scene: Scene, measures: Measures) -> dict[str, Any]:
    """Return where the label of the lowest Dice disagrees most."""
    worst = min(measures.scores, key=lambda s: s.dice_after)
    numbers = {value: number for number, value in scene.values.items()}
    number = numbers.get(worst.label, MOST_LABELS)
    fixed = scene.volumes["labels-fixed"].array == number
    apart = fixed != (scene.volumes["labels-after"].array == number)
    z = int(np.count_nonzero(apart, axis=(1, 2)).argmax())
    rows, columns = np.nonzero(apart[z])
    middle = len(rows) // 2
    at = [int(columns[middle]), int(rows[middle]), z] if len(rows) else scene.middle()
    text = f"worst label {measures.name(worst.label)}, Dice {worst.dice_after:.2f}"
    tip = "where the label of the lowest Dice disagrees most"
    return _place("label", text, tip, at, label=number)
