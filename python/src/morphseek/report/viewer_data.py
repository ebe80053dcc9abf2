"""What the viewer of a page gets: the volumes, coarse maps of the field, and the worst places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..scoring import LabelScore
from . import pack
from .landmarks import LandmarkErrors
from .markup import Markup, join, script_data
from .views import MOST_LABELS, Scene, Volume

_LEAST_VOLUME = 1e-2  # what the map of volumes tells apart


def of(
    scene: Scene,
    *,
    room: int,
    scores: Sequence[LabelScore] = (),
    names: Mapping[int, str],
    points: LandmarkErrors | None = None,
    error: np.ndarray | None = None,
) -> Markup:
    """Return the elements that hold everything the viewer shows, in at most `room` bytes: of 8
    bits, else of 7, else with the finest axis halved, and so on.
    """
    halved: list[str] = []
    while True:
        for bits in (8, 7):
            smallest = bits == 7 and max(scene.shape) < 64
            if smallest or _estimate(scene, bits) < room:
                said = _what_was_done(scene, bits, halved)
                data = _packed(scene, bits, said, scores, names, points, error)
                if smallest or len(data) <= room:
                    return data
        halved.append(("left-right", "front-back", "head-foot")[scene.halve()])


def _packed(
    scene: Scene,
    bits: int,
    said: str,
    scores: Sequence[LabelScore],
    names: Mapping[int, str],
    points: LandmarkErrors | None,
    error: np.ndarray | None,
) -> Markup:
    maps = _Maps(scene, error)
    listed, elements = [], []
    for name, volume in {**scene.volumes, **maps.volumes}.items():
        depth = bits if volume.image else 8
        listed.append(
            {
                "id": name,
                "size": list(volume.array.shape[::-1]),
                "halves": volume.halves[::-1],
                "bits": depth,
                "linear": volume.image,
            }
        )
        text = pack.packed(volume.array, depth)
        elements.append(Markup(f'\n<script type="text/plain" id="volume-{name}">{text}</script>'))
    meta = {
        "size": list(scene.shape[::-1]),
        "spacing": scene.spacing,
        "toMm": scene.to_mm[:3].tolist(),
        "toVoxel": scene.to_index[:3].tolist(),
        "initial": scene.result.initial[:3].tolist(),
        "letters": scene.axes.letters(),
        "tilt": round(scene.axes.tilt(), 1),
        "ranges": scene.ranges,
        "windows": scene.windows,
        "same": bool(scene.result.metrics["align"]["same_modality"]),
        "labels": _label_list(scene, scores, names),
        "landmarks": _landmark_list(scene, points),
        "field": maps.field,
        "maps": maps.scales,
        "said": said,
        "jumps": _jumps(scene, maps, scores, names, points),
        "volumes": listed,
    }
    return join("\n", script_data("meta", meta), *elements)


def _estimate(scene: Scene, bits: int) -> float:
    """Return about how many bytes the volumes take, and the maps of the field."""
    sizes = (pack.estimate(v.array, bits if v.image else 8) for v in scene.volumes.values())
    voxels = scene.volumes["after"].array.size
    return 40_000 + sum(sizes) + 0.2 * voxels / (8 if scene.large else 1)


def _what_was_done(scene: Scene, bits: int, halved: list[str]) -> str:
    said = []
    if halved:
        said.append(f"images at half the resolution {' and '.join(halved)}")
    if bits == 7:
        said.append("128 shades of grey")
    if "before" in scene.volumes and 2 in scene.volumes["before"].halves:
        said.append("\u201cbefore\u201d at half the resolution")
    return "; ".join(said)


class _Maps:
    """The field and the maps of it on coarser grids, and where they are largest."""

    def __init__(self, scene: Scene, error: np.ndarray | None):
        self.scene = scene
        self.volumes: dict[str, Volume] = {}
        self.scales: dict[str, Any] = {}
        self.jacobian = scene.result.jacobian()
        self.error = error
        self._field()
        self.steps = [2 if scene.large and n >= 32 else 1 for n in scene.shape]
        self.nodes = scene.nodes(self.steps)
        self._log_jacobian()
        for name, volume in (("uncertainty", scene.result.uncertainty), ("error", error)):
            if volume is not None:
                self._heat(name, volume)

    def _field(self) -> None:
        """The displacement behind the initial transform, about 50 nodes along the longest side."""
        scene = self.scene
        longest = max(n * s for n, s in zip(scene.shape[::-1], scene.spacing))
        steps = [
            max(1, min(round(longest / 50 / s), n))
            for n, s in zip(scene.shape[::-1], scene.spacing)
        ][::-1]
        self.field_nodes = scene.nodes(steps)
        self.bend = scene.bend(self.field_nodes)
        most = max(float(np.abs(self.bend).max()), 1e-6)
        coded = np.rint(self.bend * (127 / most)).astype(np.int8).view(np.uint8)
        shape = coded.shape[1:]
        self.volumes["field"] = Volume(coded.reshape(-1, *shape[1:]), [1, 1, 1], False)
        starts = [s // 2 if n > s // 2 else n - 1 for n, s in zip(scene.shape, steps)]
        self.field = {
            "size": list(shape[::-1]),
            "step": steps[::-1],
            "start": starts[::-1],
            "mm": most / 127,
        }

    def _log_jacobian(self) -> None:
        sampled = self.scene.sampled(self.jacobian, self.nodes)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.log(np.maximum(sampled, _LEAST_VOLUME))
        most = max(0.1, float(np.abs(logarithm).max()))
        coded = np.rint(128 + logarithm * (127 / most)).astype(np.uint8)
        coded[sampled <= 0] = 0  # nothing else is: the map folds
        shown = float(np.percentile(np.abs(logarithm[::2, ::2, ::2]), 99))
        shown = min(max(shown, 0.3), 1.4)  # from a quarter of the volume to four times it
        self.volumes["jacobian"] = Volume(coded, self.steps, False)
        self.scales["jacobian"] = {"most": most, "shown": min(most, shown)}

    def _heat(self, name: str, volume: np.ndarray) -> None:
        sampled = np.nan_to_num(self.scene.sampled(volume, self.nodes))
        most = max(1e-3, float(sampled.max()))
        shown = max(1e-3, 1.2 * float(np.percentile(sampled[::2, ::2, ::2], 95)))
        coded = np.rint(sampled * (255 / most)).astype(np.uint8)
        self.volumes[name] = Volume(coded, self.steps, False)
        self.scales[name] = {"most": most, "shown": min(most, shown)}

    def place(self, index: int, nodes: list[np.ndarray], shape: Sequence[int]) -> list[int]:
        """Return the page's voxel x, y, z of a place among nodes."""
        found = np.unravel_index(index, shape)
        places = [
            (int(nodes[a][found[a]]) - self.scene.start[a]) // self.scene.step[a] for a in range(3)
        ]
        return [min(p, n - 1) for p, n in zip(places, self.scene.shape)][::-1]


