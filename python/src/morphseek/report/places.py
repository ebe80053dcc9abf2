"""The places of a result to look at first: a page's buttons jump there, and 3D Slicer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import images
from .inputs import LandmarkErrors, Registration, Scores
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
    target = None if fixed is None else images.read_on(fixed, result.grid, "fixed")
    scene = Scene(result, target, None)
    found = jumps(scene, Maps(scene, estimated_error), (), {}, None)
    order = {kind: i for i, kind in enumerate(KINDS)}
    return [
        {
            **{name: place[name] for name in ("kind", "text", "tip")},
            "lps": (scene.to_mm @ [*place["at"], 1])[:3].tolist(),
        }
        for place in sorted(found, key=lambda p: order.get(p["kind"], len(order)))
        if place["kind"] in order
    ]


def is_own(scene: Scene, label: int) -> bool:
    """Whether a label has its own number on the page."""
    return all(n == v for n, v in scene.values.items()) and 0 < label <= MOST_LABELS


def jumps(
    scene: Scene,
    maps: Maps,
    scores: Scores,
    names: Mapping[int, str],
    points: LandmarkErrors | None,
) -> list[dict[str, Any]]:
    """Return the places to look at: what the button says, what its tip, where, and what to show."""
    found: list[dict[str, Any]] = [
        {
            "kind": "middle",
            "text": "middle",
            "tip": "the middle of what is shown",
            "at": scene.middle(),
        }
    ]
    body = scene.body()
    found += [_worst_heat(maps, name) for name in ("error", "uncertainty") if name in maps.scales]
    found.append(_largest_bend(scene, maps, body))
    found += _volume_places(scene, maps, body)
    if "labels-fixed" in scene.volumes and scores:
        found.append(_worst_label(scene, scores, names))
    if points is not None and len(points.names):
        worst = int(np.argmax(points.after_mm))
        at = np.linalg.inv(scene.to_mm) @ np.append(points.fixed[worst], 1)
        inside = [int(np.clip(round(v), 0, n - 1)) for v, n in zip(at[:3], scene.shape[::-1])]
        found.append(
            {
                "kind": "landmark",
                "text": f"worst landmark {points.after_mm[worst]:.1f} mm",
                "tip": points.names[worst],
                "at": inside,
            }
        )
    return found


def _worst_heat(maps: Maps, name: str) -> dict[str, Any]:
    coded = maps.volumes[name].array
    said = "largest estimated error" if name == "error" else "least certain"
    return {
        "kind": name,
        "text": f"{said} {maps.scales[name]['most']:.1f} mm",
        "tip": said,
        "at": maps.place(int(coded.argmax()), maps.nodes, coded.shape),
        "overlay": name,
    }


def _largest_bend(scene: Scene, maps: Maps, body: np.ndarray) -> dict[str, Any]:
    length = np.sqrt((maps.bend**2).sum(axis=0))
    inside = _at(body, scene, maps.field_nodes)
    length = np.where(inside, length, 0) if inside.any() else length
    at = int(length.argmax())
    return {
        "kind": "bend",
        "text": f"largest bend {length.flat[at]:.1f} mm",
        "tip": "where tissue moves most, the initial transform taken off",
        "at": maps.place(at, maps.field_nodes, length.shape),
        "overlay": "grid",
    }


def _volume_places(scene: Scene, maps: Maps, body: np.ndarray) -> list[dict[str, Any]]:
    """Return where the map folds, and where volumes change most."""
    volumes = scene.cropped(maps.jacobian)
    for axis, step in enumerate(scene.step):
        body = np.repeat(body, step, axis)
    body = body[tuple(slice(n) for n in volumes.shape)]
    least, most = (_within(body, volumes, sign) for sign in (1, -1))

    def jump(kind: str, at: int, text: str, tip: str) -> dict[str, Any]:
        found = np.unravel_index(at, volumes.shape)
        place = [int(p) // s for p, s in zip(found, scene.step)]
        return {"kind": kind, "text": text, "tip": tip, "at": place[::-1], "overlay": "jacobian"}

    found = []
    folded = least if volumes.flat[least] <= 0 else int(volumes.argmin())
    if volumes.flat[folded] <= 0:
        found.append(
            jump("fold", folded, "fold", "where the map turns inside out, which no tissue does")
        )
    if volumes.flat[least] > 0:
        text = f"most shrunk \u00d7{volumes.flat[least]:.2f}"
        found.append(
            jump("shrunk", least, text, "where tissue has the least volume in the moving image")
        )
    text = f"most grown \u00d7{volumes.flat[most]:.1f}"
    found.append(jump("grown", most, text, "where tissue has the most volume in the moving image"))
    return found


def _within(body: np.ndarray, volume: np.ndarray, sign: int) -> int:
    """Return where a volume is least (sign 1) or most (-1) in the body."""
    at = int(volume.argmin() if sign > 0 else volume.argmax())
    if body.flat[at] or not body.any():  # mostly so, and it saves a copy
        return at
    inside = np.where(body, volume, np.float32(sign * np.inf))
    return int(inside.argmin() if sign > 0 else inside.argmax())


def _at(mask: np.ndarray, scene: Scene, nodes: list[np.ndarray]) -> np.ndarray:
    """Return a mask of the page's grid at nodes."""
    places = [
        np.clip((n - o) // s, 0, size - 1)
        for n, o, s, size in zip(nodes, scene.start, scene.step, scene.shape)
    ]
    picked: np.ndarray = mask[np.ix_(*places)]
    return picked


def _worst_label(scene: Scene, scores: Scores, names: Mapping[int, str]) -> dict[str, Any]:
    """Return where the label of the lowest Dice disagrees most."""
    worst = min(scores, key=lambda s: s.dice_after)
    numbers = {value: number for number, value in scene.values.items()}
    number = numbers.get(worst.label, worst.label if is_own(scene, worst.label) else MOST_LABELS)
    fixed = scene.volumes["labels-fixed"].array == number
    apart = fixed != (scene.volumes["labels-after"].array == number)
    z = int(np.count_nonzero(apart, axis=(1, 2)).argmax())
    rows, columns = np.nonzero(apart[z])
    middle = len(rows) // 2
    at = [int(columns[middle]), int(rows[middle]), z] if len(rows) else scene.middle()
    name = names.get(worst.label, str(worst.label))
    return {
        "kind": "label",
        "text": f"worst label {name}, Dice {worst.dice_after:.2f}",
        "tip": "where the label of the lowest Dice disagrees most",
        "at": at,
        "label": number,
    }
