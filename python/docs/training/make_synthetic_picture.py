"""Draw ../img/synthetic.jpg, 24 pairs of the generator: `python make_synthetic_picture.py`.

Each pair is four views of one slice: fixed, moving, and both again with the outlines of the labels
that an iteration gets.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from morphseek.training.config import Synthetic
from morphseek.training.synthetic import BODIES, SyntheticSource

SIZE, COLUMNS, LABELS = 96, 3, 8
COLOURS = np.array(
    [
        [0, 0, 0],
        [255, 80, 80],
        [80, 255, 80],
        [90, 140, 255],
        [255, 220, 60],
        [255, 90, 255],
        [60, 240, 240],
        [255, 160, 60],
        [200, 200, 255],
    ],
    np.uint8,
)


def outlined(image: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The slice in grey with the borders between labels in colour."""
    out = np.repeat((255 * image).astype(np.uint8)[..., None], 3, axis=2)
    down, right = labels[:-1, :-1] != labels[1:, :-1], labels[:-1, :-1] != labels[:-1, 1:]
    side = np.maximum(labels[:-1, :-1], np.maximum(labels[1:, :-1], labels[:-1, 1:])).astype(int)
    out[:-1, :-1][down | right] = COLOURS[side[down | right]]
    return out


def tile(index: int) -> np.ndarray:
    """Pair number `index`, kinds of bodies and directions of slices by turns."""
    bodies = list(BODIES)
    body = bodies[index % len(bodies)]
    s = SyntheticSource(Synthetic(bodies=[body]), (SIZE,) * 3, LABELS).sample(index)
    axis = ((0, 1, 2) if body == "limb" else (1, 0, 2))[index // len(bodies) % 3]

    def cut(v) -> np.ndarray:
        plane = v[0, 0].select(axis, SIZE // 2).numpy()
        return plane if axis == 0 else plane[::-1]  # the head is up

    views = [outlined(cut(image), 0 * cut(image)) for image in (s.fixed, s.moving)]
    views += [
        outlined(cut(image), cut(labels))
        for image, labels in ((s.fixed, s.fixed_map), (s.moving, s.moving_map))
    ]
    return np.pad(np.concatenate(views, axis=1), ((2, 2), (4, 4), (0, 0)), constant_values=255)


if __name__ == "__main__":
    tiles = [tile(i) for i in range(24)]
    rows = [np.concatenate(tiles[i : i + COLUMNS], axis=1) for i in range(0, len(tiles), COLUMNS)]
    target = Path(__file__).resolve().parent.parent / "img" / "synthetic.jpg"
    Image.fromarray(np.concatenate(rows)).save(target, quality=88, subsampling=0, optimize=True)
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")