def _label_list(
    scene: Scene, scores: Sequence[LabelScore], names: Mapping[int, str]
) -> list[dict[str, Any]]:
    dice = {s.label: round(s.dice_after, 3) for s in scores}
    values = scene.values | {s.label: s.label for s in scores if _is_own(scene, s.label)}
    found: list[dict[str, Any]] = [
        {"number": number, "name": names.get(value, str(value)), "dice": dice.get(value)}
        for number, value in sorted(values.items())
    ]
    return found + [{"number": MOST_LABELS, "name": "other labels", "dice": None}] * scene.merged


def _is_own(scene: Scene, label: int) -> bool:
    """Whether a label has its own number on the page."""
    return all(n == v for n, v in scene.values.items()) and 0 < label <= MOST_LABELS


def _landmark_list(scene: Scene, points: LandmarkErrors | None) -> list[dict[str, Any]]:
    if points is None:
        return []
    back = np.linalg.inv(scene.to_mm)
    placed = [
        np.round(p @ back[:3, :3].T + back[:3, 3], 2).tolist()
        for p in (points.fixed, points.moving, points.carried)
    ]
    return [
        {
            "name": n,
            "fixed": f,
            "before": m,
            "after": c,
            "mmBefore": round(b, 2),
            "mmAfter": round(a, 2),
        }
        for n, f, m, c, b, a in zip(
            points.names, *placed, points.before_mm.tolist(), points.after_mm.tolist()
        )
    ]


def _jumps(
    scene: Scene,
    maps: _Maps,
    scores: Sequence[LabelScore],
    names: Mapping[int, str],
    points: LandmarkErrors | None,
) -> list[dict[str, Any]]:
    """Return the places to look at: what the button says, what its tip, where, and what to show."""
    found = [{"text": "middle", "tip": "the middle of what is shown", "at": scene.middle()}]
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
                "text": f"worst landmark {points.after_mm[worst]:.1f} mm",
                "tip": points.names[worst],
                "at": inside,
            }
        )
    return found


def _worst_heat(maps: _Maps, name: str) -> dict[str, Any]:
    coded = maps.volumes[name].array
    said = "largest estimated error" if name == "error" else "least certain"
    return {
        "text": f"{said} {maps.scales[name]['most']:.1f} mm",
        "tip": said,
        "at": maps.place(int(coded.argmax()), maps.nodes, coded.shape),
        "overlay": name,
    }


def _largest_bend(scene: Scene, maps: _Maps, body: np.ndarray) -> dict[str, Any]:
    length = np.sqrt((maps.bend**2).sum(axis=0))
    inside = _at(body, scene, maps.field_nodes)
    length = np.where(inside, length, 0) if inside.any() else length
    at = int(length.argmax())
    return {
        "text": f"largest bend {length.flat[at]:.1f} mm",
        "tip": "where tissue moves most, the initial transform taken off",
        "at": maps.place(at, maps.field_nodes, length.shape),
        "overlay": "grid",
    }


def _volume_places(scene: Scene, maps: _Maps, body: np.ndarray) -> list[dict[str, Any]]:
    """Return where the map folds, and where volumes change most."""
    volumes = scene.cropped(maps.jacobian)
    for axis, step in enumerate(scene.step):
        body = np.repeat(body, step, axis)
    body = body[tuple(slice(n) for n in volumes.shape)]
    least, most = (_within(body, volumes, sign) for sign in (1, -1))

    def jump(at: int, text: str, tip: str) -> dict[str, Any]:
        found = np.unravel_index(at, volumes.shape)
        place = [int(p) // s for p, s in zip(found, scene.step)]
        return {"text": text, "tip": tip, "at": place[::-1], "overlay": "jacobian"}

    found = []
    folded = least if volumes.flat[least] <= 0 else int(volumes.argmin())
    if volumes.flat[folded] <= 0:
        found.append(jump(folded, "fold", "where the map turns inside out, which no tissue does"))
    if volumes.flat[least] > 0:
        text = f"most shrunk \u00d7{volumes.flat[least]:.2f}"
        found.append(jump(least, text, "where tissue has the least volume in the moving image"))
    text = f"most grown \u00d7{volumes.flat[most]:.1f}"
    found.append(jump(most, text, "where tissue has the most volume in the moving image"))
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


def _worst_label(
    scene: Scene, scores: Sequence[LabelScore], names: Mapping[int, str]
) -> dict[str, Any]:
    """Return where the label of the lowest Dice disagrees most."""
    worst = min(scores, key=lambda s: s.dice_after)
    numbers = {value: number for number, value in scene.values.items()}
    number = numbers.get(worst.label, worst.label if _is_own(scene, worst.label) else MOST_LABELS)
    fixed = scene.volumes["labels-fixed"].array == number
    apart = fixed != (scene.volumes["labels-after"].array == number)
    z = int(np.count_nonzero(apart, axis=(1, 2)).argmax())
    rows, columns = np.nonzero(apart[z])
    middle = len(rows) // 2
    at = [int(columns[middle]), int(rows[middle]), z] if len(rows) else scene.middle()
    name = names.get(worst.label, str(worst.label))
    return {
        "text": f"worst label {name}, Dice {worst.dice_after:.2f}",
        "tip": "where the label of the lowest Dice disagrees most",
        "at": at,
        "label": number,
    }
